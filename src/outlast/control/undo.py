"""Asking for a run to be undone."""

import difflib
from collections.abc import Set
from typing import Literal

from msgspec import Struct

from outlast import cuts
from outlast.control.kill import Kill
from outlast.control.rows import row_of
from outlast.emergency import announce
from outlast.errors import UsageError
from outlast.events import ChildStarted, RunUndoing, RunUndone, StepStarted, decode
from outlast.journal import Becomes, Entry, extend, put_owner, put_status, to_event
from outlast.leases import is_abandoned
from outlast.records import FINAL, RunRow, StoredEvent
from outlast.store.base import Tx
from outlast.verification import intact_journal
from outlast.world import World


class BeginUndo(Struct, frozen=True):
    """Lets what a run has done be undone: it is `queued`, and whoever takes it runs compensations
    in place of the workflow.

    Attributes:
        to: key of the step down to which, and with which, it is undone; all of it if empty.
        own_claims: see `leases.is_abandoned`.
    """

    run_id: str
    at: float
    world: World
    own_claims: Set[str] = frozenset()
    to: str = ""
    by: str = ""

    def apply(self, tx: Tx) -> RunRow:
        """Ask for it; returns the run as it is then.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it goes on or is still executed, or has no step `to`.
            StoreError: see `intact_journal`.
        """
        row = row_of(tx, self.run_id)
        self._check_idle(row)
        if self.to:
            _check_step(row, self.to, intact_journal(tx, row))
        _begin(tx, row, self.at, self.to, self.by)
        return row_of(tx, self.run_id)

    def _check_idle(self, row: RunRow) -> None:
        run_id = row.run_id
        if row.status == "queued" and row.reason == "undoing":
            raise UsageError(f"run {run_id} is to be undone already; see: outlast resume {run_id}")
        if row.status in ("queued", "running", "waiting"):
            raise UsageError(
                f"run {run_id} is {row.status} and would go on; first: outlast pause {run_id}, or "
                f"outlast kill {run_id}"
            )
        _check_left(row, self.world, self.own_claims)


class UndoChild(Struct, frozen=True):
    """Lets what a child has done be undone, along with an event of its parent, who is undone. One
    that has not ended is killed. Where that has begun already, or is done, nothing is written.

    Attributes:
        own_claims: see `leases.is_abandoned`.
    """

    run_id: str
    at: float
    world: World
    own_claims: Set[str] = frozenset()
    by: str = ""

    def check(self, tx: Tx) -> None:
        """See `journal.Along.check`.

        Raises:
            UnknownRun: there is no such run.
            UsageError: a process has not let go of it.
        """
        row = row_of(tx, self.run_id)
        if _is_wanted(tx, row):
            _check_left(row, self.world, self.own_claims)

    def apply(self, tx: Tx) -> None:
        """See `journal.Along.apply`."""
        row = row_of(tx, self.run_id)
        if not _is_wanted(tx, row):
            return
        if row.status not in FINAL:
            why = "its parent is undone"
            Kill(self.run_id, self.at, self.world, self.own_claims, self.by, why).apply(tx)
            row = row_of(tx, self.run_id)
        _begin(tx, row, self.at, "", self.by)


class CheckUndone(Struct, frozen=True):
    """Refuses an event of a parent unless all is undone that its child has done."""

    run_id: str

    def check(self, tx: Tx) -> None:
        """See `journal.Along.check`.

        Raises:
            UsageError: it is not.
        """
        if not _is_undone(tx, self.run_id):
            row = row_of(tx, self.run_id)
            raise UsageError(f"it is {row.status}, and that was not brought to its end")

    def apply(self, tx: Tx) -> None:
        """There is nothing to write."""


def _begin(tx: Tx, row: RunRow, at: float, to: str, by: str) -> None:
    after: Literal["failed", "killed"] = "killed" if row.status == "killed" else "failed"
    epoch = row.epoch
    if row.owner is not None:
        epoch += 1
        put_owner(tx, row.run_id, epoch, None, None)
    extend(tx, row.run_id, epoch, at, [Entry(RunUndoing(to, after, by))])
    put_status(tx, row.run_id, Becomes("queued", "undoing"))
    announce(tx, row.run_id, at)


def _is_wanted(tx: Tx, row: RunRow) -> bool:
    """Whether the undoing of a child is to be asked for: it was not, or somebody has killed it in
    the middle of that."""
    asked, done = _last(tx, row.run_id, RunUndoing.kind), _last(tx, row.run_id, RunUndone.kind)
    if _seq(asked) > _seq(done) and row.status not in FINAL:
        return False
    return not _is_undone(tx, row.run_id)


def _is_undone(tx: Tx, run_id: str) -> bool:
    """Whether all is undone that a run has done."""
    asked, done = _last(tx, run_id, RunUndoing.kind), _last(tx, run_id, RunUndone.kind)
    if asked is None or done is None:
        return done is not None
    undoing = decode(asked.kind, asked.data)
    assert isinstance(undoing, RunUndoing)
    return done.seq > asked.seq and not undoing.to


def _last(tx: Tx, run_id: str, kind: str) -> StoredEvent | None:
    return next(map(to_event, tx.run("read_last_of_kind", run_id=run_id, kind=kind)), None)


def _seq(event: StoredEvent | None) -> int:
    return 0 if event is None else event.seq


def _check_left(row: RunRow, world: World, own_claims: Set[str]) -> None:
    """Nothing of it may be executed any more."""
    owner = row.owner
    if owner is None:
        return
    gone = is_abandoned(row, world, own_claims)
    if row.status == "killed":  # a lease that is over does not say that its process has ended
        here = owner.pid == world.identity().pid
        gone = world.liveness(owner) == "dead" or (gone and here)
    if not gone:
        raise UsageError(
            f"run {row.run_id} is {row.status}, and process {owner.pid} on {owner.host} has not "
            "let go of it; undo it once that has ended"
        )


def _check_step(row: RunRow, step: str, journal: list[StoredEvent]) -> None:
    kept, _ = cuts.split(journal)
    calls = (e.key or "" for e in kept if e.kind in (StepStarted.kind, ChildStarted.kind))
    known = list(dict.fromkeys(calls))
    if step not in known:
        near = ", ".join(difflib.get_close_matches(step, known, n=5, cutoff=0.0)) or "none"
        raise UsageError(
            f"run {row.run_id} has no step {step!r}; the nearest are: {near}; for all of them: "
            f"outlast show {row.run_id}"
        )
