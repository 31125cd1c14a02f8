"""The emergency stop of a whole store, and its end."""

from msgspec import Struct

from outlast.emergency import set_stop
from outlast.events import StoreAllowed, StoreStopped
from outlast.journal import Entry, extend_store
from outlast.records import StopView
from outlast.store.base import Tx


class StopAll(Struct, frozen=True):
    """From now on no attempt opens in any run and nothing is claimed. What is under way may end,
    and its processes let go of their runs. `kill`: whoever asked kills the runs as well."""

    at: float
    by: str = ""
    why: str = ""
    kill: bool = False

    def apply(self, tx: Tx) -> StopView:
        """Put it in force. Asked again, the newer reason counts."""
        stop = StopView(self.at, self.by, self.why)
        extend_store(tx, self.at, [Entry(StoreStopped(self.by, self.why, self.kill))])
        set_stop(tx, stop)
        return stop


class Allow(Struct, frozen=True):
    """Ends the emergency stop."""

    at: float
    by: str = ""

    def apply(self, tx: Tx) -> bool:
        """End it; whether it was in force."""
        rows = tx.run("read_control")
        if rows[0][1] is None:
            return False
        extend_store(tx, self.at, [Entry(StoreAllowed(self.by))])
        set_stop(tx, None)
        return True
