"""The embedded database: one SQLite file, one connection that writes and one that reads."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import cast

import apsw

from outlast.errors import OutlastError, StoreError
from outlast.store.base import Item, Row, SqlValue
from outlast.store.connection import (
    FileId,
    check_process,
    connect,
    disconnect,
    file_id,
    in_trouble,
    store_error,
)
from outlast.world import World


class SqliteTx:
    """An open transaction, see `base.Tx`."""

    def __init__(self, connection: apsw.Connection, queries: Mapping[str, str]) -> None:
        self._connection = connection
        self._queries = queries

    def run(self, query: str, /, **params: SqlValue) -> list[Row]:
        return cast(list[Row], self._connection.execute(self._queries[query], params).fetchall())


class SqliteDatabase:
    """A SQLite file that exists and holds a store of this version.

    `transact` is called by one thread at a time; `read` by any, and it waits for no commit.
    """

    def __init__(
        self, path: str, queries: Mapping[str, str], world: World, busy_timeout: float
    ) -> None:
        """Open both connections.

        Args:
            path: absolute path of the file.
            queries: the named statements.
            world: clock and dice of the busy waits.
            busy_timeout: how long to wait for another process's transaction, in seconds.

        Raises:
            StoreError: it cannot be opened.
        """
        self._path = path
        self._queries = queries
        self._world = world
        self._busy_timeout = busy_timeout
        self._pid = os.getpid()
        self._file = file_id(path)
        self._wal: FileId | None = None  # known from the first commit on
        self._closed = False
        self._read_lock = threading.Lock()
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._durable = False
        try:
            self._writer = self._open()
            self._reader = self._open()
        except BaseException:
            self.close()
            raise

    def transact(self, items: Sequence[Item[object]], *, durable: bool) -> list[object | Exception]:
        """See `base.Database.transact`."""
        self._check()
        try:
            if self._writer is None:
                self._writer = self._open()
            self._set_durable(self._writer, durable)
            results = self._try_together(self._writer, items)
            if results is None:
                results = [self._alone(self._writer, item) for item in items]
            if self._wal is None:
                self._wal = file_id(f"{self._path}-wal")
            return results
        except apsw.Error as exc:
            raise store_error(exc, self._path, self._writer) from exc
        finally:
            self._tidy()

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        """See `base.Database.read`."""
        self._check()
        with self._read_lock:
            if self._reader is None:
                self._reader = self._open()
            try:
                return SqliteTx(self._reader, self._queries).run(query, **params)
            except apsw.Error as exc:
                raise store_error(exc, self._path, self._reader) from exc

    def close(self) -> None:
        """See `base.Database.close`."""
        check_process(self._pid, self._path)
        self._closed = True
        with self._read_lock:
            reader, self._reader = self._reader, None
            if reader is not None:
                disconnect(reader)
        writer, self._writer = self._writer, None
        if writer is not None:
            disconnect(writer)

    def _check(self) -> None:
        check_process(self._pid, self._path)
        if self._closed:
            raise StoreError(f"store {self._path} is closed; open it again", "closed")
        if file_id(self._path) != self._file:
            # SQLite would go on writing into the old file, which nobody can reach any more.
            raise StoreError(
                f"store {self._path}: the file was replaced by another one while it was open; "
                "open it again",
                "gone",
            )
        if self._wal is not None and file_id(f"{self._path}-wal") != self._wal:
            raise StoreError(
                f"store {self._path}: its -wal file was replaced while it was open, and with it "
                "what was written last; restore a copy of the store",
                "gone",
            )

    def _open(self) -> apsw.Connection:
        connection = connect(self._path, self._world, self._busy_timeout)
        try:
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA fullfsync=ON")  # macOS: a sync that reaches the disk
        except BaseException:
            disconnect(connection)
            raise
        self._durable = False
        return connection

    def _set_durable(self, writer: apsw.Connection, durable: bool) -> None:
        """Choose what the next commit survives. SQLite ignores this inside a transaction."""
        if durable != self._durable:
            writer.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable

    def _try_together(
        self, writer: apsw.Connection, items: Sequence[Item[object]]
    ) -> list[object | Exception] | None:
        """All items in one transaction; None, and nothing written, if one of them spoils it."""
        tx = SqliteTx(writer, self._queries)
        results: list[object | Exception] = []
        writer.execute("BEGIN IMMEDIATE")
        for item in items:
            changes = writer.total_changes()
            try:
                results.append(item.apply(tx))
            except Exception as exc:
                if isinstance(exc, apsw.Error) and in_trouble(exc):
                    raise
                if not isinstance(exc, OutlastError) or writer.total_changes() != changes:
                    self._roll_back(writer)
                    return None
                results.append(exc)
        writer.execute("COMMIT")
        return results

    def _alone(self, writer: apsw.Connection, item: Item[object]) -> object | Exception:
        """One item in a transaction of its own."""
        try:
            writer.execute("BEGIN IMMEDIATE")
            result = item.apply(SqliteTx(writer, self._queries))
            writer.execute("COMMIT")
            return result
        except apsw.Error as exc:
            error = store_error(exc, self._path, writer)
            self._roll_back(writer)
            return error
        except Exception as exc:
            self._roll_back(writer)
            return exc

    def _roll_back(self, writer: apsw.Connection) -> None:
        # SQLite has already rolled back by itself after some errors (a full disk, for one).
        if writer.in_transaction:
            writer.execute("ROLLBACK")

    def _tidy(self) -> None:
        """Leave no transaction open, whatever happened. A connection that cannot even roll back
        is given up; the next write opens another one."""
        writer = self._writer
        if writer is None:
            return
        try:
            self._roll_back(writer)
        except apsw.Error:
            self._writer = None
            disconnect(writer)
