"""The store in trouble: busy, on the wrong disk, forked, full, or of a newer library."""

import contextlib
import hashlib
import signal
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import apsw
import pytest

import outlast
from outlast.store import filesystems
from outlast.store.migrations import load_migrations
from outlast.store.open import open_store
from outlast.worker.stores import get_store
from tests.ownership.children import children, events, kinds, lines, until

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


executed: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    executed.clear()


def in_body(name: str) -> None:
    """Called in each step's body; tests put something here."""


@outlast.step
def first(size: int) -> str:
    executed.append("first")
    in_body("first")
    return "x" * size


@outlast.step
def second(size: int) -> str:
    executed.append("second")
    in_body("second")
    return "y" * size


@outlast.step(effect="once")
def pay(size: int) -> str:
    executed.append("pay")
    in_body("pay")
    return "paid" * size


@outlast.workflow
def job(size: int) -> int:
    return len(first(size)) + len(pay(size)) + len(second(size))


@outlast.workflow
def filler() -> None:
    """Its runs only take up room."""


# ---- busy


def contend(folder: Path, runs: int, steps: int, held: float) -> None:
    url = f"sqlite:///{folder}/store.db"
    client = outlast.Client(url)
    options = {"store": url, "folder": str(folder), "runs": runs, "steps": steps}
    reader = apsw.Connection(str(folder / "store.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM runs").fetchall()  # a snapshot that stays open
    until_time = time.monotonic() + held
    with children() as start:
        workers = [start(PROGRAMS / "contending.py", {**options, "name": n}) for n in "ab"]
        while any(worker.process.poll() is None for worker in workers):
            client.runs()
            client.unfinished()
            if time.monotonic() > until_time and reader.in_transaction:
                reader.execute("COMMIT")
        for worker in workers:
            assert worker.end().get("ok"), worker.stderr
    if reader.in_transaction:
        reader.execute("COMMIT")
    reader.close()
    counts = Counter(lines(folder / "log"))
    assert len(counts) == 2 * runs * steps
    assert set(counts.values()) == {1}, "no step runs again since its checkpoint was busy"
    assert {view.status for view in client.runs(limit=2 * runs)} == {"completed"}
    # With the reader gone, the log is used from its start again instead of growing for ever.
    outlast.run(job, 1, store=url)
    log = folder / "store.db-wal"
    before = log.stat().st_size
    for _ in range(50):
        outlast.run(job, 1, store=url)
    assert log.stat().st_size <= max(before, 8 * 1024 * 1024)


def test_contending_processes_see_no_lock_error_and_repeat_nothing(tmp_path: Path) -> None:
    contend(tmp_path, runs=10, steps=5, held=1.0)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_contending_processes_for_minutes(tmp_path: Path) -> None:
    contend(tmp_path, runs=20, steps=1500, held=10.0)


# ---- network file systems


def test_a_store_on_a_network_file_system_is_refused_before_the_first_write(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "filesystem_of", lambda path: "nfs4")
    with pytest.raises(outlast.StoreError, match="nfs4") as caught:
        outlast.run(job, 1, run_id="r", store=url)
    assert executed == []
    assert list(tmp_path.iterdir()) == []
    assert "unsafe_filesystem=nfs4" in str(caught.value), "the way out is named"
    # Only that type is let through, by its name.
    with pytest.raises(outlast.StoreError):
        outlast.run(job, 1, run_id="r", store=f"{url}?unsafe_filesystem=cifs")
    assert outlast.run(job, 1, run_id="r", store=f"{url}?unsafe_filesystem=nfs4") == 6


def test_an_unknown_file_system_gives_one_warning(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "filesystem_of", lambda path: "brandnewfs")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outlast.run(job, 1, store=url)
        outlast.run(job, 1, store=url)
    assert len([w for w in caught if "brandnewfs" in str(w.message)]) == 1


# ---- fork


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_forked_child_leaves_its_parents_store_alone(
    tmp_path: Path, url: str, rounds: int
) -> None:
    with children() as start:
        said = start(PROGRAMS / "forking.py", {"store": url, "rounds": rounds}).end()
    answers, seen_by_a_program, terminated = said["result"]  # type: ignore[misc]
    # The parent's own run just stops in the child, by the exception that unwinds a workflow.
    assert [kind for kind, _ in answers] == ["StoreError", "StopRun", "StoreError"]
    assert all("forked" in text for _, text in answers)
    assert seen_by_a_program == 1
    assert terminated == -signal.SIGTERM, "a child ends as if it were no part of the run"
    client = outlast.Client(url)
    assert client.run("r").status == "completed"
    assert kinds(client.journal("r")).count("step.completed") == rounds + 2
    assert client.verify("r")[0].ok
    connection = apsw.Connection(str(tmp_path / "store.db"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


# ---- full


def limit_pages(url: str, pages: int) -> None:
    """As a disk with room for so many pages would; 0 lifts the limit."""
    database = get_store(url).store._database
    database._writer.execute(f"PRAGMA max_page_count={pages or 2**31 - 2}")  # type: ignore[attr-defined]


def test_a_full_disk_stops_the_run_at_any_checkpoint_and_it_goes_on_afterwards(
    tmp_path: Path,
) -> None:
    size = 6_000
    where: set[str] = set()
    problems: set[str] = set()
    for room in range(40):
        executed.clear()
        url = f"sqlite:///{tmp_path}/store-{room}.db"
        outlast.submit(job, size, run_id="r", store=url)
        opened = get_store(url)
        used = opened.store._database._writer.execute("PRAGMA page_count").fetchall()[0][0]  # type: ignore[attr-defined]
        limit_pages(url, used + room)
        client = outlast.Client(url)
        try:
            assert outlast.run(job, size, run_id="r", store=url) == 6 * size
        except outlast.StoreError as problem:
            problems.add(problem.problem)
            where.add(kinds(client.journal("r"))[-1])
            assert [view.run_id for view in client.runs()] == ["r"], "listing still works"
            assert client.verify("r")[0].ok, "no half checkpoint"
            assert "step.failed" not in kinds(client.journal("r")), "no tool's fault"
            assert len(executed) == len(set(executed)), "no retries"
            limit_pages(url, 0)
            resume(url, size)
        else:
            break
    else:
        pytest.fail("the disk was always full")
    assert where, "the disk was never full"
    assert problems == {"full"}


@pytest.mark.parametrize("when", ["first", "pay", "second"])
def test_a_disk_that_fills_up_in_a_step_to_the_last_byte(
    url: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    size = 20_000  # small results still find room in pages that are in use
    outlast.submit(job, size, run_id="r", store=url)

    def fill(name: str) -> None:
        if name != when or executed.count(name) > 1:
            return
        limit_pages(url, 1)  # not below what is in use
        with contextlib.suppress(outlast.StoreError):
            while True:
                outlast.submit(filler, store=url)

    monkeypatch.setitem(globals(), "in_body", fill)
    with pytest.raises(outlast.StoreError) as caught:
        outlast.run(job, size, run_id="r", store=url)
    assert caught.value.problem == "full"
    client = outlast.Client(url)
    journal = client.journal("r")
    started = [e.seq for e in journal if e.kind == "step.started"]
    assert started[-1] == max(e.seq for e in journal if (e.key or "").startswith(when))
    assert "step.failed" not in kinds(journal), "no tool's fault"
    assert executed[-1] == when, "nothing begins afterwards"
    assert client.unfinished()[0] == "r"
    limit_pages(url, 0)
    resume(url, size)


def resume(url: str, size: int) -> None:
    """With space free again: one result, and what was open is treated by its effect."""
    client = outlast.Client(url)
    paid_unrecorded = "pay" in executed and not any(
        e.kind == "step.completed" and (e.key or "").startswith("pay") for e in client.journal("r")
    )
    if paid_unrecorded:
        with pytest.raises(outlast.RunHeld):
            outlast.run(job, size, run_id="r", store=url)
        client.settle("r", "pay#1", outlast.Done("paid" * size))
    assert outlast.run(job, size, run_id="r", store=url) == 6 * size
    assert executed.count("pay") == 1
    assert len(events(client.journal("r"), "run.completed")) == 1
    assert client.verify("r")[0].ok


# ---- newer


def test_a_newer_store_is_refused_and_not_a_byte_of_it_changes(tmp_path: Path, url: str) -> None:
    store = open_store(url)
    store.close()
    path = tmp_path / "store.db"
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE store_version SET version = version + 1")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    version = len(load_migrations()) + 1
    before = hashlib.sha256(path.read_bytes()).digest()
    for use in (
        lambda: outlast.run(job, 1, run_id="r", store=url),
        lambda: outlast.submit(job, 1, store=url),
        lambda: outlast.Client(url).runs(),
        lambda: outlast.Client(url).settle("r", "pay#1", outlast.NotDone()),
    ):
        with pytest.raises(outlast.StoreError, match=rf"version {version}") as caught:
            use()
        assert caught.value.problem == "newer"
    assert executed == []
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_many_first_runs_create_the_store_once(tmp_path: Path, url: str) -> None:
    with children() as start:
        options = {"store": url, "folder": str(tmp_path), "runs": 3, "steps": 2}
        workers = [
            start(PROGRAMS / "contending.py", {**options, "name": f"w{n}"}) for n in range(3)
        ]
        for worker in workers:
            assert worker.end().get("ok"), worker.stderr
    assert len(outlast.Client(url).runs()) == 9


# ---- gone


def test_a_store_that_vanishes_under_a_run_stops_it_and_the_run_goes_on_when_it_is_back(
    tmp_path: Path, url: str
) -> None:
    path, away = tmp_path / "store.db", tmp_path / "away"
    away.mkdir()

    @outlast.step
    def vanish() -> str:
        if not executed:
            for file in tmp_path.glob("store.db*"):
                file.rename(away / file.name)
        executed.append("vanish")
        return "v"

    @outlast.workflow
    def work() -> str:
        return vanish()

    with pytest.raises(outlast.StoreError) as caught:
        outlast.run(work, run_id="r", store=url)
    assert caught.value.problem == "gone"
    assert str(path) in str(caught.value)
    for file in away.iterdir():
        file.rename(tmp_path / file.name)
    assert outlast.run(work, run_id="r", store=url) == "v"
    assert executed == ["vanish", "vanish"]


def test_threads_with_a_store_of_their_own_do_not_meet(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/s{n}.db" for n in range(2)]
    threads = [
        threading.Thread(target=outlast.run, args=(job, 1), kwargs={"run_id": "r", "store": u})
        for u in urls
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for u in urls:
        until(lambda u=u: outlast.Client(u).run("r").status == "completed", "both")  # type: ignore[misc]
