"""Trouble with the file or the disk: one clear error, nothing half-written, and on it goes."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from outlast.errors import StoreError
from outlast.store import Store, open_store
from outlast.store.sqlite import SqliteDatabase
from tests.store.helpers import (
    Append,
    Raises,
    assert_intact,
    output_of,
    python,
    query,
    seqs,
    url_of,
)

# Writes until the disk is full, asks for space, and goes on with the same store. `free` is given.
FILL = """
import sys
from pathlib import Path
from outlast.errors import StoreError
from outlast.store import open_store
from tests.store.helpers import Raises, Append, assert_intact, seqs

{free}
path = Path(sys.argv[1])
store = open_store(f"sqlite:///{{path}}")
acknowledged, problem = [], None
while problem is None:
    assert len(acknowledged) < 1000
    try:
        acknowledged.append(store.write(Append(len(acknowledged) + 1, size=9000), durable=True))
    except StoreError as exc:
        problem = exc.problem
assert problem == "full", problem
try:
    store.write(Append(5000, size=9000), durable=True)
except StoreError as exc:
    assert exc.problem == "full"
else:
    raise AssertionError("there was space after all")
assert seqs(path) == acknowledged
free()
acknowledged.append(store.write(Append(len(acknowledged) + 1, size=90000), durable=True))
store.close()
assert seqs(path) == acknowledged
assert_intact(path)
print("ok")
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(url_of(tmp_path / "a.db"))
    yield store
    store.close()


