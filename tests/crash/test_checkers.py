"""A checker that cannot find anything proves nothing: each one is shown a journal that is wrong."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest
from msgspec import Raw, structs

from outlast import events
from outlast.events import NOTHING, ErrorRecord, Event
from outlast.journal import GENESIS, STORE, idempotency_key, link
from outlast.policy.breaker import Breaker
from outlast.policy.budget import Account, Limits
from outlast.policy.budget.account import Open
from outlast.records import Effect as Kind
from outlast.records import Identity, RunRow, StoredEvent, Usage
from tests import checkers, control_checkers, guardrail_checkers
from tests.checkers import Effect, Evidence
from tests.guardrail_checkers import StoreEvidence

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
KILLED = events.RunKilled()
STOPPED = events.RunStopped("owner")
PAUSED = events.RunHeld("paused", "")


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
    [
        *(CLAIMED, started(1), (KILLED, 2), (events.StepLate(1), 1), (STOPPED, 2)),
        *((events.RunRevived(), 2), (CLAIMED, 3), (INTERRUPTED, 3), (started(2), 3)),
        *((events.StepCompleted(NOTHING, 2), 3), (ENDED, 3)),
    ],
    [
        *(CLAIMED, started(1), PAUSED, COMPLETED, events.RunReleased("paused")),
        *(events.RunResumed(), (CLAIMED, 2), (ENDED, 2)),
    ],
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
    (control_checkers.the_end_is_the_end, [ENDED, started(1)]),
    (control_checkers.the_end_is_the_end, [ENDED, events.RunFailed(ERROR)]),
    (control_checkers.the_end_is_the_end, [KILLED, COMPLETED]),
    (control_checkers.the_end_is_the_end, [KILLED, events.RunRevived(), ENDED, CLAIMED]),
    (control_checkers.a_stop_is_confirmed_after_a_kill, [CLAIMED, STOPPED]),
    (control_checkers.a_stop_is_confirmed_after_a_kill, [KILLED, events.RunRevived(), STOPPED]),
    (control_checkers.nothing_begins_while_held, [CLAIMED, PAUSED, started(1)]),
    (control_checkers.nothing_begins_while_held, [CLAIMED, PAUSED, events.TurnSaved(1, {})]),
    (control_checkers.a_pause_is_lifted_by_a_person, [PAUSED, CLAIMED]),
]


@pytest.mark.parametrize(("check", "journal"), WRONG, ids=[check.__name__ for check, _ in WRONG])
def test_what_is_wrong_is_found(check: Check, journal: list[Event]) -> None:
    assert list(check(evidence(journal)))


@pytest.mark.parametrize(("first", "found"), [(1, 1), (2, 0)])
def test_what_begins_under_an_emergency_stop_is_found(first: int, found: int) -> None:
    seen = evidence([CLAIMED, started(1), COMPLETED, started(2)])
    problems = list(control_checkers.nothing_begins_between(seen, first, 3))
    assert len(problems) == found


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


# ---- attempts, budgets and breakers


REFUSED = events.StepRefused("tool", 1.0, error=ERROR)
WAITS = events.StepRefused("tool", 1.0, retry_at=2.0)
BUDGETED = events.RunBudgeted(declared=Raw(b"{}"))
CENT = Usage(Decimal("0.01"), 5)
SPENT = Account(Limits(), settled=CENT, calls=2, steps=1)


def charged(cost: Usage, *, settled: bool = True) -> Event:
    return events.StepCharged(1, cost, settled=settled)


def with_account(
    journal: Sequence[Event | tuple[Event, int]], account: Account | None
) -> list[str]:
    seen = replace(evidence(journal), account=account, estimates_hold=True)
    return [
        *guardrail_checkers.account_is_the_fold_of_its_journal(seen),
        *guardrail_checkers.limits_hold(seen),
    ]


PAID: list[Event] = [
    BUDGETED,
    CLAIMED,
    started(1),
    charged(CENT, settled=False),
    charged(CENT),
    failed(1),
    started(2),
    COMPLETED,
]


def test_an_account_that_tells_what_its_journal_tells_passes() -> None:
    assert with_account(PAID, structs.replace(SPENT, declared=Limits(Decimal("0.01"), 5))) == []
    assert with_account([CLAIMED, started(1), COMPLETED], None) == []
    # An operator gave it one beside a process, which learns of that with its next claim.
    topped_up = events.RunBudgeted(added=Raw(b"{}"))
    assert with_account([CLAIMED, started(1), topped_up, started(2)], Account(Limits())) == []


@pytest.mark.parametrize(
    "account",
    [
        None,
        structs.replace(SPENT, settled=Usage(Decimal("0.02"), 5)),
        structs.replace(SPENT, settled=Usage(Decimal("0.01"), 0)),
        structs.replace(SPENT, calls=1),
        structs.replace(SPENT, steps=2),
        structs.replace(SPENT, turns=1),
        structs.replace(SPENT, open={"run\npay#0\n2": Open("pay")}),
        structs.replace(SPENT, declared=Limits(calls=1)),
        structs.replace(SPENT, declared=Limits(usd=Decimal("0.009"))),
        structs.replace(SPENT, declared=Limits(usd=Decimal(1), tokens=4)),
    ],
    ids=[
        "no account",
        "dollars",
        "tokens",
        "calls",
        "steps",
        "turns",
        "open",
        "too many calls",
        "too dear",
        "too many tokens",
    ],
)
def test_an_account_that_does_not_fit_is_found(account: Account | None) -> None:
    if account is not None and account.declared == Limits():
        account = structs.replace(account, declared=Limits(Decimal(1), 100))
    assert with_account(PAID, account)


def test_too_many_attempts_are_found() -> None:
    journal = [started(1), failed(1), started(2), failed(2), started(3), failed(3, final=True)]
    check = guardrail_checkers.attempts_stay_below_their_limit
    assert list(check(replace(evidence(journal), attempts={"pay": 3}))) == []
    assert list(check(replace(evidence(journal), attempts={"pay": 2})))
    died = [started(1), INTERRUPTED, started(2), failed(2), started(3), failed(3, final=True)]
    assert list(check(replace(evidence(died), attempts={"pay": 3}))) == []
    assert list(check(replace(evidence(died), attempts={"pay": 2})))


@pytest.mark.parametrize(
    "journal", [[REFUSED, started(1)], [events.StepRefused("tool", 1.0)]], ids=["goes on", "ends?"]
)
def test_a_refusal_that_refuses_nothing_is_found(journal: list[Event]) -> None:
    assert list(guardrail_checkers.refused_calls_open_nothing(evidence(journal)))
    fine = evidence([WAITS, REFUSED])
    assert list(guardrail_checkers.refused_calls_open_nothing(fine)) == []


def of_store(*happened: Event) -> StoreEvidence:
    """The store's journal about one breaker, an event a second."""
    journal, head = [], GENESIS
    for seq, event in enumerate(happened, start=1):
        row = (STORE, seq, event.kind, "tool", float(seq), 0, event.encode())
        head = link(head, *row)
        stored = StoredEvent(STORE, seq, event.kind, "tool", row[6], row[4], 0, head)
        journal.append((stored, event))
    return StoreEvidence(journal)


