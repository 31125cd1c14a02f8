"""The order in which a run's results are given to its tasks.

Two tasks that wait for one step each see a race: whichever result comes first decides what the
workflow does next. To repeat itself on replay, a race must have the same winner, so results are
given out one at a time, in the order in which they were recorded, live as well as on replay; and
after each one the event loop gets some passes, so that all that follows from it (callbacks, parent
tasks, further calls) has happened before the next one is given out.
"""

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

PASSES = 8
"""Loop passes between two results. A task's end reaches its parent's parent through `gather` or a
task group in about two passes a level, so this covers four levels."""

PATIENCE = 3 * PASSES
"""Passes to wait for a call whose recorded result came earlier but which was not made yet."""


class Sequencer:
    """Gives out the results of one run. All methods run in the run's event loop."""

    __slots__ = (
        "_expected",
        "_given",
        "_next",
        "_passes",
        "_pending",
        "_recorded",
        "_ticket",
        "_ticking",
    )

    def __init__(self, recorded: Sequence[int]) -> None:
        """
        Args:
            recorded: sequence numbers of the outcomes in the journal, ascending.
        """
        self._recorded = recorded
        self._next = 0  # index of the first recorded outcome not yet given out
        # Dicts for want of values: an empty one is a third of an empty set.
        self._given: dict[int, None] = {}  # recorded ones given out of turn
        self._pending: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = count()
        self._expected: dict[int, None] = {}
        self._passes = 0
        self._ticking = False

    def skip(self, order: int) -> None:
        """A result was given out without this class (in a thread, or a plain call)."""
        self._mark(order)

    def offer(self, order: int, alone: bool) -> asyncio.Future[None] | None:
        """A result is ready. Returns None if its task may go on at once, else what to wait for.

        Args:
            order: sequence number of the outcome.
            alone: the run has no other task that could race with the one that asks.
        """
        if alone and not self._pending and not self._earlier(order):
            self._mark(order)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._pending, (order, next(self._ticket), future))
        self._tick_later()
        return future

    @contextmanager
    def expect(self, order: int) -> Iterator[None]:
        """Until the block ends, nothing that was recorded after `order` is given out: it is the
        place of a cancellation that must come again first, perhaps by a time-out much later."""
        self._expected[order] = None
        try:
            yield
        finally:
            self._expected.pop(order, None)
            self._tick_later()

    def _earlier(self, order: int) -> bool:
        """Whether a recorded result before `order` was not given out yet."""
        return self._next < len(self._recorded) and self._recorded[self._next] < order

    def _mark(self, order: int) -> None:
        if self._next == len(self._recorded):
            return  # nothing recorded is left to be overtaken
        self._given[order] = None
        while self._next < len(self._recorded) and self._recorded[self._next] in self._given:
            del self._given[self._recorded[self._next]]
            self._next += 1

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking, self._passes = True, 0
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        if not self._pending or any(order < self._pending[0][0] for order in self._expected):
            self._ticking = False  # whoever changes that calls `_tick_later`
            return
        self._passes += 1
        needed = PATIENCE if self._earlier(self._pending[0][0]) else PASSES
        if self._passes >= needed:
            self._give_next()
            self._passes = 0
        asyncio.get_running_loop().call_soon(self._tick)

    def _give_next(self) -> None:
        order, _, future = heapq.heappop(self._pending)
        self._mark(order)
        if not future.done():  # its task may have been cancelled meanwhile
            future.set_result(None)
