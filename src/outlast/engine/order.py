"""The order in which a run's results are given to its tasks.

Two tasks that wait for one step each see a race: whichever result comes first decides what the
workflow does next. To repeat itself on replay, a race must have the same winner, so results are
given out one at a time, in the order in which they were recorded, live as well as on replay; and
after each one the event loop gets some passes, so that all that follows from it (callbacks, parent
tasks, further calls) has happened before the next one is given out.
"""

import asyncio
import heapq
from collections.abc import Sequence
from itertools import count

PASSES = 8
"""Loop passes between two results. A task's end reaches its parent's parent through `gather` or a
task group in about two passes a level, so this covers four levels."""

PATIENCE = 3 * PASSES
"""Passes to wait for a call whose recorded result came earlier but which was not made yet."""


class Sequencer:
    """Gives out the results of one run. All methods run in the run's event loop."""

    def __init__(self, recorded: Sequence[int]) -> None:
        """
        Args:
            recorded: sequence numbers of the outcomes in the journal, ascending.
        """
        self._recorded = recorded
        self._next = 0  # index of the first recorded outcome not yet given out
        self._given: set[int] = set()  # recorded ones given out of turn
        self._pending: list[tuple[int, int, object, asyncio.Future[None]]] = []
        self._ticket = count()
        self._last_scope: object = None
        self._passes = 0
        self._ticking = False

    def skip(self, order: int) -> None:
        """A result was given out without this class (in a thread, or a plain call)."""
        self._mark(order)

    def offer(self, order: int, scope: object) -> asyncio.Future[None] | None:
        """A result is ready. Returns None if its task may go on at once, else what to wait for.

        Args:
            order: sequence number of the outcome.
            scope: the task that waits for it. Nothing races within one task.
        """
        if self._last_scope is None:
            self._last_scope = scope
        alone = not self._pending and scope is self._last_scope
        if alone and not self._earlier(order):
            self._mark(order)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._pending, (order, next(self._ticket), scope, future))
        self._tick_later()
        return future

    def _earlier(self, order: int) -> bool:
        """Whether a recorded result before `order` was not given out yet."""
        return self._next < len(self._recorded) and self._recorded[self._next] < order

    def _mark(self, order: int) -> None:
        if self._next == len(self._recorded):
            return  # nothing recorded is left to be overtaken
        self._given.add(order)
        while self._next < len(self._recorded) and self._recorded[self._next] in self._given:
            self._given.discard(self._recorded[self._next])
            self._next += 1

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking, self._passes = True, 0
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self._passes += 1
        needed = PATIENCE if self._earlier(self._pending[0][0]) else PASSES
        if self._passes >= needed:
            self._give_next()
            self._passes = 0
        if self._pending:
            asyncio.get_running_loop().call_soon(self._tick)
        else:
            self._ticking = False

    def _give_next(self) -> None:
        order, _, scope, future = heapq.heappop(self._pending)
        self._mark(order)
        self._last_scope = scope
        if not future.done():  # its task may have been cancelled meanwhile
            future.set_result(None)
