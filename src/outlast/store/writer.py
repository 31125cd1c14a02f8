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

from outlast.errors import StoreError
from outlast.store.base import Database, Item, Row, SqlValue
from outlast.store.connection import check_process
from outlast.store.delivery import Batch, Entry, deliver, failed, split, tell
from outlast.world import World

T = TypeVar("T")

BATCH = 512
"""Items per commit at most, so that none waits long for the others of its batch."""

QUICK = 0.0005
"""Seconds. A durable commit that takes less is not worth a trip to the writer thread and back."""

SWITCH_INTERVAL = 0.0002
"""Seconds. Who commits gives up Python's lock at every statement. While another thread computes, it
waits for it each time, by default 5 ms: a step that computes would slow all other runs of the
process down twentyfold."""

PYTHONS_OWN = 0.005

_log = logging.getLogger(__name__)


class Store:
    """An open store. Every method may be called from any thread.

    Items are committed one by one by their callers while nobody else writes, and in groups as soon
    as several want to: what an event loop submits in one pass is committed at the end of the pass,
    in the loop's own thread; what comes from elsewhere, by the writer thread. The writer thread
    waits for the disk, and a commit that is on its way there holds up no other.

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
        self._flushing = threading.Lock()  # held while what was committed goes to the disk
        self._wake = threading.Condition()  # guards everything below
        self._queue: deque[Entry] = deque()  # to be committed by the writer thread
        self._committed: deque[Batch] = deque()  # to go to the disk, then to be told of
        self._gathered: dict[asyncio.AbstractEventLoop, list[Entry]] = {}  # of a loop's pass
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
        waiting = self._queue or self._committed or self._gathered
        return not (waiting or self._lock.locked() or self._flushing.locked())

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
        self._check()  # before the lock, which a forked child would wait for in vain
        start = self.world.boot()
        with self._lock:
            self._check_whole()
            results = self._database.transact([item])
        assert results is not None
        (result,) = results
        if durable:
            self._sync_up(start)
        if isinstance(result, Exception):
            raise result
        return cast(T, result)

    def write_if_free(self, item: Item[T], *, durable: bool) -> T | None:
        """`write_now` for an event loop, which has other things to do: None, and nothing written,
        if another thread or process is writing. `item` returns something else than None.
        """
        self._check()
        start = self.world.boot()
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._check_whole()
            results = self._database.transact([item], wait=False)
        finally:
            self._lock.release()
        if results is None:
            return None
        (result,) = results
        if durable:
            self._sync_up(start)
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
        ordered: bool = True,
        large: bool = False,
    ) -> None:
        """Have `item` committed with whatever else comes now; never blocks, cannot be withdrawn.

        Args:
            item: the unit of work.
            durable: see `write`.
            done: called once with the result, or with the exception. The callbacks of ordered items
                run in the order of their commits.
            loop: where `done` is called; by default it is called in the writer thread, where it
                must be quick and must not wait for this store. A loop that is closed by
                then is told nothing.
            ordered: otherwise `done` may be called ahead of those of items that were committed
                before and are still on their way to the disk.
            large: committing it takes long, so that no event loop should do it.

        Raises:
            StoreError: the store is closed or broken.
        """
        self._check()
        entry = Entry(item, durable, cast("Callable[[object], None] | None", done), loop, ordered)
        if loop is None or large or asyncio._get_running_loop() is not loop:
            self._enqueue([entry])
        elif (gathered := self._gathered.get(loop)) is not None:
            gathered.append(entry)
            if self._closed:  # by another thread, which may not have seen it
                self._hand_over([entry])
        else:
            self._gathered[loop] = [entry]
            loop.call_soon(self._commit_gathered, loop)

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        """Rows of a named query, without waiting for a commit that is under way.

        Raises:
            StoreError: the store is in trouble.
        """
        check_process(self._pid, self.path)
        return self._database.read(query, **params)

    def sync(self) -> None:
        """Wait until what any process has committed so far is on the disk: what is read is visible
        before it is durable.

        Raises:
            StoreError: it may not be.
        """
        self._check()
        self._sync_up(self.world.boot())

    def close(self, timeout: float = 5.0) -> None:
        """Write what is queued, then give the file up. A second call does nothing.

        Args:
            timeout: seconds to wait for the writer.

        Raises:
            StoreError: the time was not enough; the callers of what is left are told so too.
        """
        check_process(self._pid, self.path)
        with self._wake:
            gathered = [self._gathered.pop(loop, []) for loop in list(self._gathered)]
        for entries in gathered:  # of loops that were stopped or closed in mid-pass, if any
            self._hand_over(entries)
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
            with self._flushing:
                self._database.close()
            _stores.discard(self)
        finally:
            self._lock.release()

    def _check(self) -> None:
        check_process(self._pid, self.path)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self.path} is closed; open it again", "closed")
        self._check_whole()

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise self._stopped(self._broken)

    def _stopped(self, why: BaseException) -> StoreError:
        error = StoreError(f"store {self.path} stopped writing ({why!r}); open it again", "closed")
        error.__cause__ = why
        return error

    def _enqueue(self, entries: Sequence[Entry] = (), batch: Batch | None = None) -> None:
        """Give the writer thread something to do: entries to be committed, or a committed batch."""
        with self._wake:
            self._check_open()  # close() and a broken writer leave nobody to serve the queue
            if self._thread is None:
                if sys.getswitchinterval() == PYTHONS_OWN:  # a choice of the user's is left alone
                    sys.setswitchinterval(SWITCH_INTERVAL)
                thread = threading.Thread(target=self._serve, name="outlast-writer", daemon=True)
                thread.start()
                self._thread = thread
            self._queue.extend(entries)
            if batch is not None:
                self._committed.append(batch)
            self._wake.notify()

    def _commit_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        """At the end of a pass of an event loop, in its thread. No other thread runs Python code of
        ours meanwhile, so this takes a fraction of what it takes in the writer thread, which has to
        get Python's lock back from the loop after each statement."""
        gathered = self._gathered.pop(loop, [])
        try:
            self._commit_in_loop(loop, gathered)
        except BaseException as exc:  # such as KeyboardInterrupt; whoever waits must not for ever
            deliver(failed(gathered, self._stopped(exc)))
            raise

    def _commit_in_loop(self, loop: asyncio.AbstractEventLoop, gathered: list[Entry]) -> None:
        entries, rest = gathered[:BATCH], gathered[BATCH:]
        if self._broken or self._closed or self._queue or not self._lock.acquire(blocking=False):
            self._hand_over(gathered)
            return
        try:
            batch = self._transact(entries, wait=False)
        finally:
            self._lock.release()
        if batch is None:  # another process writes, and the loop has other things to do
            self._hand_over(gathered)
            return
        if rest:
            self._gathered[loop] = rest
            loop.call_soon(self._commit_gathered, loop)
        now, later = split(batch)
        if later.entries:
            self._hand_over(later.entries, later)
        tell(now.entries, now.results)

    def _hand_over(self, entries: Sequence[Entry], batch: Batch | None = None) -> None:
        """Give entries, or the batch as which they were committed, to the writer thread."""
        try:
            self._enqueue(entries if batch is None else (), batch)
        except StoreError as exc:  # it was closed or broken since
            deliver(failed(entries, exc))

    def _serve(self) -> None:
        """Body of the writer thread."""
        try:
            while True:
                with self._wake:
                    while not (self._queue or self._committed or self._closed):
                        self._wake.wait()
                    if not (self._queue or self._committed):
                        return
                    batches = [*self._committed]
                    self._committed.clear()
                if not batches:
                    with self._lock:  # first the lock, then the batch: it grows while we wait
                        self._check_whole()
                        batch = self._transact(self._take())
                    assert batch is not None
                    batches = [batch]
                for batch in self._to_disk(batches):
                    deliver(batch)
        except BaseException as exc:
            with self._wake:
                self._broken = self._broken or exc
            self._abandon(self._stopped(self._broken))
            if not isinstance(exc, StoreError):  # whoever waited for it was told
                raise

    def _take(self) -> list[Entry]:
        with self._wake:
            return [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]

    def _transact(self, entries: Sequence[Entry], *, wait: bool = True) -> Batch | None:
        """Commit entries; the caller has the lock. None if that would have meant to wait."""
        start = self.world.boot()
        try:
            results = self._database.transact([e.item for e in entries], wait=wait)
            return None if results is None else Batch(entries, results, start)
        except StoreError as exc:
            return failed(entries, exc, start)
        except BaseException as exc:
            deliver(failed(entries, self._stopped(exc)))
            raise

    def _to_disk(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Sync once for all of them."""
        if not any(batch.durable for batch in batches):
            return batches
        try:
            self._sync_up(batches[0].start)
        except BaseException as exc:
            error = exc if isinstance(exc, StoreError) else self._stopped(exc)
            for batch in batches:
                deliver(failed(batch.entries, error))
            raise
        return batches

    def _sync_up(self, start: float) -> None:
        """Wait for the disk, outside of the transaction: others commit meanwhile.

        A sync that failed leaves open which commits the disk has, and a later one that succeeds
        does not tell either. So nothing more is written: who opens the store again finds what is
        there.
        """
        with self._flushing:
            self._check_whole()
            try:
                self._database.sync()
            except StoreError as exc:
                with self._wake:
                    self._broken = exc
                raise
        self._sync += (self.world.boot() - start - self._sync) / 8

    def _abandon(self, error: StoreError) -> int:
        with self._wake:
            left = [*(e for b in self._committed for e in b.entries), *self._queue]
            self._committed.clear()
            self._queue.clear()
        deliver(failed(left, error))
        return len(left)


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
