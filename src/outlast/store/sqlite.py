"""The embedded database: one SQLite file, one connection that writes and one that reads."""

import fcntl
import os
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import cast

import apsw

from outlast.errors import OutlastError, StoreError
from outlast.store.base import Item, Row, SqlValue
from outlast.store.connection import (
    FileId,
    Patience,
    check_process,
    connect,
    disconnect,
    file_id,
    in_trouble,
    store_error,
    system_error,
)
from outlast.world import World

TICK = 0.1
"""Seconds; more than what separates two times of a file system whose clock is coarse."""


SHORT = 0.002
"""Seconds that an event loop may wait for another process's transaction."""

REMEMBERED = 20_000
"""Runs of which something is remembered, at most."""

TOGETHER = (64, 32, 16, 8, 4, 2, 1)
"""Rows of one INSERT. Each statement gives up Python's lock and has to get it back from threads
that run user code, so a hundred of them take many times as long as one with a hundred rows."""


class SqliteTx:
    """An open transaction, see `base.Tx`."""

    def __init__(
        self,
        connection: apsw.Connection,
        queries: Mapping[str, str],
        memo: MutableMapping[str, object],
    ) -> None:
        self.memo = memo
        self._connection = connection
        self._queries = queries
        self._events: list[Row] = []

    def run(self, query: str, /, **params: SqlValue) -> list[Row]:
        if self._events:
            self.flush()
        return cast("list[Row]", self._connection.execute(self._queries[query], params).fetchall())

    def append(self, event: Row) -> None:
        self._events.append(event)

    @property
    def pending(self) -> int:
        """How many events wait to be inserted."""
        return len(self._events)

    def flush(self) -> None:
        """Insert what `append` was given."""
        events, self._events = self._events, []
        done = 0
        for size in TOGETHER:
            while done + size <= len(events):
                insert = _insert(self._queries["append_events"], size)
                self._connection.execute(insert, [*chain(*events[done : done + size])])
                done += size


