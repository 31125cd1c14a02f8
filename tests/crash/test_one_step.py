"""A process dies at every named point around one step; another goes on to the one right end."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from outlast import Client, Done, NotDone, StepView
from tests.checkers import check_all
from tests.crash.nursery import Nursery
from tests.crash.points import WRITES, Point
from tests.crash.programs.job import Job
from tests.crash.programs.one_step import FLAVOURS, RESULT

OPENING = [Point(at, "step.started", "target") for at in WRITES]
BODY = [Point("body", name="target"), Point("effect", name="target")]
COMPLETION = [Point(at, "step.completed", "target") for at in WRITES]
POINTS = [*OPENING, *BODY, *COMPLETION]

NEVER_OPENED = OPENING[:3]
COMPLETED = COMPLETION[3:]
TOOK_EFFECT = [BODY[1], *COMPLETION]

COLOURS = pytest.mark.parametrize(
    "asynchronous", [pytest.param(False, id="plain"), pytest.param(True, id="async")]
)


@dataclass(frozen=True)
class Expected:
    """What the point of death says about the life that follows."""

    effects: int
    attempts: int


def expected(flavour: str, point: Point) -> Expected:
    if point in NEVER_OPENED or point in COMPLETED:
        return Expected(effects=1, attempts=1)
    if not flavour.startswith("once"):
        return Expected(effects=2 if point in TOOK_EFFECT else 1, attempts=2)
    return Expected(effects=1, attempts=1 if point in TOOK_EFFECT else 2)


@COLOURS
@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("flavour", [f for f in FLAVOURS if f not in ("once", "once, unknown")])
def test_killed_at_any_point_a_step_comes_to_the_undisturbed_result(
    nursery: Nursery, folder: Path, flavour: str, point: Point, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), flavour, asynchronous)
    assert nursery.run(msgspec.structs.replace(job, point=point)) is None

    end = nursery.run(job)

    assert end is not None
    assert end.value == RESULT, end.text
    check_as_expected(job, expected(flavour, point))
    step = target_of(job)
    twice = flavour == "undeclared" and step.attempts == 2
    assert step.repeated is twice  # "may have happened twice"


@COLOURS
@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("flavour", ["once", "once, unknown"])
def test_a_once_step_in_doubt_waits_for_a_person_and_is_not_repeated(
    nursery: Nursery, folder: Path, flavour: str, point: Point, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), flavour, asynchronous)
    assert nursery.run(msgspec.structs.replace(job, point=point)) is None

    end = nursery.run(job)

    assert end is not None
    if point not in NEVER_OPENED + COMPLETED:
        assert (end.ended, end.reason) == ("RunHeld", "in-doubt"), end.text
        check_as_expected(job, Expected(effects=point in TOOK_EFFECT, attempts=1))
        assert target_of(job).status == "in-doubt"
        happened = point in TOOK_EFFECT
        Client(job.url).settle("run", "target#1", Done("target 2") if happened else NotDone())
        end = nursery.run(job)
        assert end is not None
    assert end.value == RESULT, end.text
    check_as_expected(job, expected(flavour, point))


@COLOURS
def test_killed_while_it_reconciles_a_run_asks_again(
    nursery: Nursery, folder: Path, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), "once, reconciled", asynchronous)
    points = [
        Point("effect", name="target"),
        Point("reconcile", name="target"),
        *(Point(at, "step.reconciled", "target") for at in WRITES[:3]),
    ]
    for point in points:
        assert nursery.run(msgspec.structs.replace(job, point=point, max_crashes=99)) is None

    end = nursery.run(msgspec.structs.replace(job, max_crashes=99))

    assert end is not None
    assert end.value == RESULT, end.text
    check_as_expected(job, Expected(effects=1, attempts=1))


OTHER_WRITES = [
    Point(at, kind) for kind in ("run.created", "run.claimed", "run.completed") for at in WRITES
]


@COLOURS
@pytest.mark.parametrize("point", OTHER_WRITES, ids=str)
def test_killed_at_its_beginning_or_end_a_run_runs_each_step_once(
    nursery: Nursery, folder: Path, point: Point, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), "once", asynchronous)
    assert nursery.run(msgspec.structs.replace(job, point=point)) is None

    end = nursery.run(job)

    assert end is not None
    assert end.value == RESULT, end.text
    check_as_expected(job, Expected(effects=1, attempts=1))


@COLOURS
@pytest.mark.parametrize("kind", ["run.claimed", "step.interrupted"])
def test_killed_in_the_takeover_a_run_counts_the_interruption_once(
    nursery: Nursery, folder: Path, kind: str, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), "read", asynchronous)
    first = Point("effect", name="target")
    assert nursery.run(msgspec.structs.replace(job, point=first)) is None
    for at in WRITES:
        again = msgspec.structs.replace(job, point=Point(at, kind), max_crashes=99)
        assert nursery.run(again) is None

    end = nursery.run(msgspec.structs.replace(job, max_crashes=99))

    assert end is not None
    assert end.value == RESULT, end.text
    seen = check_as_expected(job, Expected(effects=2, attempts=2))
    assert seen["step.interrupted"] == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
@COLOURS
def test_undisturbed_every_step_runs_once(
    nursery: Nursery, folder: Path, flavour: str, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), flavour, asynchronous)
    end = nursery.run(job)
    assert end is not None
    assert end.value == RESULT, end.text
    check_as_expected(job, Expected(effects=1, attempts=1))


def check_as_expected(job: Job, expected: Expected) -> Counter[str]:
    """Run the checkers and count what the target did. Returns the kinds of events."""
    seen = check_all(job.url, "run", job.effects)
    effects = Counter(effect.key for effect in seen.effects)
    assert effects["target#1"] == expected.effects
    assert effects["first#0"] <= 1
    assert effects["last#2"] <= 1
    assert target_of(job).attempts == expected.attempts
    return Counter(stored.kind for stored, _ in seen.journal)


def target_of(job: Job) -> StepView:
    (step,) = (s for s in Client(job.url).run("run").steps if s.name == "target")
    return step
