"""What the events of a step add up to for people."""

from decimal import Decimal

import pytest

from outlast.events import (
    NOTHING,
    ErrorRecord,
    Event,
    StepAbandoned,
    StepCharged,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepInterrupted,
    StepReconciled,
    StepRefused,
    StepSettled,
    StepStarted,
)
from outlast.records import Effect, StepView, StoredEvent, Usage
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


def test_a_refusal_is_no_attempt_and_says_for_which_breaker_the_step_waits() -> None:
    waits = seen((10, StepRefused("bank", 40.0, "it broke", retry_at=40.0)), alive=True)
    assert (waits.attempts, waits.refusals) == (0, 1)
    assert (waits.status, waits.breaker, waits.retry_at) == ("running", "bank", 40.0)
    assert waits.error == "breaker bank is open: it broke"
    told = seen((10, StepRefused("bank", 40.0, error=REFUSED)))
    assert (told.status, told.ended, told.retry_at) == ("failed", 10, None)
    assert (told.error, told.fault) == ("breaker bank is open", "refused")
    called = seen(
        (10, StepRefused("bank", 40.0, "it broke", retry_at=40.0)),
        (40, started()),
        (41, StepCompleted(NOTHING)),
    )
    assert (called.refusals, called.attempts, called.status) == (1, 1, "completed")
    assert (called.breaker, called.retry_at, called.error) == ("", None, None)


def test_a_step_that_waits_for_its_next_attempt_says_why_and_until_when() -> None:
    error = ErrorRecord("ConnectionError", "refused", "transient", reason="no connection")
    failed = StepFailed(1, error, final=False, retry_at=60.0, inner="openai")
    waits = seen((10, started()), (12, failed))
    assert (waits.retry_at, waits.breaker, waits.inner) == (60.0, "", "openai")
    assert (waits.fault, waits.fault_reason) == ("transient", "no connection")
    again = seen((10, started()), (12, failed), (60, started(2)), alive=True)
    assert (again.retry_at, again.status, again.inner) == (None, "running", "openai")
    over = seen((10, started()), (12, StepFailed(1, error, final=True, retry_at=60.0)))
    assert (over.retry_at, over.status) == (None, "failed")
    dropped = seen((10, started()), (12, failed), (13, StepAbandoned(1)))
    assert (dropped.retry_at, dropped.status) == (None, "abandoned")


def test_what_its_attempts_have_cost_is_added_up_and_unknown_stays_unknown() -> None:
    tenth = Usage(Decimal("0.1"), 10)
    paid = seen(
        (10, started()),
        (11, StepCharged(1, tenth)),  # reported while it ran, and part of what is settled
        (12, StepCharged(1, tenth, settled=True)),
        (13, StepCharged(2, tenth, settled=True)),
    )
    assert paid.cost == Usage(Decimal("0.2"), 20)
    unknown = seen(
        (10, started()),
        (12, StepCharged(1, tenth, settled=True)),
        (13, StepCharged(2, Usage(None, 5), "no price", settled=True)),
    )
    assert unknown.cost == Usage(None, 15)
    assert seen((10, started())).cost is None
