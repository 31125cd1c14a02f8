"""Who is to be told when something happens to a run."""

import threading
from collections.abc import Callable


class Watch:
    """A place among the watchers until a block ends. Every run that sleeps holds two of them, and
    this is an eighth of what a generator with its context manager takes."""

    __slots__ = ("_lock", "_wake", "_watchers")

    def __init__(
        self,
        watchers: dict[Callable[[], object], None],
        wake: Callable[[], object],
        lock: "threading.RLock",
    ) -> None:
        self._watchers, self._wake, self._lock = watchers, wake, lock

    def __enter__(self) -> None:
        with self._lock:
            self._watchers[self._wake] = None

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._watchers.pop(self._wake, None)
