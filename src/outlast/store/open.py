"""From a URL to an open store."""

import math
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw

from outlast.errors import StoreError, UsageError
from outlast.store.connection import check_library, system_error
from outlast.store.filesystems import check_filesystem
from outlast.store.migrations import migrate
from outlast.store.queries import load_queries
from outlast.store.sqlite import SqliteDatabase
from outlast.store.writer import Store
from outlast.world import World

FORM = "sqlite:///relative.db or sqlite:////absolute/path.db"

_opening = threading.Lock()


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """A store's URL, taken apart.

    Attributes:
        path: absolute path of the file, without symbolic links.
        busy_timeout: seconds to wait for another process's transaction.
        unsafe_filesystem: a file system type that is accepted without a check.
    """

    path: str
    busy_timeout: float = 30.0
    unsafe_filesystem: str | None = None


def open_store(url: str, world: World | None = None) -> Store:
    """Open the store that a URL names; create it if there is none.

    Args:
        url: `sqlite:///relative.db` or `sqlite:////absolute/path.db`, with the optional parameters
            `busy_timeout=SECONDS` and `unsafe_filesystem=TYPE`.
        world: clock and dice; the real ones by default.

    Raises:
        UsageError: the URL is wrong.
        StoreError: the store cannot be opened, or must not be.
    """
    world = world or World()
    parts = parse_url(url)
    check_library(apsw.sqlite_lib_version())
    _check_place(Path(parts.path))
    check_filesystem(parts.path, parts.unsafe_filesystem)
    # One opening at a time: closing a plain descriptor drops all locks that this process holds on
    # the file, so nobody may have a connection to it while it is being created.
    with _opening:
        _create(parts.path)
        migrate(parts.path, world, parts.busy_timeout)
        database = SqliteDatabase(parts.path, load_queries(), world, parts.busy_timeout)
    return Store(database, url=url, path=parts.path, world=world)


def parse_url(url: str) -> SqliteUrl:
    """Take a store's URL apart.

    Raises:
        UsageError: it is not of the expected form.
    """
    parts = urlsplit(url)
    if parts.scheme in ("postgres", "postgresql"):
        raise UsageError(f"PostgreSQL stores come with a later release; for now use {FORM}")
    if parts.scheme != "sqlite" or parts.netloc or not parts.path.startswith("/"):
        raise UsageError(f"{url!r} is not the URL of a store; expected {FORM}")
    path = unquote(parts.path[1:])
    if not path or path.startswith(":memory:") or parts.fragment or "\0" in path:
        raise UsageError(
            f"{url!r} does not name a file; expected {FORM} (write '#' as %23 and '?' as %3F)"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    timeout = _seconds(options.pop("busy_timeout", "30"), url)
    unsafe = options.pop("unsafe_filesystem", None)
    if options:
        raise UsageError(
            f"{url!r} has the unknown parameter {min(options)!r}; there are "
            "busy_timeout=SECONDS and unsafe_filesystem=TYPE"
        )
    return SqliteUrl(os.path.realpath(path), timeout, unsafe)


def _seconds(text: str, url: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{url!r}: busy_timeout is a number of seconds, such as 30, not {text!r}")
    return seconds


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"store {path}: there is no folder {path.parent}; create it first", "gone")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as exc:
        raise system_error(exc, str(path)) from exc
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise StoreError(f"store {path}: this is {what}; name a file", "not-a-store")


def _after_fork() -> None:
    """Another thread of the parent may have held the lock; it does not exist in a child."""
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _create(path: str) -> None:
    """Make a new file readable by its owner only; SQLite's log files take over its mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    except OSError as exc:
        raise system_error(exc, path) from exc
