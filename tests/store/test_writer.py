"""Group commit, seen from its callers."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

import outlast
from outlast.errors import LostRun, OutlastError, StoreError
from outlast.store import Store, Tx, open_store
from outlast.store.writer import BATCH
from outlast.worker.stores import get_store
from tests.store.helpers import Append, Raises, output_of, python, seqs, url_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(url_of(tmp_path / "a.db"))
    yield store
    store.close()


@contextlib.contextmanager
def held_up(store: Store) -> Iterator[None]:
    """Keeps the writer inside a transaction, so that what is queued meanwhile is one batch."""
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go_on.wait(30)

    store.submit(Append(0, run="hold", before=wait), durable=False)
    assert inside.wait(30)
    try:
        yield
    finally:
        go_on.set()


@dataclass(frozen=True)
class Names:
    """Notes which transaction it was part of."""

    name: str
    transactions: dict[str, Tx]

    def apply(self, tx: Tx) -> str:
        self.transactions[self.name] = tx
        return self.name


class Results:
    """Collects what callbacks were told, and waits for all of them."""

    def __init__(self, expected: int) -> None:
        self.seen: list[object] = []
        self._expected = expected
        self._all = threading.Event()

    def __call__(self, result: object) -> None:
        self.seen.append(result)
        if len(self.seen) == self._expected:
            self._all.set()

    def wait(self) -> list[object]:
        assert self._all.wait(30)
        return self.seen


def test_an_idle_stores_caller_commits_itself(store: Store) -> None:
    threads: list[int] = []
    item = Append(1, before=lambda: threads.append(threading.get_ident()))
    assert store.write(item, durable=True) == 1
    assert threads == [threading.get_ident()]
    assert seqs(Path(store.path)) == [1]


def test_what_is_queued_together_is_committed_together_and_told_in_order(store: Store) -> None:
    transactions: dict[str, Tx] = {}
    results = Results(20)
    with held_up(store):
        for number in range(20):
            store.submit(Names(str(number), transactions), durable=number == 7, done=results)
    assert results.wait() == [str(number) for number in range(20)]
    assert len({id(tx) for tx in transactions.values()}) == 1


def test_a_batch_is_bounded(store: Store) -> None:
    transactions: dict[str, Tx] = {}
    results = Results(BATCH + 1)
    with held_up(store):
        for number in range(BATCH + 1):
            store.submit(Names(str(number), transactions), durable=False, done=results)
    results.wait()
    assert len({id(tx) for tx in transactions.values()}) == 2


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_item_takes_its_batch_to_the_disk_before_anybody_is_told(
    store: Store, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[list[object]] = []
    sync = store._database.sync

    def spy() -> None:
        syncs.append(list(results.seen))
        sync()

    monkeypatch.setattr(store._database, "sync", spy)
    results = Results(2)
    with held_up(store):
        store.submit(Append(1), durable=False, done=results)
        store.submit(Append(2), durable=durable, done=results)
    results.wait()
    assert syncs == ([[]] if durable else [])


def test_others_commit_while_a_commit_is_on_its_way_to_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    def sync() -> None:
        under_way.set()
        assert go_on.wait(30)

    monkeypatch.setattr(store._database, "sync", sync)
    results = Results(1)
    store.submit(Append(1), durable=True, done=results)
    assert under_way.wait(30)
    outsider = apsw.Connection(store.path)  # nor is the file locked against other processes
    outsider.execute("BEGIN IMMEDIATE; ROLLBACK")
    outsider.close()
    assert store.write_now(Append(2)) == 2
    assert results.seen == []
    go_on.set()
    assert results.wait() == [1]


def test_after_a_sync_that_failed_nothing_more_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which commits the disk has is unknown then, and a later sync that succeeds would not tell."""

    def sync() -> None:
        raise StoreError("the disk failed", "io")

    monkeypatch.setattr(store._database, "sync", sync)
    with pytest.raises(StoreError, match="the disk failed"):
        store.write(Append(1), durable=True)
    with pytest.raises(StoreError, match="open it again"):
        store.write(Append(2), durable=False)
    assert seqs(Path(store.path)) == [1]


def test_a_transaction_locks_before_it_reads(store: Store) -> None:
    outsider = apsw.Connection(store.path)

    def write_between() -> None:
        with pytest.raises(apsw.BusyError):
            outsider.execute("BEGIN IMMEDIATE")

    try:
        store.write(Append(1, before=write_between), durable=False)
        with held_up(store):
            store.submit(Append(2, before=write_between), durable=False)
        store.write(Append(3), durable=False)
    finally:
        outsider.close()
    assert sorted(seqs(Path(store.path))) == [1, 2, 3]


