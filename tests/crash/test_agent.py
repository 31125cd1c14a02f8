"""A longer agent, killed again and again: one result in the end."""

import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.checkers import Evidence, check_all, read_effects
from tests.crash.nursery import ROOT, Nursery
from tests.crash.points import WRITES, At, Point
from tests.crash.programs.agent import RESULT, TURNS
from tests.crash.programs.job import Job

COLOURS = pytest.mark.parametrize(
    "asynchronous", [pytest.param(False, id="plain"), pytest.param(True, id="async")]
)

SPARED = 10_000
"""A crash limit that these runs never come to."""


def job_in(folder: Path, asynchronous: bool) -> Job:
    return Job("agent", str(folder), asynchronous=asynchronous, max_crashes=SPARED)


def check_end(job: Job) -> Evidence:
    """The checkers, and each mail sent once."""
    seen = check_all(job.url, "run", job.effects)
    assert seen.row.status == "completed"
    mails = Counter(e.key for e in seen.effects if e.key.startswith("send#"))
    assert len(mails) == TURNS
    assert set(mails.values()) == {1}
    return seen


@COLOURS
@pytest.mark.parametrize("turn", [1, 2, TURNS])
@pytest.mark.parametrize("at", WRITES)
def test_killed_at_a_turn_boundary_an_agent_repeats_no_step(
    nursery: Nursery, folder: Path, at: At, turn: int, asynchronous: bool
) -> None:
    job = job_in(folder, asynchronous)
    point = Point(at, "turn.saved", nth=turn)
    assert nursery.run(msgspec.structs.replace(job, point=point)) is None

    end = nursery.run(job)

    assert end is not None
    assert end.value == RESULT, end.text
    seen = check_end(job)
    repeats = [key for key, n in Counter((e.key, e.attempt) for e in seen.effects).items() if n > 1]
    assert not repeats
    thoughts = Counter(e.key.partition("#")[0] for e in seen.effects)["think"]
    assert thoughts == 2 * 2 * TURNS  # two in a turn, each of them fails once


OTHER_RECORDS = ["value.recorded", "timer.set", "timer.fired", "step.failed"]


@pytest.mark.parametrize(
    ("kind", "asynchronous"),
    [*itertools.product(OTHER_RECORDS, [False, True]), ("step.abandoned", True)],
)
def test_killed_around_any_other_record_an_agent_comes_to_the_same_result(
    nursery: Nursery, folder: Path, kind: str, asynchronous: bool
) -> None:
    job = job_in(folder, asynchronous)
    for at in WRITES:
        assert nursery.run(msgspec.structs.replace(job, point=Point(at, kind))) is None

    end = nursery.run(job)

    assert end is not None
    assert end.value == RESULT, end.text
    check_end(job)


@COLOURS
def test_killed_around_each_commit_in_turn_an_agent_comes_to_the_same_result(
    nursery: Nursery, folder: Path, asynchronous: bool
) -> None:
    """Each life dies a little later than the one before, so that all commits of a run are met."""
    sweep(nursery, folder, asynchronous, range(1, 400, 7))


@pytest.mark.soak
@COLOURS
def test_killed_around_every_single_commit_an_agent_comes_to_the_same_result(
    nursery: Nursery, folder: Path, asynchronous: bool
) -> None:
    sweep(nursery, folder, asynchronous, range(400))


def sweep(nursery: Nursery, folder: Path, asynchronous: bool, ticks: range) -> None:
    for tick in ticks:
        here = folder / str(tick)
        here.mkdir()
        job = job_in(here, asynchronous)
        end = nursery.run(msgspec.structs.replace(job, tick=tick))
        whole = end is not None
        end = end or nursery.run(job)
        assert end is not None
        assert end.value == RESULT, f"killed at commit {tick}\n{end.text}"
        check_end(job)
        if whole:
            assert tick > ticks.start, "no life was cut short"
            return
    pytest.fail(f"a run has more than {ticks.stop} commits; raise the limit")


@COLOURS
@pytest.mark.parametrize("seed", range(3))
def test_killed_ten_times_at_random_an_agent_comes_to_the_same_result(
    nursery: Nursery, folder: Path, seed: int, asynchronous: bool
) -> None:
    dice = random.Random(seed)
    job = job_in(folder, asynchronous)
    for _ in range(10):
        tick = dice.randrange(4, 40)
        end = nursery.run(msgspec.structs.replace(job, tick=tick))
        assert end is None or end.value == RESULT, end.text

    end = nursery.run(job)

    assert end is not None
    assert end.value == RESULT, end.text
    check_end(job)


@pytest.mark.soak
@COLOURS
@pytest.mark.parametrize("seed", range(20))
def test_killed_from_outside_at_any_moment_an_agent_comes_to_the_same_result(
    tmp_path: Path, seed: int, asynchronous: bool
) -> None:
    """Not at points of ours: another process sends the signal whenever it comes to it, once the
    agent has got a little further. On a real disk."""
    dice = random.Random(seed)
    job = job_in(tmp_path, asynchronous)
    deaths = 0
    while True:
        life = start(job)
        goal = len(read_effects(job.effects)) + dice.randrange(1, 6)
        deadline = time.monotonic() + 30
        while life.poll() is None and len(read_effects(job.effects)) < goal:
            assert time.monotonic() < deadline
            time.sleep(dice.random() * 0.002)
        time.sleep(dice.random() * 0.01)
        life.kill()
        if life.wait() != -signal.SIGKILL:
            break
        deaths += 1
    assert life.returncode == 0
    assert deaths > 0
    check_end(job)


def start(job: Job) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.crash.programs.alone",
        msgspec.json.encode(job).decode(),
    ]
    return subprocess.Popen(command, cwd=ROOT)


@COLOURS
def test_undisturbed_an_agent_comes_to_its_result(
    nursery: Nursery, folder: Path, asynchronous: bool
) -> None:
    job = job_in(folder, asynchronous)
    end = nursery.run(job)
    assert end is not None
    assert end.value == RESULT, end.text
    check_end(job)
