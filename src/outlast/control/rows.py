"""What the commands read of a run before they change it."""

from outlast.errors import StoreError, UnknownRun
from outlast.journal import to_run
from outlast.records import RunRow
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


_BLANK: dict[str, str | None] = {"source": None, "owner": None, "tags": "{}"}
"""What stands in place of columns that cannot be read."""


def row_or_rest(tx: Tx, run_id: str) -> tuple[RunRow, str]:
    """The row of a run, as far as it can be read, and what is wrong with it, in words.

    Raises:
        UnknownRun: there is no such run.
        StoreError: nothing of it can be read.
    """
    try:
        return row_of(tx, run_id), ""
    except StoreError as problem:
        (raw,) = tx.run("read_run", run_id=run_id)
        known = dict(zip(RunRow.__dataclass_fields__, raw, strict=True))
        for name in _BLANK:
            try:
                to_run(tuple((known | _BLANK | {name: known[name]}).values()))
            except StoreError:
                known[name] = _BLANK[name]
        return to_run(tuple(known.values())), str(problem)