def probed(key: str) -> Event:
    return events.BreakerProbed("run", key, 1)


OPENED = events.BreakerOpened(0.0, 1)
CLOSED = events.BreakerClosed()
TWO = events.BreakerDeclared(Raw(msgspec.json.encode(Breaker("tool", probes=2))), "tool")


def of_breaker(store: StoreEvidence, **endings: list[tuple[float, str]]) -> list[str]:
    store = replace(store, endings={("run", key, 1): ends for key, ends in endings.items()})
    seen = replace(evidence([CLAIMED, ENDED]), store=store)
    return [
        *guardrail_checkers.breakers_keep_their_rules(seen),
        *guardrail_checkers.the_store_has_one_chain(seen),
    ]


def test_breakers_that_keep_their_rules_pass() -> None:
    assert of_breaker(of_store(OPENED, probed("a"), OPENED, probed("b"), CLOSED, OPENED)) == []
    one_after_the_other = of_store(OPENED, probed("a"), probed("b"), CLOSED)
    assert of_breaker(one_after_the_other, a=[(2.5, "step.failed")]) == []
    assert of_breaker(one_after_the_other, a=[(9.0, "step.interrupted")]) == []
    two = of_store(TWO, OPENED, probed("a"), probed("b"), CLOSED)
    assert of_breaker(two, a=[(5.0, "step.completed")], b=[(5.0, "step.completed")]) == []
    assert of_breaker(of_store(events.BreakerTripped(9.0), events.BreakerReset(), OPENED)) == []


@pytest.mark.parametrize(
    "store",
    [
        of_store(OPENED, OPENED),
        of_store(OPENED, CLOSED),
        of_store(events.BreakerTripped(9.0), OPENED),
        of_store(CLOSED),
        of_store(probed("a")),
        of_store(OPENED, probed("a"), CLOSED, probed("b")),
        of_store(OPENED, probed("a"), probed("b"), CLOSED),
        of_store(TWO, OPENED, probed("a"), probed("b"), probed("c")),
    ],
    ids=[
        "a late failure opens it again",
        "nobody tried",
        "opened beside an operator",
        "closed twice",
        "a probe of a closed one",
        "a probe after the end",
        "two at a time",
        "three at a time",
    ],
)
def test_breakers_that_break_their_rules_are_found(store: StoreEvidence) -> None:
    late = [(9.0, "step.completed")]
    assert of_breaker(store, a=late, b=late, c=late)


def test_a_gap_or_a_change_in_the_stores_journal_is_found() -> None:
    (first, one), (second, two) = of_store(OPENED, events.BreakerReset()).journal
    assert of_breaker(StoreEvidence([(second, two)]))
    altered = structs.replace(second, data=b'{"by":"somebody else"}')
    assert of_breaker(StoreEvidence([(first, one), (altered, two)]))
