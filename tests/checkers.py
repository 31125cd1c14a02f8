"""What must hold for every run, whatever happened to it: functions over its journal, its row and
the log that the bodies of its steps wrote outside the store.

Each checker returns what is wrong, as text; `check_all` runs them all and fails on the first word.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import msgspec

import outlast
from outlast import events
from outlast.budgets import read_account
from outlast.cuts import UNDO
from outlast.journal import STORE, idempotency_key, to_run
from outlast.policy.budget import Account
from outlast.records import FINAL, RunRow, StoredEvent
from outlast.store import Store
from outlast.views import read_events, read_run
from outlast.worker.stores import get_store
from tests import control_checkers, guardrail_checkers
from tests.guardrail_checkers import Journal, StoreEvidence

ENDINGS = (
    events.StepCompleted,
    events.StepFailed,
    events.StepInterrupted,
    events.StepInDoubt,
    events.StepAbandoned,
)

DOUBTFUL = (events.StepInterrupted, events.StepInDoubt, events.StepAbandoned)
"""Endings after which a `once` step may still get its outcome, by reconcile or by an operator."""


# ---- the log outside


class Effect(msgspec.Struct, frozen=True):
    """One line of an effect log: a body came to its effect."""

    key: str
    attempt: int
    idempotency: str
    pid: int


def record_effect(path: str | Path) -> None:
    """Append what the running step stands for; on the disk when this returns."""
    here = outlast.current()
    assert here.step is not None
    assert here.attempt is not None
    effect = Effect(here.step, here.attempt, outlast.idempotency_key(), os.getpid())
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, msgspec.json.encode(effect) + b"\n")
        os.fsync(log)
    finally:
        os.close(log)


def read_effects(path: str | Path) -> list[Effect]:
    """The effects so far, oldest first."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Effect) for line in lines]