def test_a_refusal_is_its_items_own(store: Store) -> None:
    transactions: dict[str, Tx] = {}
    lost = LostRun("r", "taken over")
    results = Results(4)
    with held_up(store):
        store.submit(Names("first", transactions), durable=True, done=results)
        store.submit(Raises(lost), durable=True, done=results)
        store.submit(Append(1), durable=True, done=results)
        store.submit(Names("last", transactions), durable=True, done=results)
    assert results.wait() == ["first", lost, 1, "last"]
    assert transactions["first"] is transactions["last"]
    assert seqs(Path(store.path)) == [1]


@pytest.mark.parametrize(
    "bad",
    [
        Append(1),  # there already
        Raises(ValueError("a bug"), seq=50),
        Raises(OutlastError("refused too late"), seq=50),
    ],
)
def test_a_bad_item_fails_alone(store: Store, bad: Append | Raises) -> None:
    store.write(Append(1), durable=True)
    results = Results(3)
    with held_up(store):
        store.submit(Append(2), durable=True, done=results)
        store.submit(bad, durable=True, done=results)
        store.submit(Append(3), durable=True, done=results)
    first, error, last = results.wait()
    assert (first, last) == (2, 3)
    assert isinstance(error, StoreError if isinstance(bad, Append) else type(bad.error))
    assert seqs(Path(store.path)) == [1, 2, 3]
    with pytest.raises(type(error)):
        store.write(bad, durable=True)
    assert seqs(Path(store.path)) == [1, 2, 3]


def test_trouble_with_the_store_reaches_every_caller_with_an_error_of_its_own(
    store: Store, tmp_path: Path
) -> None:
    results = Results(2)
    with held_up(store):
        store.submit(Append(1), durable=True, done=results)
        store.submit(Append(2), durable=True, done=results)
        Path(store.path).rename(tmp_path / "aside.db")
    one, other = results.wait()
    assert isinstance(one, StoreError)
    assert isinstance(other, StoreError)
    assert one is not other
    assert one.problem == other.problem == "gone"
    (tmp_path / "aside.db").rename(store.path)
    assert store.write(Append(1), durable=True) == 1


def test_threads_that_write_at_once(store: Store) -> None:
    def write(thread: int) -> None:
        for number in range(20):
            store.write(Append(thread * 20 + number), durable=number % 5 == 0)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seqs(Path(store.path)) == list(range(160))


def test_many_tasks_write_with_one_wake_up_per_batch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> tuple[list[int], int]:
        loop = asyncio.get_running_loop()
        wake, count = loop.call_soon_threadsafe, 0

        def counting(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal count
            count += 1
            return wake(*args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
        with held_up(store):
            tasks = [asyncio.create_task(store.awrite(Append(n), durable=True)) for n in range(50)]
            await asyncio.sleep(0)  # each task has queued its item
        return await asyncio.gather(*tasks), count

    results, wakes = asyncio.run(main())
    assert results == list(range(50))
    assert wakes == 1


def test_what_an_event_loop_submits_in_one_pass_is_committed_together_in_its_own_thread(
    store: Store,
) -> None:
    """No other thread has to get Python's lock from the loop for it."""
    transactions: dict[str, Tx] = {}
    threads: set[int] = set()

    class Here(Names):
        def apply(self, tx: Tx) -> str:
            threads.add(threading.get_ident())
            return super().apply(tx)

    async def main() -> list[str]:
        tasks = (store.awrite(Here(str(n), transactions), durable=n % 2 == 0) for n in range(20))
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [str(n) for n in range(20)]
    assert len({id(tx) for tx in transactions.values()}) == 1
    assert threads == {threading.get_ident()}


def test_only_what_need_not_be_told_in_order_is_told_before_an_earlier_commit_reached_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, sync = threading.Event(), store._database.sync

    def slow() -> None:
        assert go_on.wait(30)
        sync()

    monkeypatch.setattr(store._database, "sync", slow)

    async def main() -> list[object]:
        loop, told, all_told = asyncio.get_running_loop(), list[object](), asyncio.Event()

        def done(result: object) -> None:
            told.append(result)
            if len(told) == 3:
                all_told.set()

        store.submit(Append(1), durable=True, done=done, loop=loop)
        await asyncio.sleep(0)
        store.submit(Append(2), durable=False, done=done, loop=loop)
        store.submit(Append(3), durable=False, done=done, loop=loop, ordered=False)
        while 3 not in told:
            await asyncio.sleep(0)
        assert seqs(Path(store.path)) == [1, 2, 3]
        go_on.set()
        await all_told.wait()
        return told

    assert asyncio.run(main()) == [3, 1, 2]


def test_a_large_item_does_not_hold_up_the_loop_that_submits_it(store: Store) -> None:
    threads: list[int] = []

    async def main() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        item = Append(1, before=lambda: threads.append(threading.get_ident()))
        store.submit(item, durable=True, done=lambda _: told.set(), loop=loop, large=True)
        await told.wait()

    asyncio.run(main())
    assert threads != [threading.get_ident()]


def test_a_loop_that_is_stopped_in_mid_pass_loses_nothing(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "b.db"))
    loop = asyncio.new_event_loop()

    def submit_and_stop() -> None:
        store.submit(Append(1), durable=True, loop=loop)
        loop.stop()

    loop.call_soon(submit_and_stop)
    loop.run_forever()
    loop.close()
    assert seqs(tmp_path / "b.db") == []
    store.close()
    assert seqs(tmp_path / "b.db") == [1]


def test_a_refused_disk_leaves_no_gap_behind(store: Store) -> None:
    """What the writer remembers of a run is forgotten with a transaction that SQLite itself rolled
    back."""

    class Remembers(Append):
        def apply(self, tx: Tx) -> int:
            known = tx.memo.get("r", 0)
            tx.memo["r"] = self.seq
            super().apply(tx)
            return known  # type: ignore[return-value]

    assert store.write(Remembers(1), durable=False) == 0
    assert store.write(Remembers(2), durable=False) == 1
    writer: apsw.Connection = store._database._writer  # type: ignore[attr-defined]
    pages = writer.execute("PRAGMA page_count").fetchall()[0][0]
    writer.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError) as full:
        store.write(Remembers(3, size=100_000), durable=False)
    assert full.value.problem == "full"
    assert store.write(Remembers(3), durable=False) == 0
    assert seqs(Path(store.path)) == [1, 2, 3]


