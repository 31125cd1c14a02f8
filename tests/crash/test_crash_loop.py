"""A step that ends its process is not started for ever: the run is held, the others go on."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outlast import Client
from tests.checkers import check_all, read_effects
from tests.crash.nursery import ROOT, Nursery
from tests.crash.programs.deadly import RESULT, mood
from tests.crash.programs.job import Job, Outcome

COLOURS = pytest.mark.parametrize(
    "asynchronous", [pytest.param(False, id="plain"), pytest.param(True, id="async")]
)


def bodies(job: Job, step: str = "deadly") -> int:
    return sum(effect.key.startswith(step) for effect in read_effects(job.effects))


def die_times(nursery: Nursery, job: Job, times: int) -> None:
    for _ in range(times):
        try:
            assert nursery.run(job) is None
        except AssertionError as ended:
            assert "ended with 137" in str(ended)  # noqa: PT017 - os._exit is no SIGKILL


@COLOURS
@pytest.mark.parametrize("way", ["exit", "sigkill"])
def test_after_three_deaths_in_one_attempt_the_run_is_held_and_left_alone(
    nursery: Nursery, folder: Path, way: str, asynchronous: bool
) -> None:
    job = Job("deadly", str(folder), asynchronous=asynchronous)
    mood(folder, way)
    die_times(nursery, job, 3)

    held = nursery.run(job)

    assert held is not None
    assert (held.ended, held.reason) == ("RunHeld", "crash-loop"), held.text
    assert "deadly#1 stopped with its process 3 times" in held.text
    assert bodies(job) == 3
    assert bodies(job, "first") == 1

    seq = check_all(job.url, "run", job.effects).row.seq
    again = nursery.run(job)
    assert again is not None
    assert again.reason == "crash-loop"
    assert check_all(job.url, "run", job.effects).row.seq == seq  # nothing was even written
    assert "run" not in Client(job.url).unfinished()


def test_other_runs_go_on_while_one_is_held_for_its_crashes(nursery: Nursery, folder: Path) -> None:
    job = Job("deadly", str(folder))
    mood(folder, "sigkill")
    die_times(nursery, job, 3)
    assert nursery.run(job) is not None
    mood(folder, "live")

    other = nursery.run(msgspec.structs.replace(job, run_id="other"))

    assert other == Outcome("returned", RESULT)
    assert Client(job.url).run("run").status == "held"


@COLOURS
def test_resumed_by_an_operator_a_held_run_goes_on(
    nursery: Nursery, folder: Path, asynchronous: bool
) -> None:
    job = Job("deadly", str(folder), asynchronous=asynchronous)
    mood(folder, "sigkill")
    die_times(nursery, job, 3)
    assert nursery.run(job) is not None
    # Resumed without a cure, it has another three lives.
    die_times(nursery, msgspec.structs.replace(job, resume=True), 1)
    die_times(nursery, job, 2)
    held = nursery.run(job)
    assert held is not None
    assert held.reason == "crash-loop", held.text
    mood(folder, "live")

    end = nursery.run(msgspec.structs.replace(job, resume=True))

    assert end == Outcome("returned", RESULT)
    assert bodies(job) == 7
    assert bodies(job, "first") == 1
    check_all(job.url, "run", job.effects)


def test_deaths_outside_any_step_are_counted_too(nursery: Nursery, folder: Path) -> None:
    job = Job("deadly", str(folder), "outside steps")
    mood(folder, "sigkill")
    die_times(nursery, job, 3)
    held = nursery.run(job)
    assert held is not None
    assert held.reason == "crash-loop", held.text
    mood(folder, "live")
    assert nursery.run(msgspec.structs.replace(job, resume=True)) == Outcome("returned", RESULT)


def test_a_run_that_sleeps_is_not_held_however_often_its_process_dies(folder: Path) -> None:
    job = Job("deadly", str(folder), "asleep", max_crashes=1)
    for _ in range(3):
        with start(job) as life:
            try:
                wait_for(life, lambda: status_of(job) == "waiting")
            finally:
                life.kill()
        assert life.returncode == -signal.SIGKILL
        assert Client(job.url).run("run").interrupted


@COLOURS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_process_that_is_asked_to_go_releases_its_run_and_counts_as_no_crash(
    nursery: Nursery, folder: Path, number: signal.Signals, asynchronous: bool
) -> None:
    job = Job("deadly", str(folder), asynchronous=asynchronous, max_crashes=2)
    mood(folder, "sigkill")
    die_times(nursery, job, 1)
    mood(folder, "hang")
    for _ in range(2):
        interrupt(job, number)
        view = Client(job.url).run("run")
        assert (view.status, view.interrupted) == ("queued", False)
        check_all(job.url, "run", job.effects)

    mood(folder, "sigkill")
    die_times(nursery, job, 1)  # the second death: the first one was not forgotten
    held = nursery.run(job)
    assert held is not None
    assert held.reason == "crash-loop", held.text
    mood(folder, "live")
    end = nursery.run(msgspec.structs.replace(job, resume=True))
    assert end == Outcome("returned", RESULT)
    check_all(job.url, "run", job.effects)


def interrupt(job: Job, number: signal.Signals) -> None:
    """Start a life in an interpreter of its own, send it a signal once it is in the body."""
    before = bodies(job)
    with start(job) as life:
        try:
            wait_for(life, lambda: bodies(job) > before)
            life.send_signal(number)
            _, text = life.communicate(timeout=30)
        finally:
            life.kill()
    expected = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: -signal.SIGINT}
    assert life.returncode == expected[number], text.decode()


def start(job: Job) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.crash.programs.alone",
        msgspec.json.encode(job).decode(),
    ]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)


def wait_for(life: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert life.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def status_of(job: Job) -> str:
    """`waiting`, `running`, ... as of a living owner; empty if there is none."""
    runs = Client(job.url).runs()
    return runs[0].status if runs and not runs[0].interrupted else ""
