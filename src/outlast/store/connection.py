"""Connections to one SQLite file: opening, waiting for a lock, surviving a fork, naming trouble."""

import ctypes
import errno
import os
from pathlib import Path

import apsw

from outlast.errors import StoreError, StoreProblem
from outlast.world import World

FileId = tuple[int, int]
"""Device and inode: tells a file from another one of the same name."""

_open: dict[int, tuple[FileId, apsw.Connection]] = {}
"""Every connection of this process, by id(). They are closed by their owner, never by chance."""

_this_process = os.getpid()  # asking the system for it takes longer than all else in a check

_inherited: set[FileId] = set()
"""Files that were open in the parent when this process was forked off."""

_TROUBLE: tuple[tuple[type[apsw.Error], StoreProblem, str], ...] = (
    (
        apsw.FullError,
        "full",
        "there is no space left; free some and go on, nothing is half-written",
    ),
    (
        apsw.ReadOnlyError,
        "read-only",
        "it cannot be written; make the file and its folder writable",
    ),
    (apsw.NotADBError, "not-a-store", "this is no SQLite database; name another file"),
    (apsw.CorruptError, "damaged", "the database is damaged; restore a copy of it"),
    (apsw.BusyError, "busy", "another process kept it locked for too long; try again"),
    (apsw.LockedError, "busy", "another connection kept it locked for too long; try again"),
    (apsw.ProtocolError, "busy", "other processes kept its locks contended; try again"),
    (apsw.PermissionsError, "read-only", "access was denied; check its permissions"),
    (apsw.CantOpenError, "io", "it cannot be opened; check the path and its permissions"),
    (apsw.IOError, "io", "reading or writing the disk failed; check the disk"),
    (apsw.NoMemError, "io", "memory ran out; nothing is half-written"),
    (apsw.NoLFSError, "io", "the file is too large for this file system"),
)

_BY_ERRNO: dict[int, tuple[StoreProblem, str]] = {
    errno.EIO: ("io", "reading or writing the disk failed; check the disk"),
    errno.ENOSPC: ("full", "there is no space left; free some and go on, nothing is half-written"),
    errno.EDQUOT: ("full", "the disk quota is used up; free some and go on"),
    errno.EFBIG: ("full", "the file reached a size limit; raise it and go on"),
    errno.EROFS: ("read-only", "the file system is read-only; make it writable and go on"),
    errno.EACCES: ("read-only", "access was denied; check the permissions of file and folder"),
    errno.EPERM: ("read-only", "access was denied; check the attributes of file and folder"),
}


def check_library(version: str) -> None:
    """Refuse a SQLite that can lose committed writes when a WAL is reset under a checkpoint.

    Args:
        version: of the library, such as `3.51.3`.

    Raises:
        StoreError: the bug is neither fixed upstream (3.51.3) nor in a maintained branch
            (3.50.7, 3.44.6).
    """
    number = tuple(int(part) for part in version.split(".")[:3])
    backported = any(fix <= number < (3, fix[1] + 1) for fix in ((3, 50, 7), (3, 44, 6)))
    if number < (3, 51, 3) and not backported:
        raise StoreError(
            f"SQLite {version} has the WAL-reset bug, which can lose committed writes; "
            "install a newer apsw (it brings SQLite 3.51.3 or later)",
            "io",
        )


def in_trouble(exc: apsw.Error) -> bool:
    """Whether an error is the store's, and not one statement's (a violated constraint, say)."""
    return isinstance(exc, tuple(kind for kind, _, _ in _TROUBLE))


