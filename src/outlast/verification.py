"""Whether a journal is what was once written: for who asks, and before it is decided about."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import cast

from outlast import events
from outlast.amounts import NOTHING, ZERO, in_words, total
from outlast.budgets import read_account
from outlast.errors import StoreError
from outlast.journal import (
    GENESIS,
    STORE,
    check_seal,
    first_altered,
    relink,
    row_differs,
    to_event,
    to_run,
)
from outlast.records import FINAL, RunRow, Status, StoredEvent, Usage
from outlast.store.base import Tx
from outlast.store.writer import Store
from outlast.views import decode_stored, read_events


def intact_journal(tx: Tx, row: RunRow) -> list[StoredEvent]:
    """All events of a run, oldest first, for a command that decides by what they say: it must not
    build on an altered one, nor copy that into a new journal where nothing shows it.

    Raises:
        StoreError: something in it or in the run's row is not what was once written.
    """
    check_seal(tx, row.run_id)
    journal = [to_event(event) for event in tx.run("read_events", run_id=row.run_id)]
    altered = first_altered(journal)
    if altered is not None:
        what = altered.kind if altered.key is None else f"{altered.kind} of {altered.key}"
        raise _damaged(row, f"event {altered.seq} ({what}) is not as it was written")
    created = decode_stored(journal[0]) if journal else None
    args = cast(bytes, tx.run("read_args", run_id=row.run_id)[0][0])
    if not isinstance(created, events.RunCreated):
        raise _damaged(row, "event 1 (run.created) is missing")
    if row_differs(row, args, created):
        raise _damaged(row, "its row differs from what event 1 (run.created) says")
    return journal


def _damaged(row: RunRow, what: str) -> StoreError:
    return StoreError(
        f"run {row.run_id} cannot be decided about: {what}; the store's file is damaged, or "
        f"somebody changed it. Nothing was written; see: outlast verify {row.run_id}. Bring back "
        "the store from a copy",
        "damaged",
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` found in one run's journal, or in that of the store as a whole.

    Attributes:
        run_id: the run, or `@store`.
        ok: the chain is intact, and ends where the run says it does.
        events: how many events were checked.
        head: hash of the last intact event, in hexadecimal.
        problem: what is wrong; None if all is well.
        seq: the first event that was altered or is missing.
    """

    run_id: str
    ok: bool
    events: int
    head: str
    problem: str | None = None
    seq: int | None = None


def verify_all(store: Store) -> list[Verdict]:
    """`verify_run` for every run, newest first; a row that cannot be read is a finding too. Behind
    them `verify_store`, if something concerned the store as a whole."""
    verdicts = []
    for raw in store.read("list_runs", status=None, workflow=None, limit=-1):
        try:
            row = to_run(raw)
        except StoreError as problem:
            verdicts.append(Verdict(str(raw[0]), False, 0, "", str(problem)))
        else:
            verdicts.append(verify_run(store, row))
    whole = verify_store(store)
    return verdicts if whole.ok and not whole.events else [*verdicts, whole]


def verify_run(store: Store, row: RunRow, head: bytes | None = None) -> Verdict:
    """Recompute a run's hash chain and compare it with what is stored.

    Args:
        row: the run's row. Its journal is read afterwards, so newer events may follow.
        head: a hash kept elsewhere that the chain must contain.
    """
    ((sealed_seq, sealed_head),) = store.read("read_seal", run_id=row.run_id)
    journal = read_events(store, row.run_id)
    verdict = _verify_chain(row.run_id, journal)
    if not verdict.ok:
        return verdict
    problem = _row_problem(store, row, journal)
    sealed = sealed_head is None or any(
        event.seq == sealed_seq and event.hash == sealed_head for event in journal
    )
    if problem is None:
        problem = _account_problem(store, row, journal)
    if not sealed:
        problem = f"event {sealed_seq!r} is not the one that the run's row names"
    return _with_head(verdict if problem is None else _wrong(verdict, problem), journal, head)


