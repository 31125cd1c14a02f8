"""The children of a run that this process executes now, and what else of it goes on in threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from outlast.engine.stop import Moved, Release, Stop
from outlast.journal import Along

if TYPE_CHECKING:
    from outlast.engine.requests import ChildCall, ChildNews
    from outlast.engine.run import Run


MOST_STARTED = 64
"""Children of one run that go on at once in threads; further ones wait for their turn."""

ENDED_EARLY = "the fan-out that it belongs to has ended early"


class Executed(Protocol):
    """A child under way."""

    def leaves(self, why: str) -> None:
        """Nobody waits for it any more: it is to be released."""
        ...

    def goes_its_way(self) -> None:
        """It is stopped by whoever stopped its parent: it need not be waited for any more."""
        ...


class Family(Protocol):
    """Creates and executes the children of runs; see worker/family.py."""

    def birth(self, run: "Run", call: "ChildCall") -> Along:
        """What creates the child in the transaction that records its call."""
        ...

    def undoing(self, run: "Run", child: str) -> Along:
        """What lets a child be undone, in the transaction that records that this is wanted."""
        ...

    def execute(self, run: "Run", call: "ChildCall") -> "ChildNews":
        """Execute it in this thread, for as long as it goes on."""
        ...

    async def execute_async(self, run: "Run", call: "ChildCall") -> "ChildNews":
        """The same in the running loop."""
        ...


class Kin:
    """See the module.

    Attributes:
        strands: items of fan-outs and children that have a thread of their own. The run may only
            be left to wait for a time once all of them do, but for those that are `waiting` for
            others of them.
        places: for children that were started in plain code and have a thread of their own.
        unwanted: keys of children that nobody waits for any more, and why.
    """

    __slots__ = (
        "_children",
        "_closed",
        "_lock",
        "_over",
        "places",
        "strands",
        "unwanted",
        "waiting",
    )

    def __init__(self, over: Callable[[], object]) -> None:
        """
        Args:
            over: called whenever a child has left this process.
        """
        self._over = over
        self._children: dict[str, Executed] = {}
        self._closed: tuple[str, ...] = ()
        self._lock = threading.RLock()  # a signal handler may come while this thread holds it
        self.strands = 0
        self.waiting = 0
        self.places = threading.Semaphore(MOST_STARTED)
        self.unwanted: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._children)

    def keys(self) -> list[str]:
        """The calls of the children under way."""
        return list(self._children)

    def begins(self, key: str, child: Executed) -> None:
        """A child is executed from now on."""
        with self._lock:
            self._children[key] = child
            if self.is_closed(key.rpartition("#")[2]):
                self.unwanted.setdefault(key, ENDED_EARLY)
        if key in self.unwanted:
            child.leaves(self.unwanted[key])

    def ends(self, key: str) -> None:
        """It is no more."""
        with self._lock:
            self._children.pop(key, None)
        self._over()

    def stop(self, stop: Stop) -> None:
        """The parent must stop, and with it whoever is executed for it."""
        for child in list(self._children.values()):
            _stop(child, stop)

    def dismiss(self, why: str, keys: list[str]) -> None:
        """Nobody waits for these children any more. What is open in them may end, then they do."""
        for key in keys:
            self.unwanted[key] = why
            if (child := self._children.get(key)) is not None:
                child.leaves(why)

    def close(self, prefix: str) -> None:
        """Calls whose positions begin so are no longer made, unless they are recorded."""
        with self._lock:
            self._closed = (*self._closed, prefix)
        inside = [key for key in self.keys() if key.rpartition("#")[2].startswith(prefix)]
        self.dismiss(ENDED_EARLY, inside)

    def is_closed(self, position: str) -> bool:
        """Whether a call at a position is only made if it is recorded."""
        return position.startswith(self._closed)

    def strand(self, *, begins: bool) -> None:
        """A thread begins or ends."""
        with self._lock:
            self.strands += 1 if begins else -1
        self._over()

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """Within the block a thread waits for others."""
        with self._lock:
            self.waiting += 1
        self._over()
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1


def _stop(child: Executed, stop: Stop) -> None:
    match stop:
        case Moved():  # the operator's command concerns the child too, and it hears of it by itself
            child.goes_its_way()
        case Release(why):
            child.leaves(why)
        case _:
            child.leaves("its parent stops")
