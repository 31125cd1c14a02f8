"""Letting go of runs for a process that cannot do so itself any more."""

from collections.abc import Set
from typing import cast

from msgspec import Struct

from outlast.control.rows import row_of
from outlast.events import RunReleased
from outlast.journal import ACTIVE, Becomes, Entry, Lease, extend, put_owner, put_status
from outlast.records import Identity, Status
from outlast.store.base import Tx


class HandBack(Struct, frozen=True):
    """Releases runs that a process has, which is about to be ended: that counts as no crash of
    theirs. From now on the process writes nothing more to them. It stays their owner, so that
    nobody goes on with them before it is gone.

    Attributes:
        process: its identity; the nonce does not matter.
        only: ids of the runs that are meant; None for all that it has.
    """

    process: Identity
    at: float
    why: str
    only: Set[str] | None = None

    def apply(self, tx: Tx) -> list[str]:
        """Release them; returns their ids."""
        who = self.process
        rows = tx.run(
            "runs_of_process",
            host=who.host,
            boot=who.boot,
            namespace=who.namespace,
            pid=who.pid,
            started=who.started,
        )
        released = []
        for run_id, epoch, status in cast(list[tuple[str, int, Status]], rows):
            if status not in ACTIVE or (self.only is not None and run_id not in self.only):
                continue
            row = row_of(tx, run_id)
            extend(tx, run_id, epoch + 1, self.at, [Entry(RunReleased(self.why))])
            put_status(tx, run_id, Becomes("queued", f"released: {self.why}"))
            lease = Lease(row.lease_wall or 0.0, row.lease_boot or 0.0)
            put_owner(tx, run_id, epoch + 1, row.owner, lease)
            released.append(run_id)
        return released
