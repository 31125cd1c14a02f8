"""The emergency stop of a store: one row, asked by every opening of an attempt and every claim."""

from typing import cast

from msgspec import Struct

from outlast.errors import StoreStopped
from outlast.records import StopView
from outlast.store.base import Row, Tx
from outlast.store.writer import Store

_MEMO = "@control"

KEPT = 1000
"""Commands of which the store says which run they were about. Who was away for more looks at all
of its runs."""


def check_allowed(tx: Tx) -> None:
    """Refuse what would begin something.

    Raises:
        StoreStopped: the emergency stop is in force.
    """
    if _MEMO not in tx.memo:
        tx.memo[_MEMO] = _view(tx.run("read_control"))
    stop = cast(StopView | None, tx.memo[_MEMO])
    if stop is not None:
        raise StoreStopped(stop.since, stop.by, stop.why)


def set_stop(tx: Tx, stop: StopView | None) -> None:
    """Put the emergency stop in force, or end it."""
    if stop is None:
        tx.run("set_stop", at=None, by=None, reason=None)
    else:
        tx.run("set_stop", at=stop.since, by=stop.by, reason=stop.why)
    tx.memo[_MEMO] = stop
    _tell(tx, None)


def announce(tx: Tx, run_id: str, at: float, *, above: bool = True) -> None:
    """Processes that execute a run look at what has become of it, some milliseconds from now. The
    runs above it, in which it was called, may wait for that: they can go on.

    Args:
        above: tell these as well; needless if the same befalls them.
    """
    _tell(tx, run_id)
    if not above:
        return
    while rows := tx.run("parent_of", run_id=run_id):
        run_id = str(rows[0][0])
        tx.run("set_due", run_id=run_id, due=at)
        _tell(tx, run_id)


def _tell(tx: Tx, run_id: str | None) -> None:
    """There is news about this run (None: about all)."""
    ((version,),) = cast(list[tuple[int]], tx.run("bump_control"))
    tx.run("insert_news", version=version, run_id=run_id)
    tx.run("forget_news", version=version - KEPT)


def read_stop(store: Store) -> StopView | None:
    """The emergency stop that is in force; None if there is none."""
    return _view(store.read("read_control"))


class News(Struct, frozen=True):
    """What there is for processes that execute runs.

    Attributes:
        version: number of the latest command.
        stop: the emergency stop that is in force.
        about: the runs that the commands since the last look were about; None: perhaps all.
    """

    version: int
    stop: StopView | None
    about: frozenset[str] | None = frozenset()


def read_news(store: Store, known: int) -> News:
    """What there is for processes that have heard of all commands up to number `known`."""
    rows = store.read("read_control")
    version, stop = cast(int, rows[0][0]), _view(rows)
    if version == known:
        return News(version, stop)
    told = cast(list[tuple[int, str | None]], store.read("read_news", version=known))
    about = {run_id for number, run_id in told if number <= version}
    complete = len(told) >= version - known and None not in about
    return News(version, stop, frozenset(filter(None, about)) if complete else None)


def _view(rows: list[Row]) -> StopView | None:
    _, since, by, why = rows[0]
    if since is None:
        return None
    return StopView(cast(float, since), cast(str, by) or "", cast(str, why) or "")