def store_error(
    exc: apsw.Error, path: str, connection: apsw.Connection | None = None
) -> StoreError:
    """Say what an error of SQLite means and what to do about it.

    Args:
        exc: the error.
        path: absolute path of the store.
        connection: where it occurred, for the system's own error number.
    """
    problem: StoreProblem = "io"
    advice = "it refused a statement"
    for kind, its_problem, its_advice in _TROUBLE:
        if isinstance(exc, kind):
            problem, advice = its_problem, its_advice
            break
    if isinstance(exc, apsw.IOError) and connection is not None:
        problem, advice = _BY_ERRNO.get(connection.system_errno, (problem, advice))
    elif isinstance(exc, apsw.CantOpenError):
        file = Path(path)
        if not file.exists():
            problem, advice = "gone", "the file is gone; put it back, or start with a new store"
        elif not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
            problem, advice = "read-only", "make the file and its folder writable"
    error = StoreError(f"store {path}: {advice} ({exc})", problem)
    error.__cause__ = exc
    return error


def system_error(exc: OSError, path: str) -> StoreError:
    """Say what an error of the operating system means and what to do about it."""
    problem, advice = _BY_ERRNO.get(exc.errno or 0, ("io", "it cannot be reached; check the path"))
    return StoreError(f"store {path}: {advice} ({exc.strerror})", problem)


def file_id(path: str) -> FileId:
    """Which file a path names at this moment.

    Raises:
        StoreError: it names none.
    """
    try:
        stat = os.stat(path)  # noqa: PTH116 (before every commit, and Path.stat takes twice the time)
    except FileNotFoundError:
        raise StoreError(
            f"store {path}: the file is gone; put it back, or start with a new store", "gone"
        ) from None
    except OSError as exc:
        raise system_error(exc, path) from exc
    return stat.st_dev, stat.st_ino


def check_process(pid: int, path: str) -> None:
    """Refuse to use in a forked child what its parent opened. Touches no lock.

    Raises:
        StoreError: this process is not the one that opened the store.
    """
    if pid != _this_process:
        raise _forked(path)


def connect(path: str, world: World, timeout: float, *, read_only: bool = False) -> apsw.Connection:
    """Open a connection that waits up to `timeout` seconds for a lock.

    Raises:
        StoreError: it cannot be opened, or was opened by the parent of this forked process.
    """
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    before = file_id(path)
    if before in _inherited:
        raise _forked(path)
    try:
        connection = apsw.Connection(path, flags=flags)
    except apsw.Error as exc:
        raise store_error(exc, path) from exc
    _open[id(connection)] = (before, connection)
    connection.set_busy_handler(Patience(world, timeout))
    if not read_only and connection.readonly("main"):
        # SQLite falls back to reading without a word.
        disconnect(connection)
        raise StoreError(f"store {path}: make the file and its folder writable", "read-only")
    return connection


def disconnect(connection: apsw.Connection) -> None:
    """Close a connection that `connect` opened."""
    del _open[id(connection)]
    connection.close()


class Patience:
    """A busy handler. SQLite's own sleeps for up to 100 ms and starves among many writers.

    Attributes:
        limit: how long to wait for a lock, in seconds.
    """

    def __init__(self, world: World, limit: float) -> None:
        self._world = world
        self._since = 0.0
        self.limit = limit

    def __call__(self, tries: int) -> bool:
        if tries == 0:
            self._since = self._world.boot()
        elif self._world.boot() >= self._since + self.limit:
            return False
        self._world.pause(0.0003 + 0.0017 * self._world.random())
        return True


def _forked(path: str) -> StoreError:
    return StoreError(
        f"store {path} was open when this process was forked off, and a forked SQLite may damage "
        "it: start the process by subprocess or multiprocessing's 'spawn', or close the store "
        "before the fork",
        "forked",
    )


def _disown() -> None:
    """In a forked child: keep the parent's connections from ever being closed here.

    Closing one, be it by garbage collection or at exit, would checkpoint and delete files under
    the parent on the strength of locks that a child does not inherit. An extra reference that
    nobody gives back makes them immortal. A new connection is unsafe as well: SQLite keeps its
    lock table per process, the fork copies it, and so the child would believe that it holds
    locks which only its parent has.
    """
    global _this_process
    _this_process = os.getpid()
    for identity, connection in _open.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        _inherited.add(identity)
    _open.clear()


os.register_at_fork(after_in_child=_disown)
