"""Kill: the end of a run, from outside, in one transaction; and taking it back.

The transaction sets the status and raises the epoch. So whatever executes the run can neither open
an attempt nor record anything as done from then on, whether it hears of the kill or not.
"""

from collections.abc import Set
from typing import Literal, cast

from msgspec import Struct, structs

from outlast.control.rows import row_of, row_or_rest
from outlast.emergency import announce
from outlast.errors import UsageError
from outlast.events import RunKilled, RunRevived, RunStopped, RunUndone, escape_surrogates
from outlast.journal import Becomes, Entry, Lease, extend, put_owner, put_status, tail_of
from outlast.leases import is_abandoned, live_below
from outlast.records import FINAL, RunRow, Status
from outlast.store.base import Tx
from outlast.world import World

GRACE = 5.0
"""Seconds that what executes a killed run gets to end by itself."""


class Ending(Struct, frozen=True):
    """What a kill came to, as the store has it.

    Attributes:
        row: the run as it is now. Its `owner` is the process that may still execute something of
            it, or None.
        was: its status before. If that was final, the kill has changed nothing.
        below: the same for its children, and theirs.
        orphaned: the process that executed it had died, so what its steps have started may be left.
        damage: what is wrong with its record, in words; `unread`: also with what its row says of
            its owner, so that nobody can tell who executes it.
    """

    row: RunRow
    was: Status
    below: tuple["Ending", ...] = ()
    orphaned: bool = False
    damage: str = ""
    unread: bool = False

    @property
    def done(self) -> bool:
        """Whether it was killed now, rather than had ended before."""
        return self.was not in FINAL

    @property
    def all(self) -> "tuple[Ending, ...]":
        """This one and all those below."""
        return (self, *self.below)


class Kill(Struct, frozen=True):
    """Ends a run for good, with its children, whatever it does.

    Attributes:
        grace: seconds that what executes it gets to end by itself.
        parent: the run that it is killed with.
        own_claims: see `leases.is_abandoned`.
    """

    run_id: str
    at: float
    world: World
    own_claims: Set[str] = frozenset()
    by: str = ""
    why: str = ""
    grace: float = GRACE
    parent: str = ""

    def apply(self, tx: Tx) -> Ending:
        """Kill it, unless it has ended. Also if its record is damaged: nothing of it is to open,
        whatever was done to its journal and its row, and the damage stays to be seen.

        Raises:
            UnknownRun: there is no such run.
            StoreError: nothing of its row can be read.
        """
        top = self._end(tx)
        parent = self.parent or self.run_id
        below = live_below(tx, self.run_id)
        endings = (structs.replace(self, run_id=one, parent=parent)._end(tx) for one in below)
        return structs.replace(top, below=tuple(endings))

    def _end(self, tx: Tx) -> Ending:
        tail = tail_of(tx, self.run_id)
        if tail is None:
            row_of(tx, self.run_id)
            raise AssertionError("a run that is not there has a row")
        event = RunKilled(self.by, self.why, self.grace, self.parent)
        if not tail.seq:  # all of its journal is gone, and no row is read without one
            extend(tx, self.run_id, tail.epoch + 1, self.at, [Entry(event)])
        row, unread = row_or_rest(tx, self.run_id)
        if row.status in FINAL:
            return Ending(row, row.status)
        epoch = row.epoch + 1
        if tail.seq:
            extend(tx, row.run_id, epoch, self.at, [Entry(event)])
        damage = unread or self._broken_seal(tx)
        if damage:
            detail = None if not self.why else escape_surrogates(self.why)
            tx.run("kill_damaged", run_id=row.run_id, detail=detail, epoch=epoch)
        else:
            put_status(tx, row.run_id, Becomes("killed", detail=self.why or None))
        gone = row.owner is None or self._is_gone(row)
        if not unread:  # the owner stays in the row until nothing of the run is executed there
            lease = Lease(row.lease_wall or 0.0, row.lease_boot or 0.0)
            put_owner(tx, row.run_id, epoch, None if gone else row.owner, None if gone else lease)
        tx.memo.pop(row.run_id, None)
        announce(tx, row.run_id, self.at, above=not self.parent)
        orphaned = gone and row.owner is not None
        now, _ = row_or_rest(tx, self.run_id)
        return Ending(now, row.status, (), orphaned, damage, bool(unread))

    def _broken_seal(self, tx: Tx) -> str:
        """What is wrong with the end of the journal, in words."""
        for (seq,) in tx.run("find_broken_seal", run_id=self.run_id):
            return (
                f"the journal of run {self.run_id} was cut off or changed: event {seq!r}, which "
                f"the run's row names, is not in it; see: outlast verify {self.run_id}"
            )
        return ""

    def _is_gone(self, row: RunRow) -> bool:
        """Whether the owner's process has certainly ended: a lease that is over does not say so."""
        assert row.owner is not None
        return self.world.liveness(row.owner) == "dead" or (
            is_abandoned(row, self.world, self.own_claims)
            and row.owner.pid == self.world.identity().pid
        )