def test_what_is_remembered_is_forgotten_once_somebody_else_has_written(store: Store) -> None:
    class Knows(Append):
        def apply(self, tx: Tx) -> int:
            known = len(tx.memo)
            tx.memo["r"] = True
            super().apply(tx)
            return known

    assert store.write(Knows(1), durable=False) == 0
    assert store.write(Knows(2), durable=False) == 1
    outsider = apsw.Connection(store.path)
    outsider.execute("UPDATE runs SET status = 'held'")  # changes nothing, so it says nothing
    assert store.write(Knows(3), durable=False) == 1
    outsider.execute("INSERT INTO prune_permits VALUES ('x', 1)")
    outsider.close()
    assert store.write(Knows(4), durable=False) == 0


def test_nothing_that_was_queued_meanwhile_is_committed_after_a_sync_that_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, under_way, go_on = [], threading.Event(), threading.Event()

    def sync() -> None:
        syncs.append(1)
        under_way.set()
        assert go_on.wait(30)
        if len(syncs) == 1:
            raise StoreError("the disk failed", "io")

    monkeypatch.setattr(store._database, "sync", sync)
    results = Results(3)
    store.submit(Append(1), durable=True, done=results)
    assert under_way.wait(30)
    store.submit(Append(2), durable=True, done=results)
    store.submit(Append(3), durable=False, done=results)
    go_on.set()
    assert [type(result) for result in results.wait()] == [StoreError] * 3
    assert syncs == [1]
    assert seqs(Path(store.path)) == [1]


def test_a_broken_store_can_be_closed_and_tells_whoever_still_waits(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "b.db"))

    def fails() -> None:
        raise StoreError("the disk failed", "io")

    store._database.sync = fails  # type: ignore[method-assign]
    told: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        store.submit(Append(1), durable=False, done=told.append, loop=loop, ordered=False)
        with pytest.raises(StoreError):
            store.write_now(Append(2), durable=True)
        store.close()
        while not told:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert isinstance(told[0], StoreError)
    assert store._database._writer is None  # type: ignore[attr-defined]


def test_an_event_loop_goes_on_while_another_process_keeps_the_store_locked(store: Store) -> None:
    outsider = apsw.Connection(store.path)
    outsider.execute("BEGIN IMMEDIATE")

    async def main() -> int:
        writing = asyncio.create_task(store.awrite(Append(1), durable=True))
        for _ in range(1000):  # it would be locked for the whole time that a lock is waited for
            await asyncio.sleep(0)
        assert not writing.done()
        outsider.execute("COMMIT")
        return await writing

    assert asyncio.run(main()) == 1
    outsider.close()


