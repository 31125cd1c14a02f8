"""Idempotency keys of dropped calls (`cuts`), for the calls that are made in their place.

A call that is made again has to come under the key of the dropped one, or nobody outside could tell
that it is a repeat; and the code at hand may make it at another position. So what counts is name
and arguments. Which key a call has is recorded (`events.StepStarted`), and so chosen once.
"""

import threading
from collections import deque

from outlast.events import StepStarted

Mark = tuple[str, int]
"""What an idempotency key follows from, besides the run: a key and a variant."""


class SpareKeys:
    """The keys of a run's dropped calls. Calls in several threads may ask at once."""

    def __init__(self) -> None:
        self._dropped: dict[Mark, tuple[str, str]] = {}  # key and arguments of its last call
        self._taken: set[Mark] = set()
        self._accepted = 0
        self._index: _Index | None = None
        self._lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpareKeys):
            return NotImplemented
        ours = (self._dropped, self._taken, self._accepted)
        return ours == (other._dropped, other._taken, other._accepted)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def drop(self, key: str, started: StepStarted) -> None:
        """An attempt was opened that counts no longer. To be told of all of these, in the order of
        the journal, before anything else."""
        mark = _mark(key, started)
        self._dropped.pop(mark, None)  # it goes behind those whose last call was earlier
        self._dropped[mark] = key, started.digest

    def stands(self, key: str, started: StepStarted) -> None:
        """An attempt was opened that counts."""
        if (mark := _mark(key, started)) in self._dropped:
            self._taken.add(mark)

    def accepted_at(self, seq: int) -> None:
        """Number of the last event that dropped something."""
        self._accepted = seq

    def take(self, key: str, digest: str) -> Mark:
        """For a call that was never opened: what its idempotency key follows from.

        A dropped call of the same name and arguments leaves it its key: the one at this position if
        it fits, else the first one whose key nobody has taken over. A call for which there is none
        gets a key that no call has had: under the key of other arguments it would be refused
        outside, or answered with their result.

        Args:
            key: of the call.
            digest: fingerprint of its arguments; empty if nobody compares them.
        """
        if not self._dropped:
            return key, 0
        with self._lock:
            if self._index is None:
                self._index = _Index(self._dropped)
            mark = self._index.find(key, digest, self._taken)
            if mark is None:
                highest = self._index.highest.get(key)
                return key, 0 if highest is None else max(self._accepted, highest + 1)
            self._taken.add(mark)
            return mark


def _mark(key: str, started: StepStarted) -> Mark:
    return started.alias or key, started.variant


class _Index:
    """Finds spare keys by what a call is.

    Attributes:
        highest: the highest variant of each key.
    """

    def __init__(self, dropped: dict[Mark, tuple[str, str]]) -> None:
        self.highest: dict[str, int] = {}
        self._here: dict[str, list[tuple[str, Mark]]] = {}
        self._alike: dict[tuple[str, str], deque[Mark]] = {}
        for mark, (key, digest) in dropped.items():
            self.highest[mark[0]] = max(mark[1], self.highest.get(mark[0], 0))
            self._here.setdefault(key, []).append((digest, mark))
            # A call whose arguments nobody compares is like any of its name.
            for compared in {digest, ""}:
                self._alike.setdefault((_name(key), compared), deque()).append(mark)

    def find(self, key: str, digest: str, taken: set[Mark]) -> Mark | None:
        """A key that nobody has taken over, for a call like the dropped one that had it."""
        for known, mark in self._here.get(key, ()):
            if mark not in taken and digest in ("", known):
                return mark
        alike = self._alike.get((_name(key), digest), deque())
        while alike and alike[0] in taken:
            alike.popleft()
        return alike[0] if alike else None


def _name(key: str) -> str:
    return key.rpartition("#")[0]