def verify_store(store: Store, head: bytes | None = None) -> Verdict:
    """Recompute the hash chain of what concerned the store as a whole.

    Args:
        head: a hash kept elsewhere that the chain must contain.
    """
    seals = store.read("read_store_seal")
    journal = read_events(store, STORE)
    verdict = _verify_chain(STORE, journal)
    for seq, sealed in seals:
        if verdict.ok and not any(e.seq == seq and e.hash == sealed for e in journal):
            verdict = _wrong(verdict, f"its end was cut off: event {seq!r} was the last one")
    return _with_head(verdict, journal, head)


def _verify_chain(run_id: str, journal: Sequence[StoredEvent]) -> Verdict:
    """Whether each event is what it was when the next one was appended."""
    previous, expected = GENESIS, 1
    for event in journal:
        own = relink(previous, event)
        if event.seq != expected or own != event.hash:
            what = "is missing" if event.seq != expected else "was altered"
            said = f"event {expected} {what}"
            return Verdict(run_id, False, expected - 1, previous.hex(), said, expected)
        previous, expected = own, expected + 1
    return Verdict(run_id, True, expected - 1, previous.hex())


def _with_head(verdict: Verdict, journal: Sequence[StoredEvent], head: bytes | None) -> Verdict:
    if not verdict.ok or head is None or any(event.hash == head for event in journal):
        return verdict
    return _wrong(verdict, "the given head hash is not in this journal")


def _wrong(verdict: Verdict, problem: str) -> Verdict:
    """Its chain is intact, and does not fit what else is known."""
    return replace(verdict, ok=False, problem=problem, seq=verdict.events + 1)


def _account_problem(store: Store, row: RunRow, journal: Sequence[StoredEvent]) -> str | None:
    """How the run's account contradicts its journal and those of its children, which tell of all
    that was spent."""
    account = read_account(store, row.run_id)
    told = [NOTHING]
    budgeted = False
    # All children, and theirs, spend from the account of the run at the top.
    below = [read_events(store, str(run_id)) for (run_id,) in store.read("family", root=row.run_id)]
    for stored in chain(journal, *below):
        if stored.epoch == 0 and stored.kind != events.RunBudgeted.kind:
            continue  # what a fork has copied cost it nothing
        event = decode_stored(stored)
        budgeted |= isinstance(event, events.RunBudgeted)
        if isinstance(event, events.StepCharged) and event.settled:
            told.append(Usage(event.cost.usd or ZERO, event.cost.tokens or 0))
        elif isinstance(event, events.RunBudgeted) and event.charged is not None:
            told.append(Usage(event.charged.usd or ZERO, event.charged.tokens or 0))
    if account is None:
        return "its budget is gone from the store" if budgeted else None
    spent = total((*told, *(entry.charged for entry in account.open.values())))
    if spent != Usage(account.spent_usd, account.spent_tokens):
        return (
            f"its budget was altered: it says that {in_words(account.spent_usd)} USD and "
            f"{account.spent_tokens} tokens are spent, the journal says "
            f"{in_words(spent.usd or ZERO)} USD and {spent.tokens} tokens"
        )
    return None


ENDS: dict[str, Status] = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.killed": "killed",
}
"""The events that end a run, and the status that each one gives it."""


def _row_problem(store: Store, row: RunRow, journal: Sequence[StoredEvent]) -> str | None:
    """How the row contradicts the journal, on which it must depend alone."""
    created = decode_stored(journal[0]) if journal else None
    if not isinstance(created, events.RunCreated):
        return "the journal does not begin with run.created"
    args = cast(bytes, store.read("read_args", run_id=row.run_id)[0][0])
    if row_differs(row, args, created):
        return "the run's row was altered: it differs from what run.created says"
    end = _end_of(event for event in journal if event.seq <= row.seq)
    if end != (row.status if row.status in FINAL else None):
        return f"the run's row was altered: it says {row.status}, the journal does not"
    return None


def _end_of(journal: Iterable[StoredEvent]) -> Status | None:
    """The status in which a run has ended, by its journal; None if it goes on."""
    end: Status | None = None
    asked: events.RunUndoing | None = None
    for stored in journal:
        if stored.kind in ENDS:
            end = ENDS[stored.kind]
        elif stored.kind == events.RunRevived.kind:
            end = None
        elif stored.kind == events.RunUndoing.kind:
            end, asked = None, cast(events.RunUndoing, decode_stored(stored))
        elif stored.kind == events.RunUndone.kind and asked is not None:
            end = asked.after
    return end
