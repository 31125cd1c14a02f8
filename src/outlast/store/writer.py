"""The store as the rest of the library sees it: one writer, many callers, group commit."""

import asyncio
import atexit
import concurrent.futures
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from msgspec import Struct

from outlast.errors import StoreError
from outlast.store.base import Database, Item, Row, SqlValue
from outlast.store.connection import check_process
from outlast.world import World

T = TypeVar("T")

BATCH = 512
"""Items per commit at most, so that none waits long for the others of its batch."""

QUICK = 0.0005
"""Seconds. A durable commit that takes less is not worth a trip to the writer thread and back."""

SWITCH_INTERVAL = 0.0005
"""Seconds. The writer thread gives up Python's lock at every statement. While another thread
computes, it waits for it each time, by default 5 ms: a step that computes would slow all other runs
of the process down tenfold."""

PYTHONS_OWN = 0.005

_log = logging.getLogger(__name__)


class _Entry(Struct, frozen=True):
    """A queued item, and who is told what became of it."""

    item: Item[object]
    durable: bool
    done: Callable[[object], None] | None
    loop: asyncio.AbstractEventLoop | None


class Store:
    """An open store. Every method may be called from any thread.

    Items are committed one by one by their callers while nobody else writes, and in groups by the
    writer thread as soon as several want to.

    Attributes:
        url: as given to `open_store`.
        path: absolute path of the file.
        world: clock, dice and ids.
    """

    def __init__(self, database: Database, *, url: str, path: str, world: World) -> None:
        self.url = url
        self.path = path
        self.world = world
        self._database = database
        self._pid = os.getpid()
        self._lock = threading.Lock()  # held during a transaction
        self._wake = threading.Condition()  # guards everything below
        self._queue: deque[_Entry] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._broken: BaseException | None = None
        self._sync = 0.0  # seconds that durable commits take lately
        _stores.add(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def broken(self) -> BaseException | None:
        """What ended the writer thread before its time; None as long as all is well."""
        return self._broken

    @property
    def idle(self) -> bool:
        """Whether nothing is being written and nothing is queued, so that `write_now` would not
        have to wait for this process."""
        return not self._queue and not self._lock.locked()

    @property
    def quick(self) -> bool:
        """Whether an event loop may wait for a durable commit, by what the last ones took."""
        return self._sync < QUICK

    def write(self, item: Item[T], *, durable: bool) -> T:
        """Commit `item` and return its result; blocks.

        Args:
            item: the unit of work.
            durable: the commit survives a power cut; otherwise it survives this process's death.

        Raises:
            StoreError: the store is in trouble; nothing was written.
            Exception: what the item raised.
        """
        self._check()
        if self.idle:
            return self.write_now(item, durable=durable)  # saves two thread switches
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def done(result: T | Exception) -> None:
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.submit(item, durable=durable, done=done)
        return future.result()

    def write_now(self, item: Item[T], *, durable: bool = False) -> T:
        """Commit `item` in this thread, ahead of what is queued; raises as `write` does.

        A visible commit takes some microseconds, so that an event loop may well wait for it.
        """
        self._check()
        with self._lock:
            (result,) = self._transact([item], durable)
        if isinstance(result, Exception):
            raise result
        return cast(T, result)

    async def awrite(self, item: Item[T], *, durable: bool) -> T:
        """Commit `item` without blocking the event loop; raises as `write` does.

        If the caller is cancelled, the item is committed all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def done(result: T | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.submit(item, durable=durable, done=done, loop=loop)
        return await future

    def submit(
        self,
        item: Item[T],
        *,
        durable: bool,
        done: Callable[[T | Exception], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Queue `item` for the writer thread; never blocks, cannot be withdrawn.

        Args:
            item: the unit of work.
            durable: see `write`.
            done: called once with the result, or with the exception. The callbacks of queued items
                run in the order of their commits.
            loop: where `done` is called; by default it is called in the writer thread, where it
                must be quick and must not wait for this store. A loop that is closed by
                then is told nothing.

        Raises:
            StoreError: the store is closed or broken.
        """
        self._check()
        entry = _Entry(item, durable, cast(Callable[[object], None] | None, done), loop)
        with self._wake:
            self._check()  # close() and a broken writer leave nobody to serve the queue
            if self._thread is None:
                if sys.getswitchinterval() == PYTHONS_OWN:  # a choice of the user's is left alone
                    sys.setswitchinterval(SWITCH_INTERVAL)
                thread = threading.Thread(target=self._serve, name="outlast-writer", daemon=True)
                thread.start()
                self._thread = thread
            self._queue.append(entry)
            self._wake.notify()

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        """Rows of a named query, without waiting for a commit that is under way.

        Raises:
            StoreError: the store is in trouble.
        """
        check_process(self._pid, self.path)
        return self._database.read(query, **params)

    def close(self, timeout: float = 5.0) -> None:
        """Write what is queued, then give the file up. A second call does nothing.

        Args:
            timeout: seconds to wait for the writer.

        Raises:
            StoreError: the time was not enough; the callers of what is left are told so too.
        """
        check_process(self._pid, self.path)
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self not in _stores:
            return
        deadline = self.world.boot() + timeout
        if self._thread is not None:
            self._thread.join(timeout)
        if not self._lock.acquire(timeout=max(0.0, deadline - self.world.boot())):
            left = self._abandon(StoreError(f"store {self.path} was closed", "closed"))
            raise StoreError(
                f"store {self.path} could not be closed within {timeout} s: a transaction is "
                f"under way and {left} more were given up; close it again later",
                "busy",
            )
        try:
            self._database.close()
            _stores.discard(self)
        finally:
            self._lock.release()

    def _check(self) -> None:
        check_process(self._pid, self.path)
        if self._closed:
            raise StoreError(f"store {self.path} is closed; open it again", "closed")
        if self._broken is not None:
            raise self._stopped(self._broken)

    def _stopped(self, why: BaseException) -> StoreError:
        error = StoreError(f"store {self.path} stopped writing ({why!r}); open it again", "closed")
        error.__cause__ = why
        return error

    def _serve(self) -> None:
        """Body of the writer thread."""
        try:
            while True:
                with self._wake:
                    while not self._queue and not self._closed:
                        self._wake.wait()
                    if not self._queue:
                        return
                with self._lock:  # first the lock, then the batch: it grows while we wait
                    batch = self._take()
                    results = self._commit(batch)
                _deliver(batch, results)
        except BaseException as exc:
            with self._wake:
                self._broken = exc
            self._abandon(self._stopped(exc))
            raise

    def _take(self) -> list[_Entry]:
        with self._wake:
            return [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]

    def _commit(self, batch: Sequence[_Entry]) -> Sequence[object]:
        durable = any(entry.durable for entry in batch)
        try:
            return self._transact([entry.item for entry in batch], durable)
        except StoreError as exc:
            # Every caller raises its own, or their tracebacks would run into one another.
            return [_copy(exc) for _ in batch]
        except BaseException as exc:
            _deliver(batch, [self._stopped(exc) for _ in batch])
            raise

    def _transact(self, items: Sequence[Item[object]], durable: bool) -> list[object | Exception]:
        start = self.world.boot()
        results = self._database.transact(items, durable=durable)
        if durable:
            self._sync += (self.world.boot() - start - self._sync) / 8
        return results

    def _abandon(self, error: StoreError) -> int:
        with self._wake:
            left = list(self._queue)
            self._queue.clear()
        _deliver(left, [_copy(error) for _ in left])
        return len(left)


def _copy(error: StoreError) -> StoreError:
    copy = StoreError(str(error), error.problem)
    copy.__cause__ = error.__cause__
    return copy


def _deliver(batch: Sequence[_Entry], results: Sequence[object]) -> None:
    """Tell the callers in order, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[_Entry, object]]] = {}
    for entry, result in zip(batch, results, strict=True):
        if entry.loop is None:
            _tell([(entry, result)])
        else:
            loops.setdefault(entry.loop, []).append((entry, result))
    for loop, news in loops.items():
        try:
            loop.call_soon_threadsafe(_tell, news)
        except RuntimeError:
            if not loop.is_closed():
                raise
            # Nobody waits there any more; the items are committed all the same.


def _tell(news: Sequence[tuple[_Entry, object]]) -> None:
    for entry, result in news:
        if entry.done is None:
            continue
        try:
            entry.done(result)
        except Exception:
            # A bad callback must neither end the writer nor keep the news from the others.
            _log.exception("a callback of the store failed")


_stores: set[Store] = set()


def _close_all() -> None:
    """At exit: what is queued is written. A forked child leaves its parent's stores alone."""
    for store in list(_stores):
        if store._pid == os.getpid():
            try:
                store.close()
            except StoreError:
                _log.exception("the store could not be closed at exit")


atexit.register(_close_all)