class KillSeveral(Struct, frozen=True):
    """Kills runs in one transaction, in this order."""

    kills: tuple[Kill, ...]

    def apply(self, tx: Tx) -> list[Ending]:
        """Kill each, unless it has ended. Raises as `Kill` does, and then nothing is written."""
        return [kill.apply(tx) for kill in self.kills]


class NoteStopped(Struct, frozen=True):
    """Evidence that nothing of a killed run is executed any more, apart from `survivors`.

    Attributes:
        nonce: of the claim under which it was executed; empty if nobody had it any more. Of another
            one nothing is noted.
    """

    run_id: str
    nonce: str
    at: float
    by: Literal["owner", "supervisor", "operator"]
    ended: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()

    def apply(self, tx: Tx) -> bool:
        """Note it; whether this was news."""
        row = row_of(tx, self.run_id)
        nonce = "" if row.owner is None else row.owner.nonce
        if row.status != "killed" or nonce != self.nonce:
            return False
        ((_, killed_at),) = cast(
            list[tuple[float, float]], tx.run("read_grace", run_id=self.run_id)
        )
        took = max(0.0, self.at - killed_at)
        event = RunStopped(self.by, round(took, 3), [*self.ended], [*self.survivors])
        extend(tx, row.run_id, row.epoch, self.at, [Entry(event)])
        if not self.survivors:
            put_owner(tx, row.run_id, row.epoch, None, None)
        return True


class Revive(Struct, frozen=True):
    """Takes a kill back, and that of the children that were killed with the run.

    Attributes:
        parent: the run that it is revived with.
    """

    run_id: str
    at: float
    world: World
    by: str = ""
    parent: str = ""

    def apply(self, tx: Tx) -> RunRow:
        """Make it `queued`; returns the run as it is then.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it was not killed, or something of it is still executed.
        """
        self._take_back(tx)
        top = self.parent or self.run_id
        revived = [self.run_id]
        while revived:
            rows = tx.run("children_of", parent=revived.pop())
            for child, status in cast(list[tuple[str, Status]], rows):
                if status == "killed" and _killed_with(tx, child, top):
                    structs.replace(self, run_id=child, parent=top)._take_back(tx)
                    revived.append(child)
        return row_of(tx, self.run_id)

    def _take_back(self, tx: Tx) -> None:
        row = row_of(tx, self.run_id)
        if row.status != "killed":
            raise UsageError(f"run {row.run_id} is {row.status}; only a killed run is revived")
        if row.owner is not None and not _has_let_go(row, self.world):
            raise UsageError(
                f"run {row.run_id} was killed, and process {row.owner.pid} on {row.owner.host} has "
                f"not let go of it; end that first: outlast kill {row.run_id} --hard"
            )
        if tx.run("read_last_of_kind", run_id=row.run_id, kind=RunUndone.kind):
            raise UsageError(
                f"run {row.run_id} was undone, so it cannot go on with what it had done; start a "
                "new run"
            )
        event = RunRevived(self.by, self.parent)
        extend(tx, row.run_id, row.epoch, self.at, [Entry(event)])
        put_status(tx, row.run_id, Becomes("queued", "revived"))
        put_owner(tx, row.run_id, row.epoch, None, None)
        announce(tx, row.run_id, self.at, above=not self.parent)


def _has_let_go(row: RunRow, world: World) -> bool:
    """Whether the owner of a killed run is gone, as far as that can be told from here: of a process
    on another machine only that its lease is over, which nobody renews after a kill."""
    assert row.owner is not None
    seen = world.liveness(row.owner)
    return seen == "dead" or (seen == "foreign" and is_abandoned(row, world))


def _killed_with(tx: Tx, run_id: str, top: str) -> bool:
    return bool(tx.run("killed_with", run_id=run_id, parent=top))
