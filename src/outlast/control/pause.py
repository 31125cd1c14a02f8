"""Pause and resume: a run is held once the step under way has ended, and let go on again."""

from msgspec import Struct

from outlast.control.rows import row_of
from outlast.emergency import announce
from outlast.errors import UsageError
from outlast.events import RunHeld
from outlast.journal import Becomes, Entry, extend, put_status
from outlast.leases import lift_hold, lift_holds_below, live_below
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
        self._hold(tx, row)
        for child in live_below(tx, row.run_id):
            self._hold(tx, row_of(tx, child), above=False)
        return Paused(row_of(tx, self.run_id), row.status)

    def _hold(self, tx: Tx, row: RunRow, *, above: bool = True) -> None:
        if row.status == "held":
            return
        who = f"paused by {self.by}" if self.by else "paused"
        detail = f"{who}: {self.why}" if self.why else who
        event = RunHeld("paused", detail, f"Go on with: outlast resume {row.run_id}")
        extend(tx, row.run_id, row.epoch, self.at, [Entry(event)])
        put_status(tx, row.run_id, Becomes("held", "paused", detail))
        announce(tx, row.run_id, self.at, above=above)


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
            lift_hold(tx, row, self.at, self.world, self.by)
        lift_holds_below(tx, row.run_id, self.at, self.world, self.by)
        announce(tx, row.run_id, self.at)
        return row_of(tx, self.run_id)
