"""What the disk and SQLite allow at best, and a disk that is slower than the real one."""

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import apsw

from outlast.store.sqlite import SqliteDatabase


class RawCommits:
    """A bare script that commits one row of 300 bytes at a time through `apsw`, durably."""

    def __init__(self, where: Path, delay: float = 0.0) -> None:
        """Get it into its steady state, in which the WAL is recycled.

        Args:
            where: the folder of its file.
            delay: what each commit takes longer, in seconds; see `slow_disk`.
        """
        self._delay = delay
        self._connection = apsw.Connection(str(where / "raw.db"))
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("PRAGMA fullfsync=ON")  # macOS: as the store does
        self._connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER, b TEXT)")
        for i in range(1500):
            self._commit(i)

    def rate(self, seconds: float = 0.3) -> float:
        """Commits per second just now."""
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            self._commit(done)
            if self._delay:
                time.sleep(self._delay)
            done += 1
        return done / (time.perf_counter() - start)

    def close(self) -> None:
        self._connection.close()

    def _commit(self, i: int) -> None:
        self._connection.execute("INSERT INTO t VALUES (?, ?)", (i, "x" * 300))


@contextlib.contextmanager
def slow_disk(delay: float) -> Iterator[None]:
    """Let every sync of a store in this process take longer, as on a slower disk.

    Args:
        delay: by how many seconds.
    """
    real_sync = SqliteDatabase.sync

    def sync(database: SqliteDatabase) -> None:
        real_sync(database)
        if delay:
            time.sleep(delay)

    with mock.patch.object(SqliteDatabase, "sync", sync):
        yield


def sync_time(where: Path) -> float:
    """Seconds of a 4 KiB append with a sync of the disk: the median of 200."""
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with (where / "synced").open("wb", buffering=0) as file:
        for _ in range(200):
            start = time.perf_counter()
            file.write(bytes(4096))
            sync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times)
