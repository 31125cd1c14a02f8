"""Who listens to a run in this process: to its journal, and to what its steps emit.

What is emitted is not journaled and reaches this process alone. Whoever listens slowly or not at
all must not keep a step from its work, so each listener has a buffer that forgets the oldest.
"""

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from outlast.world import World

if TYPE_CHECKING:
    from outlast.engine.run import AttemptInfo, Run

BUFFER = 1000
"""Emitted things that a listener may be behind."""


class Emitted(Struct, frozen=True):
    """Something that a step told whoever listens, while it ran.

    Attributes:
        name, data: as given to `outlast.emit`; the data is no copy.
        step: key of the step.
        attempt: number of the attempt, from 1. What an earlier one emitted counts no longer.
        at: seconds since the epoch.
    """

    name: str
    data: object
    step: str
    attempt: int
    run_id: str
    at: float


class Listener:
    """One place where the news of a run arrive.

    Attributes:
        dropped: how many emitted things were forgotten, since nobody took them in time.
    """

    def __init__(self, path: str, run_id: str, world: World) -> None:
        self.dropped = 0
        self._world = world
        self._emitted: deque[Emitted] = deque()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._wake: Callable[[], object] | None = None
        place = (path, run_id)
        me = weakref.ref(self, lambda _: _forget(place))
        with _lock:
            _listeners[place] = (*_listeners.get(place, ()), me)

    def hear(self, item: Emitted | None = None) -> None:
        """There is something new. Called in any thread; never waits."""
        if item is not None:
            with self._lock:
                if len(self._emitted) == BUFFER:
                    self._emitted.popleft()
                    self.dropped += 1
                self._emitted.append(item)
        if self._news.is_set():
            return
        self._news.set()
        if (wake := self._wake) is not None:
            wake()

    def take(self) -> list[Emitted]:
        """What was emitted since the last call."""
        with self._lock:
            taken = list(self._emitted)
            self._emitted.clear()
        return taken

    def wait(self, seconds: float) -> bool:
        """Wait for news, at most so long; whether there were any."""
        self._world.pause(seconds, self._news)
        return self._seen()

    async def wait_in_loop(self, seconds: float) -> bool:
        """`wait` without blocking the event loop."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def wake_from_elsewhere() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(wake)

        self._wake = wake_from_elsewhere
        timer = loop.call_later(seconds, wake)
        try:
            if not self._news.is_set():
                await woken
        finally:
            timer.cancel()
            self._wake = None
        return self._seen()

    def _seen(self) -> bool:
        # Before anything is looked at, or what comes in between would be lost.
        came = self._news.is_set()
        self._news.clear()
        return came


_lock = threading.RLock()  # the garbage collector may come while this thread holds it
_listeners: "dict[tuple[str, str], tuple[weakref.ref[Listener], ...]]" = {}
"""By the store's path and the run. Who does not iterate any more is not kept here."""


def _forget(place: tuple[str, str]) -> None:
    """A listener of that place is gone."""
    with _lock:
        alive = tuple(one for one in _listeners.pop(place, ()) if one() is not None)
        if alive:
            _listeners[place] = alive


def news_of(run: "Run") -> None:
    """The journal of a run has grown. Costs next to nothing while nobody listens to any run."""
    if _listeners:
        _tell(run, None)


def emit(attempt: "AttemptInfo", name: str, data: object) -> None:
    """Tell whoever listens to the run of an attempt in this process."""
    if _listeners:
        run = attempt.run
        item = Emitted(name, data, attempt.key, attempt.number, run.run_id, run.world.wall())
        _tell(run, item)


def _tell(run: "Run", item: Emitted | None) -> None:
    for one in _listeners.get((run.store.path, run.run_id), ()):
        if (listener := one()) is not None:
            listener.hear(item)
