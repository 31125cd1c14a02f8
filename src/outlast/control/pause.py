"""Pause and resume: a run is held once the step under way has ended, and let go on again."""

from msgspec import Struct

from outlast.control.rows import live_children, row_of
from outlast.emergency import announce
from outlast.errors import UsageError
from outlast.events import RunHeld, RunResumed
from outlast.journal import Becomes, Entry, extend, put_status
from outlast.leases import lift_holds_below
from outlast.records import FINAL, RunRow, Status
from outlast.store.base import Tx
from outlast.world import World


class Paused(Struct, frozen=True):
    """What a pause came to: the run as it is now, and its status before. Its `owner`, if it has
    one, still lets a step come to its end."""

    row: RunRow
    was: Status


class Pause(Struct, frozen=True):
    """Holds a run, with its children. Nothing more begins in it; what is under way may end."""

    run_id: str
    at: float
    by: str = ""
    why: str = ""

    def apply(self, tx: Tx) -> Paused:
        """Hold it. A run that is held already stays held for its first reason.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it has ended.
        """
        row = row_of(tx, self.run_id)
        if row.status in FINAL:
            raise UsageError(f"run {row.run_id} is {row.status}; there is nothing left to pause")
        if row.status != "held":
            who = f"paused by {self.by}" if self.by else "paused"
            detail = f"{who}: {self.why}" if self.why else who
            event = RunHeld("paused", detail, f"Go on with: outlast resume {row.run_id}")
            extend(tx, row.run_id, row.epoch, self.at, [Entry(event)])
            put_status(tx, row.run_id, Becomes("held", "paused", detail))
            announce(tx, row.run_id)
        for child in live_children(tx, row.run_id):
            Pause(child, self.at, self.by, self.why).apply(tx)
        return Paused(row_of(tx, self.run_id), row.status)


class Resume(Struct, frozen=True):
    """Lets a held run go on, with its children, without executing it: a worker takes it up."""

    run_id: str
    at: float
    world: World
    by: str = ""

    def apply(self, tx: Tx) -> RunRow:
        """Make it `queued`; a run that waits for a worker anyway stays as it is.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it has ended.
        """
        row = row_of(tx, self.run_id)
        if row.status in FINAL:
            killed = row.status == "killed"
            hint = f"; take the kill back with: outlast resume {row.run_id} --revive"
            raise UsageError(f"run {row.run_id} is {row.status}" + (hint if killed else ""))
        if row.status == "held":
            extend(tx, row.run_id, row.epoch, self.at, [Entry(RunResumed(self.by))])
            # Who still lets a step of a paused run come to its end may not have heard of the pause.
            held_here = (
                row.reason == "paused"
                and row.owner is not None
                and self.world.liveness(row.owner) != "dead"
            )
            resumed = Becomes("running") if held_here else Becomes("queued", "resumed")
            put_status(tx, row.run_id, resumed)
        lift_holds_below(tx, row.run_id, self.at, self.by)
        announce(tx, row.run_id)
        return row_of(tx, self.run_id)