@cache
def _insert(one: str, rows: int) -> str:
    """The INSERT of one row, for several."""
    head, values, row = one.rstrip(";").rpartition("VALUES")
    return head + values + ",".join([row] * rows)


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
        self._folder = str(Path(path).resolve().parent)
        self._folder_seen: tuple[int, int, int] | None = None
        self._queries = queries
        self._world = world
        self._busy_timeout = busy_timeout
        self._patience = Patience(world, busy_timeout)  # of the writer
        self._pid = os.getpid()
        self._file = file_id(path)
        self._wal: FileId | None = None  # known from the first commit on
        self._log: int | None = None  # descriptor of that file
        self._closed = False
        self._read_lock = threading.Lock()
        self._log_lock = threading.Lock()
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._memo: dict[str, object] = {}
        self._version: int | None = None  # of the file's content, as our last commit left it
        try:
            self._writer = self._open_writer()
            self._reader = self._open()
        except BaseException:
            self.close()
            raise

    def transact(
        self, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        """See `base.Database.transact`."""
        self._check()
        try:
            if self._writer is None:
                self._writer = self._open_writer()
            self._patience.limit = self._busy_timeout if wait else SHORT
            try:
                tx = self._begin(self._writer)
            except apsw.BusyError:
                if wait:
                    raise
                return None
            results = self._try_together(self._writer, tx, items)
            if results is None:
                self._patience.limit = self._busy_timeout
                results = [self._alone(self._writer, item) for item in items]
            if self._log is None:
                self._open_log()
            return results
        except apsw.Error as exc:
            raise store_error(exc, self._path, self._writer) from exc
        except OSError as exc:  # the log is gone right after it was written
            raise system_error(exc, self._path) from exc
        finally:
            self._tidy()

    def sync(self) -> None:
        """See `base.Database.sync`.

        SQLite could do this within the commit (`synchronous=FULL`), and would keep the file locked
        meanwhile. Here other threads and processes write on, and one sync serves them all: it is
        the same call for the same file, the log of all commits since the last checkpoint, and a
        checkpoint makes sure of its own by itself.
        """
        try:
            # If nothing was written from here, others may have.
            log = self._open_log() if self._log is None else self._log
            if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone does not reach the disk
                fcntl.fcntl(log, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(log)
        except FileNotFoundError:
            return  # no log: all of it is in the file itself, and was synced there
        except OSError as exc:
            raise system_error(exc, self._path) from exc

    def _open_log(self) -> int:
        """Raises FileNotFoundError: there is none, as nobody has written since the last close."""
        with self._log_lock:  # a reader may sync while a writer begins
            if self._log is None:
                self._log = os.open(f"{self._path}-wal", os.O_RDONLY)
                self._wal = file_id(f"{self._path}-wal")
            return self._log

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        """See `base.Database.read`."""
        self._check()
        with self._read_lock:
            if self._reader is None:
                self._reader = self._open()
            try:
                rows = self._reader.execute(self._queries[query], params).fetchall()
                return cast("list[Row]", rows)
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
        log, self._log = self._log, None
        if log is not None:
            os.close(log)

    def _check(self) -> None:
        check_process(self._pid, self._path)
        if self._closed:
            raise StoreError(f"store {self._path} is closed; open it again", "closed")
        try:
            # Before every commit. `Path.stat` takes twice the time.
            stat = os.stat(self._folder)  # noqa: PTH116
        except OSError as exc:
            raise StoreError(
                f"store {self._path}: its folder cannot be reached ({exc.strerror}); put it back, "
                "or start with a new store",
                "gone",
            ) from None
        folder = (stat.st_dev, stat.st_ino, stat.st_ctime_ns)
        if folder != self._folder_seen:
            self._check_files(folder)

    def _check_files(self, folder: tuple[int, int, int]) -> None:
        """Notice that the file or its log was replaced or deleted.

        They are looked at only when their folder has changed. On Linux 6.13 and later a file whose
        times were asked for must have exact ones at the next write, and its next sync then writes
        them to the disk too: a commit would take half as long again.

        Args:
            folder: which one it is, and when it was changed last (a time that cannot be set).
        """
        if file_id(self._path) != self._file:
            # SQLite would go on writing into the old file, which nobody can reach any more.
            raise StoreError(
                f"store {self._path}: the file was replaced by another one while it was open; "
                "open it again",
                "gone",
            )
        if self._wal is None:
            return
        if file_id(f"{self._path}-wal") != self._wal:
            raise StoreError(
                f"store {self._path}: its -wal file was replaced while it was open, and with it "
                "what was written last; restore a copy of the store",
                "gone",
            )
        # Within one tick of a coarse clock a second change would leave the same time.
        if self._world.wall() - folder[2] / 1e9 > TICK:
            self._folder_seen = folder

    def _open(self) -> apsw.Connection:
        connection = connect(self._path, self._world, self._busy_timeout)
        try:
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA fullfsync=ON")  # macOS: a sync that reaches the disk
        except BaseException:
            disconnect(connection)
            raise
        return connection

    def _open_writer(self) -> apsw.Connection:
        """The triggers guard the events against other programs. Here every statement is known, and
        none of them changes an event (a test looks), so that a trigger for each insert, more
        than the insert itself takes, is saved."""
        connection = self._open()
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.set_busy_handler(self._patience)
        self._version = None
        return connection

    def _try_together(
        self, writer: apsw.Connection, tx: SqliteTx, items: Sequence[Item[object]]
    ) -> list[object | Exception] | None:
        """All items in one transaction; None, and nothing written, if one of them spoils it."""
        results: list[object | Exception] = []
        for item in items:
            changes = writer.total_changes() + tx.pending
            try:
                results.append(item.apply(tx))
            except Exception as exc:
                if isinstance(exc, apsw.Error) and in_trouble(exc):
                    raise
                wrote = writer.total_changes() + tx.pending != changes
                if not isinstance(exc, OutlastError) or wrote:
                    self._roll_back(writer)
                    return None
                results.append(exc)
        try:
            self._commit(writer, tx)
        except apsw.Error as exc:
            if in_trouble(exc):
                raise
            self._roll_back(writer)
            return None
        return results

    def _alone(self, writer: apsw.Connection, item: Item[object]) -> object | Exception:
        """One item in a transaction of its own."""
        try:
            tx = self._begin(writer)
            result = item.apply(tx)
            self._commit(writer, tx)
            return result
        except apsw.Error as exc:
            error = store_error(exc, self._path, writer)
            self._roll_back(writer)
            return error
        except Exception as exc:
            self._roll_back(writer)
            return exc

    def _begin(self, writer: apsw.Connection) -> SqliteTx:
        writer.execute("BEGIN IMMEDIATE")
        if writer.data_version() != self._version or len(self._memo) > REMEMBERED:
            self._memo.clear()  # another connection has written, or our last transaction failed
        self._version = None
        return SqliteTx(writer, self._queries, self._memo)

    def _commit(self, writer: apsw.Connection, tx: SqliteTx) -> None:
        tx.flush()
        writer.execute("COMMIT")
        self._version = writer.data_version()

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
            if writer.in_transaction:
                self._roll_back(writer)
        except apsw.Error:
            self._writer = None
            disconnect(writer)
