"""Telling callers what became of their items, in their event loops or in the writer thread."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from outlast.errors import StoreError
from outlast.store.base import Item

_log = logging.getLogger(__name__)


class Entry(Struct, frozen=True):
    """An item to be committed, and who is told what became of it; see `Store.submit`."""

    item: Item[object]
    durable: bool
    done: Callable[[object], None] | None
    loop: asyncio.AbstractEventLoop | None
    ordered: bool = True


class Batch(Struct, frozen=True):
    """Items that were committed together, and what became of each."""

    entries: Sequence[Entry]
    results: Sequence[object]
    start: float  # by the boot clock

    @property
    def durable(self) -> bool:
        """Whether nobody is to be told before it is on the disk."""
        return any(entry.durable for entry in self.entries)


def failed(entries: Sequence[Entry], error: StoreError, start: float = 0.0) -> Batch:
    """Entries that all met one error. Every caller raises its own, or their tracebacks would run
    into one another."""
    return Batch(entries, [_copy(error) for _ in entries], start)


def _copy(error: StoreError) -> StoreError:
    copy = StoreError(str(error), error.problem)
    copy.__cause__ = error.__cause__
    return copy


def split(batch: Batch) -> tuple[Batch, Batch]:
    """What can be told of at once, and what has to wait for the disk or for its turn."""
    halves: tuple[list[int], list[int]] = ([], [])
    for index, entry in enumerate(batch.entries):
        halves[entry.durable or entry.ordered].append(index)
    now, later = (
        Batch([batch.entries[i] for i in half], [batch.results[i] for i in half], batch.start)
        for half in halves
    )
    return now, later


def deliver(batch: Batch) -> None:
    """Tell the callers in order, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, tuple[list[Entry], list[object]]] = {}
    for entry, result in zip(batch.entries, batch.results, strict=True):
        if entry.loop is None:
            tell([entry], [result])
        else:
            entries, results = loops.setdefault(entry.loop, ([], []))
            entries.append(entry)
            results.append(result)
    for loop, news in loops.items():
        try:
            loop.call_soon_threadsafe(tell, *news)
        except RuntimeError:
            if not loop.is_closed():
                raise
            # Nobody waits there any more; the items are committed all the same.


def tell(entries: Sequence[Entry], results: Sequence[object]) -> None:
    """Tell callers in this thread."""
    for entry, result in zip(entries, results, strict=True):
        if entry.done is None:
            continue
        try:
            entry.done(result)
        except Exception:
            # A bad callback must neither end the writer nor keep the news from the others.
            _log.exception("a callback of the store failed")
