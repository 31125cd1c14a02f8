"""Appending to a run's journal: the hash chain, the fence, and the owner's writes.

There are three ways to write (design, section 5.2). *Owner* writes carry an epoch and are refused
once another process has claimed the run. *Commands* (control.py) depend on the run's status.
*Evidence* is appended whatever the state; it is never replayed as such, but can settle a doubt.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast.emergency import check_allowed
from outlast.errors import LostRun, OutlastError, StoreError
from outlast.events import (
    Event,
    RunAccepted,
    RunCreated,
    StepStarted,
    TurnSaved,
    escape_surrogates,
)
from outlast.records import FINAL, Identity, RunRow, Source, Status, StoredEvent
from outlast.store.base import Row, Tx

GENESIS = b"\0" * 32
"""Head of a journal that has no event yet."""

STORE = "@store"
"""In place of a run's id in the events that concern the store as a whole. No run has this id."""

ACTIVE: frozenset[str] = frozenset({"running", "waiting"})


class Entry(Struct, frozen=True):
    """One event to append; `key` names the step, timer or turn loop it belongs to."""

    event: Event
    key: str | None = None


def idempotency_key(uid: str, key: str, variant: int = 0) -> str:
    """The same for all attempts of one step of one run, other for any other: 32 hex digits of
    SHA-256 over the run's uid, the step's key or alias, and the variant, if it has one (for these
    see `StepStarted`)."""
    name = f"{uid}\n{key}\n{variant}" if variant else f"{uid}\n{key}"
    return hashlib.sha256(name.encode()).hexdigest()[:32]


class Along(Protocol):
    """Something that is written in the same transaction as events of a run."""

    def check(self, tx: Tx) -> None:
        """Raise an OutlastError to refuse the whole write. Nothing is written yet."""
        ...

    def apply(self, tx: Tx) -> None:
        """Write, behind the events. May be called again after a rollback, as `check` may be."""
        ...


class Lease(Struct, frozen=True):
    """Until when an owner may write: by the wall clock for other hosts, by the boot clock here."""

    wall: float
    boot: float


class RunMoved(OutlastError):
    """An owner's write was refused since somebody changed the run's status meanwhile.

    Attributes:
        status: what the run is now.
    """

    def __init__(self, run_id: str, status: Status) -> None:
        super().__init__(run_id, status)
        self.run_id = run_id
        self.status: Status = status


def link(
    previous: bytes,
    run_id: str,
    seq: int,
    kind: str,
    key: str | None,
    at: float,
    epoch: int,
    data: bytes,
) -> bytes:
    """Hash of one event: SHA-256 over the hash before it, its columns as JSON, and its data."""
    columns = msgspec.json.encode((run_id, seq, kind, key, at, epoch))
    return hashlib.sha256(b"\n".join((previous, columns, data))).digest()


def first_altered(events: Sequence[StoredEvent]) -> StoredEvent | None:
    """The first of a run's events, given in order, that is not what was once written.

    Of events that do not begin with the run's first one, the first is taken as it is.
    """
    previous = GENESIS if events and events[0].seq == 1 else None
    for e in events:
        if previous is not None and e.hash != relink(previous, e):
            return e
        previous = e.hash
    return None


def relink(previous: bytes, event: StoredEvent) -> bytes:
    """The hash that an event should have."""
    e = event
    return link(previous, e.run_id, e.seq, e.kind, e.key, e.at, e.epoch, e.data)


class Tail(Struct, frozen=True):
    """Where a run's journal ends, and what decides whether its owner may write.

    Attributes:
        seq: number of the last event; 0 before the first.
        head: its hash.
        loop: the turn loop that the run stands in.
    """

    seq: int
    head: bytes
    epoch: int
    status: Status
    loop: str | None


def tail_of(tx: Tx, run_id: str) -> Tail | None:
    """The end of a run's journal; None if there is no such run."""
    known = tx.memo.get(run_id)
    if known is None:
        rows = tx.run("fence", run_id=run_id)
        if not rows:
            return None
        known = tx.memo[run_id] = Tail(*rows[0])  # type: ignore[arg-type]  # STRICT tables
    return cast(Tail, known)


def extend(tx: Tx, run_id: str, epoch: int, at: float, entries: Sequence[Entry]) -> int:
    """Append `entries` to the journal of a run that exists.

    Returns the sequence number of the last one. The caller has checked the fence.
    """
    tail = tail_of(tx, run_id)
    assert tail is not None
    seq, head, loop = tail.seq, tail.head, tail.loop
    loops = set()
    for entry in entries:
        seq += 1
        kind, key, data = entry.event.kind, entry.key, entry.event.encode()
        head = link(head, run_id, seq, kind, key, at, epoch, data)
        tx.append((run_id, seq, kind, key, data, at, epoch, head))
        if key is not None or kind == RunAccepted.kind:
            # What befalls the run as a whole is always read; and an operator's decision changes
            # what earlier events say, so that all of those are to be read too.
            loops.add(_loop_of(key or "", kind))
    if loops:
        loop = loops.pop() if len(loops) == 1 else None
    if loop != tail.loop:
        tx.run("set_loop", run_id=run_id, loop=loop, since=tail.seq + 1)
    tx.memo[run_id] = Tail(seq, head, tail.epoch, tail.status, loop)
    return seq


