"""Whether a journal is what was once written: for who asks, and before it is decided about."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from outlast import events
from outlast.errors import StoreError
from outlast.journal import (
    GENESIS,
    check_seal,
    first_altered,
    relink,
    row_differs,
    to_event,
    to_run,
)
from outlast.records import FINAL, RunRow, StoredEvent
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
    """What `verify` found in one run's journal.

    Attributes:
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
    """`verify_run` for every run, newest first; a row that cannot be read is a finding too."""
    verdicts = []
    for raw in store.read("list_runs", status=None, workflow=None, limit=-1):
        try:
            row = to_run(raw)
        except StoreError as problem:
            verdicts.append(Verdict(str(raw[0]), False, 0, "", str(problem)))
        else:
            verdicts.append(verify_run(store, row))
    return verdicts


def verify_run(store: Store, row: RunRow, head: bytes | None = None) -> Verdict:
    """Recompute a run's hash chain and compare it with what is stored.

    Args:
        row: the run's row. Its journal is read afterwards, so newer events may follow.
        head: a hash kept elsewhere that the chain must contain.
    """
    previous, expected = GENESIS, 1
    found = head is None
    ((sealed_seq, sealed_head),) = store.read("read_seal", run_id=row.run_id)
    sealed = sealed_head is None
    journal = read_events(store, row.run_id)
    for event in journal:
        if event.seq != expected:
            return _broken(row, expected, previous, f"event {expected} is missing")
        own = relink(previous, event)
        if own != event.hash:
            return _broken(row, event.seq, previous, f"event {event.seq} was altered")
        found = found or own == head
        if event.seq == sealed_seq:
            sealed = own == sealed_head
        previous, expected = own, expected + 1
    problem = _row_problem(store, row, journal)
    if sealed and problem:
        return _broken(row, expected, previous, problem)
    if not sealed:
        said = f"event {sealed_seq!r} is not the one that the run's row names"
        return _broken(row, expected, previous, said)
    if not found:
        return _broken(row, expected, previous, "the given head hash is not in this journal")
    return Verdict(row.run_id, True, expected - 1, previous.hex())


ENDS = {"run.completed": "completed", "run.failed": "failed", "run.killed": "killed"}
"""The events that end a run, and the status that each one gives it."""


def _row_problem(store: Store, row: RunRow, journal: Sequence[StoredEvent]) -> str | None:
    """How the row contradicts the journal, on which it must depend alone."""
    created = decode_stored(journal[0]) if journal else None
    if not isinstance(created, events.RunCreated):
        return "the journal does not begin with run.created"
    args = cast(bytes, store.read("read_args", run_id=row.run_id)[0][0])
    if row_differs(row, args, created):
        return "the run's row was altered: it differs from what run.created says"
    ends = [ENDS[event.kind] for event in journal if event.kind in ENDS and event.seq <= row.seq]
    if (ends[-1] if ends else None) != (row.status if row.status in FINAL else None):
        return f"the run's row was altered: it says {row.status}, the journal does not"
    return None


def _broken(row: RunRow, seq: int, head: bytes, problem: str) -> Verdict:
    return Verdict(row.run_id, False, seq - 1, head.hex(), problem, seq)
