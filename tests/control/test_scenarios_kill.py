"""Stops that an operator, or a deploy, asks for while a step is under way."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast.records import RunRow, StoredEvent
from outlast.views import read_run
from outlast.worker.order import Order
from outlast.worker.stores import get_store
from tests.checkers import check_all
from tests.ownership.children import PATIENCE, children, lines, until
from tools.kill_matrix import Case, Stage, command, is_confirmed

PROGRAMS = Path(__file__).parent / "programs"
COLOURS = ["async", "plain"]


def journal(url: str) -> list[StoredEvent]:
    return outlast.Client(url).journal("r")


def row(url: str) -> RunRow:
    found = read_run(get_store(url).store, "r")
    assert found is not None
    return found


# ---- an agent that hangs is stopped from outside


@pytest.mark.parametrize("colour", [pytest.param("async", marks=pytest.mark.soak), "sync"])
@pytest.mark.parametrize("kind", ["wait", "sleep", "regex", "thread", "stubborn", "busy"])
def test_a_run_that_hangs_is_ended_from_another_process_and_stays_killed(
    tmp_path: Path, kind: str, colour: str
) -> None:
    with Stage(Case(kind, colour, "run"), tmp_path) as stage:
        stage.wait_until_it_hangs()
        client = outlast.Client(stage.url)
        killing = command("kill", "r", "--grace", "0.3", "--store", stage.url)
        assert killing.wait(PATIENCE) == 0
        assert client.run("r").status == "killed"
        until(lambda: not stage.running(), "all of it to end")
        until(lambda: is_confirmed(client), "the word that it has ended")
        assert stage.process.wait(PATIENCE) == 4
        again = command("resume", "--all", "--store", stage.url)
        assert again.wait(PATIENCE) == 0
        assert client.run("r").status == "killed"
    assert not (tmp_path / "after").exists()
    check_all(stage.url, "r")


# ---- a step that swallows the kill


@pytest.mark.parametrize("colour", COLOURS)
def test_after_a_kill_no_further_step_starts_whatever_a_step_returns(
    tmp_path: Path, colour: str
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    log = tmp_path / "log"
    with children() as start:
        options = {"store": url, "folder": str(tmp_path), "colour": colour}
        child = start(PROGRAMS / "swallowing.py", options)
        until(lambda: "swallow" in lines(log), "the body")
        assert outlast.Client(url).kill("r").outcome == "killed"
        (tmp_path / "go").touch()  # should it not have been interrupted
        assert child.end()["error"] == "RunKilled"
    assert "after" not in lines(log)
    seen = check_all(url, "r")
    kinds = Counter(stored.kind for stored, _ in seen.journal)
    # What it has returned is evidence, and not done.
    assert (seen.row.status, kinds["step.completed"], kinds["step.late"]) == ("killed", 0, 1)


def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_step(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"

    @outlast.step
    async def awaits_another() -> str:
        other = asyncio.create_task(asyncio.Event().wait())
        other.cancel()
        return str(await other)

    @outlast.workflow
    async def work() -> str:
        return await awaits_another()

    with pytest.raises(outlast.RunFailed):
        outlast.run(work, run_id="r", store=url)
    seen = check_all(url, "r")
    assert [e.kind for _, e in seen.journal if e.kind.startswith("step.")][-1] == "step.failed"
    assert seen.row.status == "failed"


# ---- SIGTERM in a rolling restart


@dataclass(frozen=True)
class Restarted:
    """The run `r` of `programs/restarted.py`, executed as by `outlast run`."""

    folder: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    @contextmanager
    def start(self, grace: float = 30.0, cut: str = "") -> Iterator["subprocess.Popen[bytes]"]:
        """A supervisor and its worker, gone when the block ends."""
        target = f"{PROGRAMS / 'restarted.py'}:work"
        arguments = msgspec.json.encode([str(self.folder)]).decode()
        order = Order(self.url, "r", target=target, arguments=arguments, grace=grace)
        with (self.folder / "stderr").open("ab") as stderr:
            process = subprocess.Popen(
                [sys.executable, PROGRAMS / "supervised.py", msgspec.json.encode(order)],
                env={**os.environ, "TEST_CUT": cut},
                stderr=stderr,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def says(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def await_body(self, process: "subprocess.Popen[bytes]") -> None:
        marks = "in-body.*"
        until(lambda: process.poll() is not None or list(self.folder.glob(marks)), "the body")
        assert process.poll() is None

    def end(self) -> None:
        """Another process brings the run to its end, at once: nobody has it."""
        found = row(self.url)
        assert (found.status, found.owner) == ("queued", None)
        self.says("go")
        with self.start() as process:
            assert process.wait(PATIENCE) == 0

    def log(self) -> list[str]:
        return lines(self.folder / "log")


@pytest.fixture
def restarted(tmp_path: Path) -> Restarted:
    return Restarted(tmp_path)


@pytest.mark.parametrize("how", ["well", "fails"])
def test_an_outcome_within_the_grace_of_a_sigterm_is_recorded(
    restarted: Restarted, how: str
) -> None:
    restarted.says("how", how)
    with restarted.start() as process:
        restarted.await_body(process)
        restarted.says("go", "asked")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
    kind = {"well": "step.completed", "fails": "step.failed"}[how]
    assert [e.kind for e in journal(restarted.url) if e.key == "b#0"] == ["step.started", kind]
    restarted.end()
    assert restarted.log() == ["b", "c"]
    check_all(restarted.url, "r")


def test_a_step_that_outlasts_the_grace_is_not_charged_to_its_limit_but_to_the_budget(
    restarted: Restarted,
) -> None:
    with restarted.start(grace=0.2) as process:
        restarted.await_body(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
    assert row(restarted.url).status == "queued"
    restarted.says("how", "stumbles")  # two attempts are allowed, and both are still there
    restarted.end()
    assert restarted.log() == ["b", "b", "b", "c"]
    seen = check_all(restarted.url, "r", attempts={"b": 2})
    assert seen.account is not None
    assert seen.account.calls == 4


def test_a_process_that_is_killed_within_the_grace_leaves_the_run_resumable(
    restarted: Restarted,
) -> None:
    with restarted.start() as process:
        restarted.await_body(process)
        process.send_signal(signal.SIGTERM)
        process.kill()
    view = outlast.Client(restarted.url).run("r")
    until(lambda: outlast.Client(restarted.url).run("r").interrupted, "its worker to end with it")
    assert view.status == "running"
    restarted.says("go")
    with restarted.start() as process:
        assert process.wait(PATIENCE) == 0
    assert restarted.log() == ["b", "b", "c"]
    check_all(restarted.url, "r")


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_sigterm_in_the_very_commit_loses_no_outcome(restarted: Restarted, cut: str) -> None:
    restarted.says("go")
    with restarted.start(cut=cut) as process:
        assert process.wait(PATIENCE) == 143
    assert "step.completed" in [e.kind for e in journal(restarted.url) if e.key == "b#0"]
    restarted.end()
    assert restarted.log() == ["b", "c"]
    check_all(restarted.url, "r")


def test_ctrl_c_twice_cuts_a_step_off_and_leaves_the_run_resumable(restarted: Restarted) -> None:
    with restarted.start(grace=3600.0) as process:
        restarted.await_body(process)
        process.send_signal(signal.SIGINT)  # the system makes one of two that are pending
        until(lambda: "Ctrl-C again" in (restarted.folder / "stderr").read_text(), "its answer")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    restarted.end()
    assert restarted.log() == ["b", "b", "c"]
    check_all(restarted.url, "r", attempts={"b": 2})
