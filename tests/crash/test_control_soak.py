"""For a minute runs and workers are killed, paused and stopped at random; then all must be well."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import outlast
from outlast.errors import UsageError
from outlast.processes import Found
from outlast.records import FINAL
from outlast.views import read_run
from outlast.worker.stores import get_store
from outlast.world import start_ticks
from tests.checkers import Evidence, check_all
from tests.control_checkers import nothing_begins_between
from tests.crash.nursery import ROOT
from tests.crash.programs import soaking

PROGRAM = ROOT / "tests" / "crash" / "programs" / "soaking.py"
TICK = 0.1
"""Seconds between two disturbances: the pace, nothing is waited for with it."""

PATIENCE = 240.0
"""Seconds for the runs to come to their end, once nothing disturbs them any more."""


class Crew:
    """`outlast worker` with some processes, and all processes that were ever seen under it."""

    def __init__(self, url: str, processes: int, concurrency: int) -> None:
        many = ["--processes", str(processes), "--concurrency", str(concurrency)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlast", "worker", str(PROGRAM), *many, "--store", url],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
        self.seen: set[Found] = set()
        self._timers: list[threading.Timer] = []

    def workers(self) -> list[Found]:
        """Its worker processes that live."""
        children = psutil.Process(self._process.pid).children()
        found = [Found(child.pid, start_ticks(child.pid) or -1) for child in children]
        self.seen |= {*found}
        return [one for one in found if one.alive]

    def send(self, worker: Found, number: signal.Signals) -> None:
        """Signal one of them, unless it has ended."""
        assert worker in self.seen
        if worker.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, number)

    def stop_for(self, worker: Found, seconds: float) -> None:
        """Stop one, for so long. It may stand in a transaction, for whose end everybody waits, the
        test too: so another thread lets it go on."""
        self.send(worker, signal.SIGSTOP)
        timer = threading.Timer(seconds, self.send, (worker, signal.SIGCONT))
        timer.start()
        self._timers.append(timer)

    def let_all_go_on(self) -> None:
        """Wait until none is stopped any more."""
        for timer in self._timers:
            timer.join()

    def end(self) -> int:
        """Ask it to end, and wait for that; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def clear_away(self) -> None:
        """Nothing that it has started outlives the test."""
        self.let_all_go_on()
        if self._process.poll() is None:
            self.workers()
            self._process.kill()
            self._process.wait()
        for one in self.seen:
            self.send(one, signal.SIGKILL)


class Disturber:
    """Does one random thing after the other to runs and workers, and keeps what it was told."""

    def __init__(self, client: outlast.Client, crew: Crew, ids: list[str], seed: int) -> None:
        self._client, self._crew, self._ids = client, crew, ids
        self._chance = random.Random(seed)
        self.killed: set[str] = set()
        self.done: Counter[str] = Counter()

    def disturb_for(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK)):
            self.disturb()
            time.sleep(TICK)

    def disturb(self) -> None:
        (act,) = self._chance.choices(
            [self._kill, self._pause, self._resume, self._sigkill, self._sigstop], [2, 5, 6, 1, 3]
        )
        self.done[act.__name__] += act()

    def _kill(self) -> bool:
        answer = self._client.kill(self._any(), grace=0.5, reason="soak")
        if answer.outcome == "killed":
            self.killed.add(answer.run_id)
        assert (answer.status == "killed") is (answer.run_id in self.killed)
        return answer.outcome == "killed"

    def _pause(self) -> bool:
        with contextlib.suppress(UsageError):  # it has ended
            return self._client.pause(self._any(), reason="soak").status == "held"
        return False

    def _resume(self) -> bool:
        held = self._client.runs(status="held")
        if not held:
            return False
        with contextlib.suppress(UsageError):
            self._client.resume(self._chance.choice(held).run_id)
        return True

    def _sigkill(self) -> bool:
        worker = self._worker()
        if worker is not None:
            self._crew.send(worker, signal.SIGKILL)
        return worker is not None

    def _sigstop(self) -> bool:
        worker = self._worker()
        if worker is not None:
            self._crew.stop_for(worker, self._chance.uniform(0.1, 3.0))
        return worker is not None

    def _worker(self) -> Found | None:
        workers = self._crew.workers()
        return self._chance.choice(workers) if workers else None

    def _any(self) -> str:
        return self._chance.choice(self._ids)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[int, int], Crew]]:
    crews: list[Crew] = []

    def start(processes: int, concurrency: int) -> Crew:
        crews.append(Crew(f"sqlite:///{folder}/store.db", processes, concurrency))
        return crews[-1]

    try:
        yield start
    finally:
        for crew in crews:
            crew.clear_away()


