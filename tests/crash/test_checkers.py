"""A checker that cannot find anything proves nothing: each one is shown a journal that is wrong."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from outlast import events
from outlast.events import NOTHING, ErrorRecord, Event
from outlast.journal import idempotency_key
from outlast.records import Effect as Kind
from outlast.records import Identity, RunRow, StoredEvent
from tests import checkers
from tests.checkers import Effect, Evidence

Check = Callable[[Evidence], Iterator[str]]

KEY = "pay#0"
IDEMPOTENCY = idempotency_key("uid", KEY)
ERROR = ErrorRecord("OSError", "no", "transient")
OWNER = Identity("host", "boot", "ns", 1, 1, "nonce")

ROW = RunRow(
    run_id="run",
    uid="uid",
    workflow="desk",
    source=None,
    digest="",
    status="completed",
    reason=None,
    detail=None,
    tags={},
    trace_id="",
    created_at=0.0,
    updated_at=0.0,
    due_at=None,
    seq=0,
    head=b"",
    epoch=1,
    owner=None,
    lease_wall=None,
    lease_boot=None,
)


def started(attempt: int, effect: Kind = "read") -> Event:
    return events.StepStarted(attempt, effect)


def failed(attempt: int, final: bool = False) -> Event:
    return events.StepFailed(attempt, ERROR, final)


CLAIMED = events.RunClaimed(OWNER)
COMPLETED = events.StepCompleted(NOTHING)
INTERRUPTED = events.StepInterrupted(1, crash=True)
ENDED = events.RunCompleted(NOTHING)


def evidence(
    journal: Sequence[Event | tuple[Event, int]],
    effects: Sequence[Effect] = (),
    row: RunRow = ROW,
) -> Evidence:
    """A journal of one step; an event with a number stands under that epoch."""
    rows = []
    for seq, item in enumerate(journal, start=1):
        event, epoch = item if isinstance(item, tuple) else (item, 1)
        key = None if event.kind.startswith("run.") else KEY
        stored = StoredEvent("run", seq, event.kind, key, b"", 0.0, epoch, bytes([seq]))
        rows.append((stored, event))
    if rows:
        row = replace(row, seq=rows[-1][0].seq, head=rows[-1][0].hash)
    return Evidence(row, rows, effects)


RIGHT = [
    [CLAIMED, started(1), COMPLETED, ENDED],
    [CLAIMED, started(1), INTERRUPTED, started(2), events.StepCompleted(NOTHING, 2), ENDED],
    [CLAIMED, started(1), failed(1), started(2), failed(2, final=True), ENDED],
    [
        CLAIMED,
        started(1, "once"),
        INTERRUPTED,
        events.StepReconciled("not-done"),
        started(2, "once"),
        events.StepInDoubt(2, "why"),
        events.StepReconciled("done"),
        events.StepCompleted(NOTHING, 2),
        ENDED,
    ],
    [CLAIMED, (events.RunClaimed(OWNER), 2), (events.StepLate(1), 1), (ENDED, 2)],
    [CLAIMED, events.TurnSaved(1, {}), events.TurnSaved(2, {}), ENDED, events.StepLate(1)],
]


@pytest.mark.parametrize("journal", RIGHT, ids=range(len(RIGHT)))
def test_what_is_right_passes(journal: list[Event]) -> None:
    epoch = max(item[1] if isinstance(item, tuple) else 1 for item in journal)
    seen = evidence(journal, row=replace(ROW, epoch=epoch))
    assert [problem for check in checkers.CHECKERS for problem in check(seen)] == []


WRONG = [
    (checkers.completed_steps_do_not_run_again, [started(1), COMPLETED, started(2)]),
    (checkers.completed_steps_do_not_run_again, [started(1), failed(1, final=True), started(2)]),
    (
        checkers.once_is_not_repeated_on_a_guess,
        [started(1, "once"), INTERRUPTED, started(2, "once")],
    ),
    (
        checkers.once_is_not_repeated_on_a_guess,
        [started(1, "once"), INTERRUPTED, events.StepReconciled("unknown"), started(2, "once")],
    ),
    (checkers.attempts_end_once, [started(1), INTERRUPTED, INTERRUPTED]),
    (checkers.attempts_end_once, [started(1), started(2)]),
    (checkers.attempts_end_once, [started(1), INTERRUPTED, started(3)]),
    (checkers.attempts_end_once, [started(1), events.StepCompleted(NOTHING, 2)]),
    (checkers.attempts_end_once, [started(1), events.StepAbandoned(0)]),
    (checkers.attempts_end_once, [started(1)]),
    (checkers.epochs_never_go_back, [(CLAIMED, 2), (COMPLETED, 1)]),
    (checkers.epochs_never_go_back, [(CLAIMED, 1), (COMPLETED, 2)]),
    (checkers.projection_fits_the_journal, [CLAIMED]),
    (checkers.projection_fits_the_journal, [CLAIMED, events.RunHeld("paused", "")]),
    (checkers.turns_are_saved_once_and_in_order, 2 * [events.TurnSaved(1, {})]),
    (checkers.turns_are_saved_once_and_in_order, [events.TurnSaved(2, {})]),
    (checkers.the_end_is_the_end, [ENDED, started(1)]),
]


@pytest.mark.parametrize(("check", "journal"), WRONG, ids=[check.__name__ for check, _ in WRONG])
def test_what_is_wrong_is_found(check: Check, journal: list[Event]) -> None:
    assert list(check(evidence(journal)))


@pytest.mark.parametrize(
    "effects",
    [
        [Effect(KEY, 1, IDEMPOTENCY, 1), Effect(KEY, 1, IDEMPOTENCY, 2)],
        [Effect(KEY, 2, IDEMPOTENCY, 1)],
        [Effect(KEY, 1, "other", 1)],
    ],
    ids=["twice", "not opened", "another key"],
)
def test_a_body_that_should_not_have_run_is_found(effects: list[Effect]) -> None:
    seen = evidence([started(1), COMPLETED], effects)
    assert list(checkers.every_body_was_opened(seen))


@pytest.mark.parametrize(
    "row", [replace(ROW, seq=7), replace(ROW, owner=OWNER)], ids=["another end", "owned"]
)
def test_a_row_that_does_not_fit_is_found(row: RunRow) -> None:
    seen = evidence([CLAIMED, ENDED])
    assert list(checkers.projection_fits_the_journal(replace(seen, row=row)))
