"""What the events of a step add up to for people."""

import pytest

from outlast.events import (
    NOTHING,
    ErrorRecord,
    Event,
    StepAbandoned,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepInterrupted,
    StepReconciled,
    StepSettled,
    StepStarted,
)
from outlast.records import Effect, StepView, StoredEvent
from outlast.views import steps_of

REFUSED = ErrorRecord("ConnectionError", "refused", "transient")


def started(attempt: int = 1, effect: Effect = "read") -> StepStarted:
    return StepStarted(attempt, effect)


def seen(*events: tuple[float, Event], alive: bool = False, now: float | None = None) -> StepView:
    """The view of the one step to which these events happened, each at a time."""
    rows = [
        StoredEvent("r", seq, event.kind, "pay#0", event.encode(), at, 1, b"")
        for seq, (at, event) in enumerate(events, 1)
    ]
    (step,) = steps_of(rows, "uid", alive=alive, now=now)
    return step


def test_a_step_worked_in_its_attempts_and_not_between_them() -> None:
    step = seen(
        (10, started()),
        (12, StepFailed(1, REFUSED, final=False, retry_at=60)),
        (60, started(2)),
        (63, StepCompleted(NOTHING, 2)),
    )
    assert (step.worked, step.unmeasured) == (5, 0)
    assert (step.started, step.ended) == (10, 63)


def test_how_long_a_dead_attempt_took_is_not_known() -> None:
    noticed = seen(
        (10, started()),
        (900, StepInterrupted(1, crash=True)),
        (901, started(2)),
        (903, StepCompleted(NOTHING, 2)),
    )
    assert (noticed.worked, noticed.unmeasured) == (2, 1)
    not_yet = seen((10, started()))
    assert (not_yet.worked, not_yet.unmeasured) == (0, 1)


def test_an_orderly_release_tells_how_long_the_attempt_took() -> None:
    step = seen((10, started()), (14, StepInterrupted(1, crash=False)))
    assert (step.worked, step.unmeasured) == (4, 0)


def test_an_attempt_that_runs_has_worked_until_now() -> None:
    step = seen((10, started()), alive=True, now=17)
    assert (step.worked, step.unmeasured) == (7, 0)


def test_a_hold_and_its_settlement_take_no_work() -> None:
    step = seen(
        (10, started(effect="once")),
        (11, StepInDoubt(1, "it raised")),
        (500, StepSettled("done", by="ann")),
        (600, StepCompleted(NOTHING)),
    )
    assert step.worked == 1
    assert (step.status, step.reconciled) == ("completed", "settled done by ann")


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ((), "its process ended while it ran"),
        ((StepInterrupted(1, crash=True),), "its process ended while it ran"),
        ((StepAbandoned(1),), "the workflow cancelled it"),
    ],
    ids=["killed", "killed and noticed", "cancelled"],
)
def test_a_doubt_says_what_happened(ends: tuple[Event, ...], why: str) -> None:
    step = seen((10, started(effect="once")), *((12.0, event) for event in ends))
    assert (step.status, step.error) == ("in-doubt", why)


def test_a_doubt_that_is_over_leaves_no_error_behind() -> None:
    step = seen(
        (10, started(effect="once")),
        (12, StepInterrupted(1, crash=True)),
        (13, StepReconciled("not-done")),
        (14, started(2, effect="once")),
        alive=True,
    )
    assert (step.status, step.error, step.reconciled) == ("running", None, "not-done")