def test_what_is_remembered_of_runs_that_were_let_go_of_is_forgotten(tmp_path: Path) -> None:
    @outlast.workflow
    def flow() -> None:
        pass

    url = url_of(tmp_path / "b.db")
    for number in range(20):
        outlast.run(flow, run_id=str(number), store=url)
    memo = get_store(url).store._database._memo  # type: ignore[attr-defined]
    assert set(memo) <= {"@control"}  # whether the store is stopped, which is about no run


def test_an_error_reaches_the_task_that_wrote(store: Store) -> None:
    async def main() -> None:
        with pytest.raises(LostRun):
            await store.awrite(Raises(LostRun("r", "gone")), durable=True)

    asyncio.run(main())


def test_a_cancelled_caller_does_not_withdraw_its_item(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with held_up(store):
            task = asyncio.create_task(store.awrite(Append(1), durable=True))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await store.awrite(Append(2), durable=True)

    asyncio.run(main())
    assert seqs(Path(store.path)) == [1, 2]
    assert caplog.text == ""


def test_a_closed_loop_does_not_end_the_writer(store: Store) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        store.submit(Append(1), durable=True, done=lambda _: None, loop=loop)

    results = Results(1)
    with held_up(store):
        asyncio.run(main())
        store.submit(Append(2), durable=True, done=results)
    assert results.wait() == [2]
    assert store.broken is None
    assert seqs(Path(store.path)) == [1, 2]


def test_a_failing_callback_is_reported_and_harms_nobody(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(result: object) -> None:
        raise ZeroDivisionError

    results = Results(1)
    with caplog.at_level(logging.ERROR), held_up(store):
        store.submit(Append(1), durable=True, done=fails)
        store.submit(Append(2), durable=True, done=results)
    assert results.wait() == [2]
    assert "callback" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_writer_leaves_nobody_waiting(store: Store) -> None:
    results = Results(2)
    with held_up(store):
        store.submit(Raises(SystemExit("out of the writer thread")), durable=True, done=results)
        store.submit(Append(1), durable=True, done=results)
    for error in results.wait():
        assert isinstance(error, StoreError)
        assert error.problem == "closed"
    assert store._thread is not None
    store._thread.join(30)
    assert isinstance(store.broken, SystemExit)
    with pytest.raises(StoreError, match="stopped writing"):
        store.write(Append(2), durable=True)
    assert seqs(Path(store.path)) == []


def test_reading_does_not_wait_for_a_commit(store: Store) -> None:
    store.write(Append(1), durable=True)
    with held_up(store):
        assert [row[1] for row in store.read("read_events", run_id="r")] == [1]


def test_close_writes_what_is_queued(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    with held_up(store):
        for seq in range(1, 6):
            store.submit(Append(seq), durable=True)
    store.close(timeout=30)
    assert seqs(tmp_path / "a.db") == [1, 2, 3, 4, 5]


def test_close_gives_up_in_time_and_says_so(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    results = Results(1)
    with held_up(store):
        store.submit(Append(1), durable=True, done=results)
        with pytest.raises(StoreError, match="1 more"):
            store.close(timeout=0.01)
    (error,) = results.wait()
    assert isinstance(error, StoreError)
    assert error.problem == "closed"
    store.close(timeout=30)
    assert seqs(tmp_path / "a.db") == []


def test_what_is_queued_is_written_at_exit(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from outlast.store import open_store\n"
        "from tests.store.helpers import Append\n"
        "store = open_store(f'sqlite:///{sys.argv[1]}')\n"
        "for seq in range(300):\n"
        "    store.submit(Append(seq), durable=True)\n"
    )
    output_of(python(code, tmp_path / "a.db"))
    assert seqs(tmp_path / "a.db") == list(range(300))
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]  # closed in good order


@pytest.mark.parametrize("how", ["own commit", "queued"])
def test_control_c_ends_a_write_that_waits(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.db"
    open_store(url_of(path)).close()
    lock = apsw.Connection(str(path))
    lock.execute("BEGIN IMMEDIATE")
    code = (
        "import sys\n"
        "from outlast.store import open_store\n"
        "from tests.store.helpers import Append\n"
        "store = open_store(f'sqlite:///{sys.argv[1]}?busy_timeout=600')\n"
        "if sys.argv[2] == 'queued':\n"
        "    store.submit(Append(1), durable=True)\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    store.write(Append(2), durable=True)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    child = python(code, path, how)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    lock.execute("ROLLBACK")
    lock.close()
    output_of(child)
    assert 2 not in seqs(path) or how == "queued"
