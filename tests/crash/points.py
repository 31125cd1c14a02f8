"""Named points in the life of a run at which a child process kills itself, for real."""

import os
import signal
from collections.abc import Sequence
from typing import Literal, NoReturn

import msgspec

from outlast.store import sqlite
from outlast.store.base import Item, Row

At = Literal["before", "half", "commit", "after", "body", "effect", "reconcile"]

WRITES: tuple[At, ...] = ("before", "half", "commit", "after")
"""Around the transaction that appends an event: nothing of it is written; the event is; all is
written and COMMIT comes next; it is committed and nobody knows."""


class Point(msgspec.Struct, frozen=True):
    """Where to die.

    Attributes:
        at: one of WRITES around the event `kind`; or in a body, after its effect, in a reconcile.
        kind: kind of the event.
        name: of the step; empty for any.
        nth: at the first time, the second, ...
    """

    at: At
    kind: str = ""
    name: str = ""
    nth: int = 1

    def __str__(self) -> str:
        nth = "" if self.nth == 1 else f" {self.nth}"
        return " ".join(word for word in (self.at, self.kind, self.name) if word) + nth


def die() -> NoReturn:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()  # the signal may take a moment; nothing more is done meanwhile


class Killer:
    """Waits for one point. Arm it before a store is opened."""

    def __init__(self, point: Point | None) -> None:
        self._point = point
        self._seen = 0
        self._matched = False

    def reach(self, at: At, name: str) -> None:
        """Called by the program itself, at the points inside the bodies of its steps."""
        point = self._point
        if point is not None and point.at == at and point.name == name:
            self._count()
            if self._matched:
                die()

    def arm(self) -> None:
        """Watch the statements and commits of every store that this process opens from now on."""
        point, killer = self._point, self
        if point is None or point.at not in WRITES:
            return
        append, flush = sqlite.SqliteTx.append, sqlite.SqliteTx.flush
        transact = sqlite.SqliteDatabase.transact

        def watched_append(tx: sqlite.SqliteTx, event: Row) -> None:
            if killer._fits(event):
                if point.at == "before":
                    die()
                if point.at == "commit":
                    tx._connection.set_commit_hook(die)
            append(tx, event)

        def watched_flush(tx: sqlite.SqliteTx) -> None:
            flush(tx)
            if killer._matched and point.at == "half":
                die()

        def watched_transact(
            database: sqlite.SqliteDatabase, items: Sequence[Item[object]], *, wait: bool = True
        ) -> list[object | Exception] | None:
            results = transact(database, items, wait=wait)
            if killer._matched and point.at == "after":
                die()
            return results

        sqlite.SqliteTx.append = watched_append  # type: ignore[method-assign]
        sqlite.SqliteTx.flush = watched_flush  # type: ignore[method-assign]
        sqlite.SqliteDatabase.transact = watched_transact  # type: ignore[method-assign]

    def _fits(self, event: Row) -> bool:
        point = self._point
        assert point is not None
        kind, key = event[2], event[3]
        name = str(key or "").rpartition("#")[0]
        if self._matched or kind != point.kind or point.name not in ("", name):
            return False
        self._count()
        return self._matched

    def _count(self) -> None:
        assert self._point is not None
        self._seen += 1
        self._matched = self._seen == self._point.nth


class EveryCommit:
    """Dies around the n-th commit of the process: at it (0, 2, 4, ...) or after it (1, 3, ...)."""

    def __init__(self, tick: int) -> None:
        self._left = tick

    def arm(self) -> None:
        transact, together = sqlite.SqliteDatabase.transact, sqlite.SqliteDatabase._try_together
        killer = self

        def watched_together(
            database: sqlite.SqliteDatabase,
            writer: object,
            tx: sqlite.SqliteTx,
            items: Sequence[Item[object]],
        ) -> list[object | Exception] | None:
            connection = database._writer
            assert connection is not None
            connection.set_commit_hook(killer._tick)
            return together(database, connection, tx, items)

        def watched_transact(
            database: sqlite.SqliteDatabase, items: Sequence[Item[object]], *, wait: bool = True
        ) -> list[object | Exception] | None:
            results = transact(database, items, wait=wait)
            killer._tick()
            return results

        sqlite.SqliteDatabase._try_together = watched_together  # type: ignore[assignment, method-assign]
        sqlite.SqliteDatabase.transact = watched_transact  # type: ignore[method-assign]

    def _tick(self) -> bool:
        if self._left == 0:
            die()
        self._left -= 1
        return False
