"""A store that is only read: not a byte of it is changed, so that a read-only copy will do."""

import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import apsw

from outlast.errors import StoreError
from outlast.store.base import Item, Row, SqlValue
from outlast.store.connection import check_library, connect, disconnect, store_error, system_error
from outlast.store.migrations import read_version
from outlast.store.open import parse_url
from outlast.store.queries import load_queries
from outlast.store.writer import Store
from outlast.world import World


@contextmanager
def open_to_read(url: str, world: World | None = None) -> Iterator[Store]:
    """The store that a URL names, until the block ends. Other processes may write to it meanwhile.

    Raises:
        UsageError: the URL is wrong.
        StoreError: it is not there, cannot be read, or is newer than this library. Writing to it.
    """
    parts = parse_url(url)
    check_library(apsw.sqlite_lib_version())
    world = world or World()
    with ExitStack() as stack:
        try:
            database = _ReadOnly(parts.path, world, parts.busy_timeout)
        except StoreError as problem:
            if problem.problem not in ("read-only", "io"):
                raise
            # SQLite has to make files beside it, and may not. Nor may anybody write to it, then.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-"))
            copy = _copy(Path(parts.path), Path(folder))
            database = _ReadOnly(copy, world, parts.busy_timeout)
        store = Store(database, url=url, path=parts.path, world=world)
        stack.callback(store.close)
        yield store


def _copy(path: Path, folder: Path) -> str:
    try:
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if not suffix or part.exists():
                shutil.copyfile(part, folder / part.name)
    except OSError as exc:
        raise system_error(exc, str(path)) from exc
    return str(folder / path.name)


class _ReadOnly:
    """A SQLite file, opened for reading. See `base.Database`."""

    def __init__(self, path: str, world: World, busy_timeout: float) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection = connect(path, world, busy_timeout, read_only=True)
        try:
            if read_version(self._connection, path) == 0:
                raise StoreError(f"store {path}: the file is empty", "not-a-store")
        except apsw.Error as exc:
            disconnect(self._connection)
            raise store_error(exc, path) from exc
        except StoreError:
            disconnect(self._connection)
            raise

    def transact(
        self, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        raise StoreError(f"store {self._path} was opened for reading only", "read-only")

    def sync(self) -> None:
        """Nothing was committed."""

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        with self._lock:
            try:
                rows = self._connection.execute(load_queries()[query], params).fetchall()
                return cast("list[Row]", rows)
            except apsw.Error as exc:
                raise store_error(exc, self._path) from exc

    def close(self) -> None:
        disconnect(self._connection)
