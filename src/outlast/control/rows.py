"""What the commands read of a run before they change it."""

from typing import cast

from outlast.errors import UnknownRun
from outlast.journal import to_run
from outlast.records import FINAL, RunRow, Status
from outlast.store.base import Tx


def row_of(tx: Tx, run_id: str) -> RunRow:
    """The row of a run.

    Raises:
        UnknownRun: there is no such run.
    """
    rows = tx.run("read_run", run_id=run_id)
    if not rows:
        raise UnknownRun(f"there is no run {run_id!r} in this store; see: outlast ls")
    return to_run(rows[0])


def live_children(tx: Tx, run_id: str) -> list[str]:
    """Ids of the children of a run that have not ended, oldest first."""
    rows = cast(list[tuple[str, Status]], tx.run("children_of", parent=run_id))
    return [child for child, status in rows if status not in FINAL]