# ---- the evidence


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run.

    Attributes:
        account: what it may spend and has spent; None without a budget.
        below: the journals of its children, and theirs, who spend from the same account.
        store: what concerns the store as a whole.
        attempts: how many there may be, by the names of steps.
        estimates_hold: no attempt cost more than was set aside for it.
    """

    row: RunRow
    journal: Journal
    effects: Sequence[Effect]
    account: Account | None = None
    store: StoreEvidence = field(default_factory=StoreEvidence)
    attempts: Mapping[str, int] = field(default_factory=dict)
    estimates_hold: bool = False
    below: Sequence[Journal] = ()

    def by_step(self, *, dropped: bool = True) -> Iterator[tuple[str, list[events.Event]]]:
        """The events of each step without those that came too late to count. A step that an
        operator dropped is another one than that which is made again under its key.

        Args:
            dropped: count those too.
        """
        steps: dict[str, list[tuple[int, events.Event]]] = {}
        ended: list[tuple[str, list[tuple[int, events.Event]]]] = []
        for stored, event in self.journal:
            late = isinstance(event, events.StepLate)
            if isinstance(event, events.RunAccepted):
                for key, began in list(steps.items()):
                    if began[0][0] >= event.since:
                        ended.append((key, steps.pop(key)))
                    else:
                        steps[key] = [e for e in began if not _is_forgotten(*e, event.since)]
            elif stored.key is not None and stored.kind.startswith("step.") and not late:
                steps.setdefault(stored.key, []).append((stored.seq, event))
        for key, happened in [*(ended if dropped else ()), *steps.items()]:
            yield key, [event for _, event in happened]


def _is_forgotten(seq: int, event: events.Event, since: int) -> bool:
    """A cancellation behind a cut goes, even that of a call that stays."""
    return isinstance(event, events.StepAbandoned) and seq >= since


def gather_evidence(url: str, run_id: str, effects: str | Path | None) -> Evidence:
    store = get_store(url).store
    row = read_run(store, run_id)
    assert row is not None, f"no run {run_id}"
    # Evidence may be appended after a run's end, so the two reads may straddle a write.
    journal = [one for one in _journal(store, run_id) if one[0].seq <= row.seq]
    account = read_account(store, run_id)
    logged = [] if effects is None else read_effects(effects)
    below = [_journal(store, child.run_id) for child in _below(store, run_id)]
    return Evidence(row, journal, logged, account, _store_evidence(store), below=below)


def _below(store: Store, run_id: str) -> list[RunRow]:
    rows = [to_run(row) for row in store.read("list_runs", status=None, workflow=None, limit=-1)]
    return [row for row in rows if row.root == run_id]


def _journal(store: Store, run_id: str) -> list[tuple[StoredEvent, events.Event]]:
    return [(s, events.decode(s.kind, s.data)) for s in read_events(store, run_id)]


def _store_evidence(store: Store) -> StoreEvidence:
    journal = _journal(store, STORE)
    probes = {
        (event.run_id, event.step, event.attempt)
        for _, event in journal
        if isinstance(event, events.BreakerProbed)
    }
    endings: dict[tuple[str, str, int], list[tuple[float, str]]] = {}
    for run_id in {probe[0] for probe in probes}:
        for stored, event in _journal(store, run_id):
            if isinstance(event, ENDINGS):
                probe = (run_id, str(stored.key), event.attempt)
                endings.setdefault(probe, []).append((stored.at, stored.kind))
    return StoreEvidence(journal, endings)


def check_all(
    url: str,
    run_id: str,
    effects: str | Path | None = None,
    *,
    attempts: Mapping[str, int] | None = None,
    estimates_hold: bool = False,
) -> Evidence:
    """Run every checker over a run that nobody executes at the moment, and over what concerns the
    store as a whole.

    Args:
        attempts, estimates_hold: see `Evidence`.
    """
    seen = replace(
        gather_evidence(url, run_id, effects),
        attempts=attempts or {},
        estimates_hold=estimates_hold,
    )
    problems = [problem for check in CHECKERS for problem in check(seen)]
    for verdict in outlast.Client(url).verify(run_id):
        if not verdict.ok:
            problems.append(f"the chain is broken: {verdict.problem}")
    assert not problems, "\n".join([*problems, "", *journal_lines(seen)])
    return seen


def journal_lines(seen: Evidence) -> list[str]:
    """The journal for a reader of a failed test."""
    return [
        f"{s.seq:4} e{s.epoch} {s.kind} {s.key or ''} {s.data[:120].decode(errors='replace')}"
        for s, _ in seen.journal
    ]


# ---- the checkers


def completed_steps_do_not_run_again(seen: Evidence) -> Iterator[str]:
    for key, steps in seen.by_step():
        closed, asked = None, False
        for event in steps:
            # A body that outlived its attempt may still report what it spends. Who undoes a run
            # may find out what became of a step that had failed and had not told.
            asked |= isinstance(event, events.StepReconciled) and event.undoing
            may_follow = isinstance(event, events.StepAbandoned | events.StepCharged)
            told = asked and isinstance(event, events.StepReconciled | events.StepSettled)
            if closed is not None and not (may_follow or told):
                yield f"{key}: {event.kind} after its outcome {closed.kind}"
            # An operator may let a compensation be tried again that has failed.
            undoes = key.rpartition("#")[2].startswith(UNDO)
            if _is_outcome(event) and not (undoes and isinstance(event, events.StepFailed)):
                closed = event


def every_body_was_opened(seen: Evidence) -> Iterator[str]:
    """Each body that ran belongs to an attempt of its own in the journal, under one key."""
    opened: dict[tuple[str | None, int], list[str]] = {}
    for stored, event in seen.journal:
        if isinstance(event, events.StepStarted):
            known = idempotency_key(seen.row.uid, event.alias or str(stored.key), event.variant)
            opened.setdefault((stored.key, event.attempt), []).append(known)
    for (key, attempt), times in Counter((e.key, e.attempt) for e in seen.effects).items():
        if times > len(opened.get((key, attempt), [()])):
            yield f"{key}: the body of attempt {attempt} ran {times} times"
    for effect in seen.effects:
        expected = opened.get((effect.key, effect.attempt))
        if expected is None:
            yield f"{effect.key}: attempt {effect.attempt} ran and was never opened"
        elif effect.idempotency not in expected:
            yield f"{effect.key}: attempt {effect.attempt} ran under another idempotency key"
    variants = dict(_grouped((str(key), k) for (key, _), ks in opened.items() for k in ks))
    for key, keys in _grouped((e.key, e.idempotency) for e in seen.effects):
        if len(keys) > len(variants.get(key, " ")):
            yield f"{key}: ran under {len(keys)} idempotency keys"


def idempotency_keys_tell_calls_apart(seen: Evidence) -> Iterator[str]:
    """Of the calls that count each has a key of its own, and a key that was ever used stands for
    one set of arguments (as far as they are compared). Copies are never made under theirs."""
    arguments: dict[tuple[str, int], set[str]] = {}
    for stored, event in seen.journal:
        if isinstance(event, events.StepStarted) and stored.epoch > 0:
            mark = event.alias or str(stored.key), event.variant
            arguments.setdefault(mark, set()).add(event.digest)
    for (key, variant), digests in arguments.items():
        if len(digests - {""}) > 1:
            yield f"{key}, variant {variant}: one idempotency key for different arguments"
    users: dict[tuple[str, int], str] = {}
    for key, steps in seen.by_step(dropped=False):
        for event in steps:
            if isinstance(event, events.StepStarted):
                mark = event.alias or key, event.variant
                if users.setdefault(mark, key) != key:
                    yield f"{key} and {users[mark]} have one idempotency key"


def once_is_not_repeated_on_a_guess(seen: Evidence) -> Iterator[str]:
    for key, steps in seen.by_step():
        known = True  # whether the attempt before is known not to have taken effect
        for event in steps:
            match event:
                case events.StepStarted(effect="once"):
                    if not known:
                        yield f"{key}: attempt {event.attempt} opened though the last is in doubt"
                    known = False
                case events.StepFailed():
                    known = True
                case events.StepReconciled() if event.answer == "not-done":
                    known = True
                case events.StepSettled() if event.decision == "not-done":
                    known = True


def attempts_end_once(seen: Evidence) -> Iterator[str]:
    """Attempts are numbered 1, 2, ... and each ends in one way before the next one opens."""
    standing = list(seen.by_step(dropped=False))
    # A kill may end the process that would have told how its last attempt went, and who drops
    # something takes the run from a dead process; the next one notes what that had left open.
    of_run = [event for stored, event in seen.journal if stored.key is None]
    waits = bool(of_run) and isinstance(of_run[-1], events.RunAccepted)
    over = seen.row.owner is None and seen.row.status != "killed" and not waits
    for key, steps in seen.by_step():
        number, ending = 0, None
        opened = False
        for event in steps:
            if isinstance(event, events.StepStarted):
                if opened and ending is None:
                    yield f"{key}: attempt {event.attempt} opened while {number} was open"
                if event.attempt != number + 1:
                    yield f"{key}: attempt {event.attempt} follows attempt {number}"
                number, ending, opened = event.attempt, None, True
            elif isinstance(event, ENDINGS):
                if opened and event.attempt != number:
                    yield f"{key}: {event.kind} of attempt {event.attempt}, open was {number}"
                if ending is not None and not _may_follow(ending, event):
                    yield f"{key}: attempt {number} ended by {ending.kind}, then by {event.kind}"
                ending = event
            elif isinstance(event, events.StepSettled) and isinstance(ending, events.StepFailed):
                # Of a compensation that has failed an operator may say that it is done.
                ending = events.StepInDoubt(number, "settled")
        if opened and ending is None and over and (key, steps) in standing:
            yield f"{key}: attempt {number} has no ending though nobody executes the run"


def _may_follow(first: events.Event, second: events.Event) -> bool:
    if isinstance(second, events.StepAbandoned):  # the caller had left before it saw the outcome
        return not isinstance(first, events.StepAbandoned)
    # A doubt that reconcile resolves as not done becomes a failure, which may be retried.
    return isinstance(first, DOUBTFUL) and (
        _is_outcome(second)
        or (isinstance(first, events.StepInDoubt) and isinstance(second, events.StepFailed))
    )


def epochs_never_go_back(seen: Evidence) -> Iterator[str]:
    fenced = [(s, e) for s, e in seen.journal if not isinstance(e, events.StepLate)]
    for (before, _), (after, event) in pairwise(fenced):
        step = after.epoch - before.epoch
        if step < 0:
            yield f"event {after.seq} was written under the stale epoch {after.epoch}"
        # An operator who settles what a lost owner left puts an end to that owner's epoch.
        settles = isinstance(event, events.StepSettled | events.StepInterrupted)
        claims = isinstance(
            event,
            events.RunClaimed | events.RunResumed | events.RunAccepted | events.RunUndoing,
        )
        # A kill, and a supervisor that lets go of a run in place of its worker, do so as well.
        ends = isinstance(event, events.RunKilled | events.RunReleased)
        if step > 0 and not ((claims or settles or ends) and step == 1):
            yield f"event {after.seq} ({after.kind}) raised the epoch by {step}"
    if fenced and seen.row.epoch != fenced[-1][0].epoch:
        yield f"the run is at epoch {seen.row.epoch}, its journal at {fenced[-1][0].epoch}"


def projection_fits_the_journal(seen: Evidence) -> Iterator[str]:
    row, last = seen.row, seen.journal[-1][0]
    if (row.seq, row.head) != (last.seq, last.hash):
        yield f"the run says its journal ends at {row.seq}, it ends at {last.seq}"
    allowed: tuple[str, ...] = ("queued",)
    for stored, event in seen.journal:
        match event:
            case events.RunClaimed():
                allowed = ("running", "waiting")
            case events.RunAccepted():
                allowed = ("queued",)
            case events.RunReleased():  # which leaves a pause as it is
                allowed = allowed if allowed == ("held",) else ("queued", "waiting")
            case events.RunResumed():
                allowed = ("queued", "running")
            case events.RunRevived():
                allowed = ("queued",)
            case events.RunUndoing():
                allowed = ("queued", "running")
            case events.RunUndone():
                allowed = (*FINAL, "held")
            case events.RunHeld() | events.RunCompleted() | events.RunFailed() | events.RunKilled():
                allowed = (stored.kind.removeprefix("run."),)
            case events.StepSettled():
                allowed = (*allowed, "queued")
    if row.status not in allowed:
        yield f"the run is {row.status}, its journal says {' or '.join(allowed)}"
    if row.status in (*FINAL, "held", "queued") and row.owner is not None:
        yield f"the run is {row.status} and still has an owner"


def turns_are_saved_once_and_in_order(seen: Evidence) -> Iterator[str]:
    last: dict[str | None, list[tuple[int, int]]] = {}
    for stored, event in seen.journal:
        if isinstance(event, events.RunAccepted):
            last = {k: [one for one in s if one[0] < event.since] for k, s in last.items()}
        elif isinstance(event, events.TurnSaved):
            saved = last.setdefault(stored.key, [])
            before = saved[-1][1] if saved else 0
            if event.turn != before + 1:
                yield f"{stored.key}: turn {event.turn} was saved after turn {before}"
            saved.append((stored.seq, event.turn))


CHECKERS = (
    completed_steps_do_not_run_again,
    every_body_was_opened,
    idempotency_keys_tell_calls_apart,
    once_is_not_repeated_on_a_guess,
    attempts_end_once,
    epochs_never_go_back,
    projection_fits_the_journal,
    turns_are_saved_once_and_in_order,
    *control_checkers.CHECKERS,
    guardrail_checkers.attempts_stay_below_their_limit,
    guardrail_checkers.account_is_the_fold_of_its_journal,
    guardrail_checkers.limits_hold,
    guardrail_checkers.breakers_keep_their_rules,
    guardrail_checkers.the_store_has_one_chain,
    guardrail_checkers.refused_calls_open_nothing,
)


def _is_outcome(event: events.Event) -> bool:
    return isinstance(event, events.StepCompleted) or (
        isinstance(event, events.StepFailed) and event.final
    )


def _grouped(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, set[str]]]:
    groups: dict[str, set[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, set()).add(value)
    yield from groups.items()