def problem_of(action: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        action()
    assert "a.db" in str(caught.value)
    return caught.value.problem


def write(store: Store, seq: int) -> Callable[[], object]:
    return lambda: store.write(Append(seq), durable=True)


def writer_of(store: Store) -> apsw.Connection:
    database = store._database
    assert isinstance(database, SqliteDatabase)
    assert database._writer is not None
    return database._writer


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Take the right to write away; from root, whom permissions do not bind, by an attribute."""
    if os.geteuid() != 0:
        mode = path.stat().st_mode
        path.chmod(mode & ~0o222)
        yield
        path.chmod(mode)
        return
    if not shutil.which("chattr") or subprocess.run(["chattr", "+i", path]).returncode:
        pytest.skip("as root, on a file system that knows no immutable files")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


def test_a_full_database_leaves_nothing_and_goes_on(store: Store) -> None:
    write(store, 1)()
    writer = writer_of(store)
    ((pages,),) = writer.execute("PRAGMA page_count").fetchall()
    writer.execute(f"PRAGMA max_page_count={pages}").fetchall()
    large = Append(2, size=100_000)
    assert problem_of(lambda: store.write(large, durable=True)) == "full"
    assert seqs(Path(store.path)) == [1]
    writer.execute("PRAGMA max_page_count=100000").fetchall()
    store.write(large, durable=True)
    assert seqs(Path(store.path)) == [1, 2]


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    free = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))\n"
        "def free():\n"
        "    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)\n"
    )
    assert output_of(python(FILL.format(free=free), tmp_path / "a.db")) == "ok\n"


def test_a_full_disk(tmp_path: Path) -> None:
    # A mount of its own, seen by the child alone, which ends with it.
    mount = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path))
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"]).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    free = (
        "ballast = Path(sys.argv[1]).with_name('ballast')\n"
        "ballast.write_bytes(bytes(500_000))\n"
        "free = ballast.unlink\n"
    )
    assert output_of(python(FILL.format(free=free), tmp_path / "a.db", prefix=prefix)) == "ok\n"


def test_a_read_only_mount(tmp_path: Path) -> None:
    open_store(url_of(tmp_path / "a.db")).close()
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path))
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"]).returncode:
        pytest.skip("mounting is not allowed here")
    code = (
        "import sys\n"
        "from outlast.errors import StoreError\n"
        "from outlast.store import open_store\n"
        "for name in ('a.db', 'new.db'):\n"
        "    try: open_store(f'sqlite:///{sys.argv[1]}/{name}')\n"
        "    except StoreError as exc: print(exc.problem)\n"
    )
    assert output_of(python(code, tmp_path, prefix=prefix)) == "read-only\nread-only\n"


def test_a_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(url_of(path)).close()
    with unwritable(path):
        assert problem_of(lambda: open_store(url_of(path))) == "read-only"
    open_store(url_of(path)).close()


def test_a_read_only_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with unwritable(tmp_path):
        assert problem_of(lambda: open_store(url_of(path))) == "read-only"
    open_store(url_of(path)).close()
    with unwritable(tmp_path):  # the log cannot be made
        assert problem_of(lambda: open_store(url_of(path))) == "read-only"
    open_store(url_of(path)).close()


def test_a_file_deleted_between_two_writes(store: Store, tmp_path: Path) -> None:
    write(store, 1)()
    aside = tmp_path / "aside"
    aside.mkdir()
    Path(store.path).rename(aside / "a.db")
    assert problem_of(write(store, 2)) == "gone"
    assert problem_of(lambda: store.read("count_steps", run_id="r")) == "gone"
    (aside / "a.db").rename(store.path)
    write(store, 2)()
    assert seqs(Path(store.path)) == [1, 2]


def test_a_file_replaced_between_two_writes(store: Store, tmp_path: Path) -> None:
    write(store, 1)()
    open_store(url_of(tmp_path / "other.db")).close()
    (tmp_path / "other.db").rename(store.path)
    assert problem_of(write(store, 2)) == "gone"
    assert problem_of(lambda: store.read("count_steps", run_id="r")) == "gone"


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    for seq in range(1, 50):
        store.write(Append(seq, size=1000), durable=False)
    store.close()
    whole = path.read_bytes()
    half = len(whole) // 2  # behind the schema
    path.write_bytes(whole[:half] + b"\xff" * (len(whole) - half))
    store = open_store(url_of(path))
    assert problem_of(lambda: store.read("read_events", run_id="r")) == "damaged"
    assert problem_of(write(store, 60)) == "damaged"
    store.close()


def test_a_connection_that_cannot_roll_back_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(connection: apsw.Connection) -> None:
        raise apsw.IOError("the disk is on fire")

    database = store._database
    assert isinstance(database, SqliteDatabase)
    first = writer_of(store)
    monkeypatch.setattr(database, "_roll_back", fails)
    assert problem_of(lambda: store.write(Raises(ValueError("a bug"), seq=1), durable=True)) == "io"
    assert database._writer is None
    monkeypatch.undo()
    store.write(Append(2), durable=True)
    assert writer_of(store) is not first
    assert seqs(Path(store.path)) == [2]


def test_a_lock_that_is_never_given_back(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path, "?busy_timeout=0.05"))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    assert problem_of(write(store, 1)) == "busy"
    assert store.read("read_events", run_id="r") == []  # readers do not mind
    other.execute("COMMIT")
    other.close()
    write(store, 1)()
    store.close()
    assert seqs(path) == [1]


def test_a_closed_store(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    store.close()
    store.close()
    assert store.closed
    assert problem_of(write(store, 1)) == "closed"
    assert problem_of(lambda: store.write_now(Append(1))) == "closed"
    assert problem_of(lambda: store.submit(Append(1), durable=True)) == "closed"
    assert problem_of(lambda: store.read("last_run")) == "closed"
    assert query(tmp_path / "a.db", "SELECT count(*) FROM events") == [(0,)]


def test_many_processes_write_at_once_and_none_starves(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(url_of(path)).close()
    code = (
        "import sys\n"
        "from outlast.store import open_store\n"
        "from tests.store.helpers import Raises, Append\n"
        "store = open_store(f'sqlite:///{sys.argv[1]}')\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for seq in range(1, 151):\n"
        "    store.write(Append(seq, run=sys.argv[2]), durable=seq % 3 == 0)\n"
        "store.close()\n"
    )
    children = [python(code, path, number) for number in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        output_of(child)
    for number in range(4):
        assert seqs(path, str(number)) == list(range(1, 151))
    assert_intact(path)


def test_a_log_file_that_is_removed_under_an_open_store_is_noticed(tmp_path: Path) -> None:
    # SQLite would go on writing into the removed one, and a crash would lose all of it.
    store = open_store(url_of(tmp_path / "store.db"))
    store.write(Append(1), durable=True)
    (tmp_path / "store.db-wal").unlink()
    with pytest.raises(StoreError) as refused:
        store.write(Append(2), durable=True)
    assert refused.value.problem == "gone"
    assert "-wal" in str(refused.value)


# ---- files that are taken away


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store in a folder of its own, which is looked at as one that has not changed lately."""
    monkeypatch.setattr("outlast.store.sqlite.TICK", -60.0)
    (tmp_path / "home").mkdir()
    store = open_store(url_of(tmp_path / "home" / "a.db"))
    store.write(Append(1), durable=True)
    store.write(Append(2), durable=True)
    yield store
    with suppress(StoreError):
        store.close()


def test_a_folder_that_is_away_for_a_moment(apart: Store) -> None:
    home = Path(apart.path).parent
    home.rename(home.with_name("away"))
    for action in (write(apart, 3), lambda: apart.read("last_run")):
        assert problem_of(action) == "gone"
    home.with_name("away").rename(home)
    assert apart.write(Append(3), durable=True) == 3


def test_a_copy_in_the_place_of_the_folder_with_all_its_times(apart: Store) -> None:
    home = Path(apart.path).parent
    times = home.stat()
    shutil.copytree(home, home.with_name("copy"))
    home.rename(home.with_name("old"))
    home.with_name("copy").rename(home)
    os.utime(home, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert problem_of(write(apart, 3)) == "gone"


def test_a_log_that_is_deleted_while_the_time_of_the_folder_is_kept(apart: Store) -> None:
    home = Path(apart.path).parent
    times = home.stat()
    Path(f"{apart.path}-wal").unlink()
    os.utime(home, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert problem_of(write(apart, 3)) == "gone"


def test_an_event_loop_does_not_wait_for_another_process(apart: Store) -> None:
    other = apsw.Connection(apart.path)
    other.execute("BEGIN IMMEDIATE")
    assert apart.write_if_free(Append(3), durable=True) is None
    other.execute("COMMIT")
    other.close()
    assert apart.write_if_free(Append(3), durable=True) == 3


def test_a_log_that_is_gone_right_after_the_first_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the system says, a caller hears of the store, and no workflow of a missing file."""

    def gone() -> int:
        raise FileNotFoundError(2, "no such file")

    monkeypatch.setattr(store._database, "_log", None)
    monkeypatch.setattr(store._database, "_open_log", gone)
    assert problem_of(write(store, 1)) == "io"