def extend_store(tx: Tx, at: float, entries: Sequence[Entry]) -> None:
    """Append events that concern the store as a whole, in a chain of their own."""
    known = tx.memo.get(STORE)
    if known is None:
        rows = tx.run("store_tail", run_id=STORE)
        known = rows[0] if rows else (0, GENESIS)
    seq, head = cast(tuple[int, bytes], known)
    for entry in entries:
        seq += 1
        kind, key, data = entry.event.kind, entry.key, entry.event.encode()
        head = link(head, STORE, seq, kind, key, at, 0, data)
        tx.append((STORE, seq, kind, key, data, at, 0, head))
    tx.run("seal_store", seq=seq, head=head)
    tx.memo[STORE] = (seq, head)


def copy(tx: Tx, run_id: str, rows: Sequence[StoredEvent]) -> None:
    """Append events of another run behind the first one of a new run, in the new run's chain. They
    keep their own times."""
    tail = tail_of(tx, run_id)
    assert tail is not None
    seq, head, loop, since = tail.seq, tail.head, None, 0
    for row in rows:
        seq += 1
        head = link(head, run_id, seq, row.kind, row.key, row.at, 0, row.data)
        tx.append((run_id, seq, row.kind, row.key, row.data, row.at, 0, head))
        if row.key is not None and (now := _loop_of(row.key, row.kind)) != loop:
            loop, since = now, seq
    if loop is not None:
        tx.run("set_loop", run_id=run_id, loop=loop, since=since)
    tx.memo.pop(run_id, None)


_TURN = re.compile(r"\.t\d+\.")


def _loop_of(key: str, kind: str) -> str | None:
    """Position of the turn loop whose state an event is, or in one of whose turns it happened."""
    if ".t" in key:
        position = key.rpartition("#")[2]
        turn = _TURN.search(position)
        if turn is not None:  # of the outermost loop, whose state stands for all in it
            return position[: turn.start()]
    return key.rpartition("#")[2] if kind == TurnSaved.kind else None


class Becomes(Struct, frozen=True):
    """What the run's status becomes with an owner's write."""

    status: Status
    reason: str | None = None
    detail: str | None = None
    due_at: float | None = None


class OwnerWrite(Struct, frozen=True):
    """An append by the holder of `epoch`.

    Attributes:
        mode: `open` starts something, so the run must be active; `record` tells what has ended,
            which is also allowed once an operator has paused the run.
        becomes: the new status, or None to leave it.
        standing: what the status should be as things are, asked in the transaction itself: commits
            may come in another order than the changes that they tell of.
        lease: renewed in the same transaction, if given.
        release: the owner lets go of the run.
        along: what is written with it, or refuses it.
    """

    run_id: str
    epoch: int
    at: float
    entries: tuple[Entry, ...]
    mode: Literal["open", "record"]
    becomes: Becomes | None = None
    lease: Lease | None = None
    release: bool = False
    standing: Callable[[], Becomes] | None = None
    along: tuple[Along, ...] = ()

    def apply(self, tx: Tx) -> int:
        """Append; returns the last sequence number.

        Raises:
            LostRun: another process has claimed the run.
            RunMoved: the run's status does not allow this write.
            StoreStopped: it would open something, and the emergency stop is in force.
            OutlastError: see `Along.check`.
        """
        tail = tail_of(tx, self.run_id)
        if tail is None:
            raise LostRun(self.run_id, f"run {self.run_id} is no longer in the store")
        if tail.status == "killed":  # which has raised the epoch, and is the better word for it
            raise RunMoved(self.run_id, tail.status)
        if tail.epoch != self.epoch:
            raise LostRun(
                self.run_id,
                f"run {self.run_id} was taken over by another process (epoch {tail.epoch}, ours "
                f"was {self.epoch}); this process writes nothing more to it",
            )
        moved = tail.status not in ACTIVE
        ends = self.becomes is not None and self.becomes.status in FINAL
        if moved and (self.mode == "open" or ends or tail.status != "held"):
            raise RunMoved(self.run_id, tail.status)
        if self.mode == "open":
            check_allowed(tx)
        for item in self.along:
            item.check(tx)
        last = extend(tx, self.run_id, self.epoch, self.at, self.entries)
        for item in self.along:
            item.apply(tx)
        if any(_must_not_vanish(entry.event) for entry in self.entries):
            check_seal(tx, self.run_id)
            tx.run("seal", run_id=self.run_id)
        if self.lease is not None:
            put_lease(tx, self.run_id, self.epoch, self.lease)
        if not moved:
            self._put_status(tx, tail.status)
        if self.release:
            put_owner(tx, self.run_id, self.epoch, None, None)
        return last

    def _put_status(self, tx: Tx, before: Status) -> None:
        becomes = self.becomes
        if becomes is None and self.standing is not None:
            becomes = self.standing()
            if becomes.status == before == "running":
                return
        if becomes is not None:
            put_status(tx, self.run_id, becomes)
            if becomes.status == "waiting":
                tx.run("wake_if_news", run_id=self.run_id, at=self.at)