@pytest.mark.parametrize(
    ("runs", "rounds", "seconds"),
    [
        pytest.param(
            *(200, 40, 60.0), marks=[pytest.mark.soak, pytest.mark.timeout(400)], id="a minute"
        ),
    ],
)
def test_whatever_an_operator_does_to_runs_and_processes_nothing_is_left_behind(
    folder: Path, start: Callable[[int, int], Crew], runs: int, rounds: int, seconds: float
) -> None:
    url = f"sqlite:///{folder}/store.db"
    ids = [f"r{number:03}" for number in range(runs)]
    for number, run_id in enumerate(ids):
        workflow = soaking.asynchronous if number % 2 else soaking.plain
        outlast.submit(workflow, effects_of(folder, run_id), rounds, run_id=run_id, store=url)
    client, crew = outlast.Client(url), start(4, runs // 4)
    disturber = Disturber(client, crew, ids, seed=5)
    while not any(run.status == "running" for run in client.runs()):
        time.sleep(TICK)
    disturber.disturb_for(seconds / 2)
    client.stop_all("soak")
    stopped = lengths(url, ids)
    disturber.disturb_for(seconds / 20)
    allowed = lengths(url, ids)
    client.allow()
    disturber.disturb_for(seconds / 2)
    crew.let_all_go_on()

    let_all_end(client, crew, runs)

    assert crew.end() in (0, 143)
    assert [one for one in crew.seen if one.alive] == []
    assert min(disturber.done.values()) > 0
    for run_id in ids:
        seen = check_all(url, run_id, effects_of(folder, run_id))
        assert seen.row.owner is None
        assert seen.row.status == ("killed" if run_id in disturber.killed else "completed")
        check_effects(seen)
        assert list(nothing_begins_between(seen, stopped[run_id], allowed[run_id])) == []
        if seen.row.status == "completed":
            assert client.run(run_id).result == rounds * (rounds - 1)


def let_all_end(client: outlast.Client, crew: Crew, runs: int) -> None:
    """An operator lets go on what is held, until everything has ended."""
    deadline = time.monotonic() + PATIENCE
    while left := [run for run in client.runs(limit=runs) if run.status not in FINAL]:
        stuck = [(run.run_id, run.status, run.reason, run.detail, run.owner) for run in left]
        assert time.monotonic() < deadline, f"these do not end: {stuck}"
        crew.workers()
        for run in left:
            if run.status == "held":
                with contextlib.suppress(UsageError):
                    client.resume(run.run_id)
        time.sleep(TICK)


def check_effects(seen: Evidence) -> None:
    """What was completed has taken effect, `once` steps once; the others once for each attempt."""
    times = Counter(effect.key for effect in seen.effects)
    for stored, event in seen.journal:
        if event.kind == "step.completed":
            assert times[str(stored.key)] >= 1, stored.key
    assert [key for key, n in times.items() if "send" in key and n > 1] == []


def lengths(url: str, ids: list[str]) -> dict[str, int]:
    """Numbers of the last events of the runs."""
    store = get_store(url).store
    return {run_id: row.seq for run_id in ids if (row := read_run(store, run_id)) is not None}


def effects_of(folder: Path, run_id: str) -> str:
    return f"{folder}/{run_id}.effects"
