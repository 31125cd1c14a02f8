"""Which process holds a store's write lock.

A process that hangs in C code, or was stopped, in the middle of a transaction keeps everybody from
writing, an operator's kill included. Who it is can be told without writing.
"""

import os
from pathlib import Path

_LOCKS = Path("/proc/locks")
_WRITE_LOCK = 120
"""Byte of the `-shm` file that a writer has locked (SQLite, "WAL-mode File Format")."""


def write_lock_holder(path: str) -> int | None:
    """Pid of the process that stands in a write transaction on a store's file; None if there is
    none, or it cannot be told (on another system than Linux).

    The `-shm` file is not opened for this: to close it would drop the locks of this process itself.
    """
    try:
        shm = Path(f"{path}-shm").stat()
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(shm.st_dev):02x}:{os.minor(shm.st_dev):02x}:{shm.st_ino}"
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:3072523 120 120; who waits for a lock has `->` first.
        fields = line.split()
        if fields[1:2] != ["POSIX"] or fields[3] != "WRITE" or fields[5] != file:
            continue
        first, last = int(fields[6]), fields[7]
        if first <= _WRITE_LOCK and (last == "EOF" or int(last) >= _WRITE_LOCK):
            return int(fields[4])
    return None


class StalledWriter:
    """Looks for a process that keeps everybody from writing and writes nothing itself.

    Args:
        path: of the store.
        seconds: for how long a transaction may stand without a word in the file.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._seen: tuple[int, int, int] | None = None
        self._since = 0.0

    def look(self, now: float) -> int | None:
        """Its pid, if this and the earlier looks say so. `now`: by the boot clock."""
        holder, wal = write_lock_holder(self._path), _state(f"{self._path}-wal")
        seen = None if holder is None else (holder, *wal)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return holder if seen is not None and now - self._since >= self._seconds else None


def _state(path: str) -> tuple[int, int]:
    try:
        state = Path(path).stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size