def _must_not_vanish(event: Event) -> bool:
    """A `once` step that was opened would be opened again, if the end of the journal were lost."""
    return isinstance(event, StepStarted) and event.effect == "once"


class Evidence(Struct, frozen=True):
    """Something worth keeping that came too late to count. Unfenced; never replayed as such, but it
    can settle a doubt."""

    run_id: str
    epoch: int
    at: float
    entries: tuple[Entry, ...]

    def apply(self, tx: Tx) -> int:
        if tail_of(tx, self.run_id) is None:
            raise LostRun(self.run_id, f"run {self.run_id} is no longer in the store")
        return extend(tx, self.run_id, self.epoch, self.at, self.entries)


def row_differs(row: RunRow, args: bytes, created: RunCreated) -> bool:
    """Whether a run's row says something else than the event that created it. Idempotency keys
    follow from the uid, and the workflow is called with these arguments."""
    said = (created.uid, created.workflow, created.digest, created.trace_id, bytes(created.args))
    return said != (row.uid, row.workflow, row.digest, row.trace_id, args)


def put_status(tx: Tx, run_id: str, becomes: Becomes) -> None:
    """Set a run's status, behind the event that explains it and in the same transaction.

    Raises:
        StoreError: see `check_seal`.
    """
    check_seal(tx, run_id)
    tail = tail_of(tx, run_id)
    assert tail is not None
    tx.run(
        "set_status",
        run_id=run_id,
        status=becomes.status,
        reason=becomes.reason,
        detail=None if becomes.detail is None else escape_surrogates(becomes.detail),
        due_at=becomes.due_at,
        seq=tail.seq,
        head=tail.head,
    )
    tx.memo[run_id] = replace(tail, status=becomes.status)


def check_seal(tx: Tx, run_id: str) -> None:
    """What the run's row names must stand in its journal still, before the row names a later event.
    So nobody goes on with a journal whose end was cut off, and nothing hides that it was.

    Raises:
        StoreError: it does not.
    """
    for (seq,) in tx.run("find_broken_seal", run_id=run_id):
        raise StoreError(
            f"the journal of run {run_id} was cut off or changed: event {seq!r}, which the run's "
            "row names, is not in it. Nothing was run or overwritten; see: outlast verify "
            f"{run_id}. Bring back the store from a copy, then: outlast resume {run_id}",
            "damaged",
        )


def put_lease(tx: Tx, run_id: str, epoch: int, lease: Lease) -> bool:
    """Renew the lease of a run's owner; False if it has none of that epoch any more."""
    wall, boot = lease.wall, lease.boot
    return bool(tx.run("renew_lease", run_id=run_id, epoch=epoch, lease_wall=wall, lease_boot=boot))


def put_owner(tx: Tx, run_id: str, epoch: int, owner: Identity | None, lease: Lease | None) -> None:
    """Set who holds a run under which epoch, inside the transaction of the event for it."""
    tx.run(
        "set_owner",
        run_id=run_id,
        epoch=epoch,
        owner=None if owner is None else msgspec.json.encode(owner).decode(),
        lease_wall=None if lease is None else lease.wall,
        lease_boot=None if lease is None else lease.boot,
    )
    tail = tx.memo.pop(run_id, None)
    if tail is not None and owner is not None:  # nobody asks about a run that was let go of
        tx.memo[run_id] = replace(cast(Tail, tail), epoch=epoch)


def to_run(row: Row) -> RunRow:
    """A row of `runs` as a record.

    Raises:
        StoreError: it was altered so that it cannot be read.
    """
    try:
        return _to_run(row)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise StoreError(
            f"the row of run {cast(str, row[0])} cannot be read: it was altered ({problem}); the "
            "journal may still be intact, see: outlast verify",
            "damaged",
        ) from problem


def _to_run(row: Row) -> RunRow:
    fields: dict[str, object] = dict(zip(RunRow.__dataclass_fields__, row, strict=True))
    source, owner = fields["source"], fields["owner"]
    fields["source"] = None if source is None else msgspec.json.decode(str(source), type=Source)
    fields["owner"] = None if owner is None else msgspec.json.decode(str(owner), type=Identity)
    fields["tags"] = msgspec.json.decode(str(fields["tags"]), type=dict[str, str])
    return msgspec.convert(fields, RunRow)


def to_event(row: Row) -> StoredEvent:
    """A row of `events` as a record."""
    return StoredEvent(*row)  # type: ignore[arg-type]  # STRICT tables hold these very types
