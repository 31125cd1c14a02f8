"""A forked child and its parent's store. What the child must not do could damage the file."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.errors import StoreError
from outlast.store import Store, open_store
from tests.store.helpers import Append, assert_intact, output_of, python, seqs, url_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(url_of(tmp_path / "a.db"))
    store.write(Append(1), durable=True)
    yield store
    store.close()


def in_child(action: Callable[[], bool]) -> bool:
    """Whether `action` returned true in a forked child, which then exits without clean-up."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if action() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def is_refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except StoreError as exc:
        return exc.problem == "forked" and "spawn" in str(exc)
    return False


def test_the_parents_store_is_refused(store: Store) -> None:
    # The parent holds every lock, so an action that waited for one would never return.
    actions: list[Callable[[], object]] = [
        lambda: store.write(Append(2), durable=True),
        lambda: store.write_now(Append(2)),
        lambda: store.submit(Append(2), durable=True),
        lambda: store.read("last_run"),
        store.close,
        lambda: store._database.transact([Append(2)]),
        lambda: store._database.read("last_run"),
        store._database.close,
    ]
    with store._lock, store._wake, store._database._read_lock:  # type: ignore[attr-defined]
        for action in actions:
            assert in_child(lambda action=action: is_refused(action))  # type: ignore[misc]
    assert store.write(Append(2), durable=True) == 2
    assert_intact(Path(store.path))


def test_the_file_is_refused_while_the_parent_may_have_it_open(store: Store) -> None:
    # SQLite in the child would take the parent's locks for its own; when the parent then closes
    # the file as the last one that it can see, the child's commits are gone.
    assert in_child(lambda: is_refused(lambda: open_store(store.url)))


def test_another_file_is_welcome(store: Store, tmp_path: Path) -> None:
    def work() -> bool:
        other = open_store(url_of(tmp_path / "b.db"))
        other.write(Append(1), durable=True)
        other.close()
        return True

    assert in_child(work)
    assert seqs(tmp_path / "b.db") == [1]


def test_a_store_closed_before_the_fork_can_be_opened_by_both(tmp_path: Path) -> None:
    url = url_of(tmp_path / "a.db")
    open_store(url).close()

    def work() -> bool:
        store = open_store(url)
        store.write(Append(1), durable=True)
        store.close()
        return True

    assert in_child(work)
    store = open_store(url)
    store.write(Append(2), durable=True)
    store.close()
    assert seqs(tmp_path / "a.db") == [1, 2]


def test_a_child_that_collects_its_garbage_closes_nothing(store: Store) -> None:
    log = Path(store.path + "-wal")

    def forget() -> bool:
        store._database.__dict__.clear()
        store.__dict__.clear()
        gc.collect()
        return log.exists()

    assert in_child(forget)
    assert store.write(Append(2), durable=True) == 2
    assert_intact(Path(store.path))
    assert seqs(Path(store.path)) == [1, 2]


EXITS = """
import os, sys
from pathlib import Path
from outlast.store import open_store
from tests.store.helpers import Append, assert_intact, seqs

path = Path(sys.argv[1])
store = open_store(f"sqlite:///{path}")
store.submit(Append(1), durable=True)
store.write(Append(2), durable=True)
pid = os.fork()
if pid == 0:
    sys.exit(0)  # runs the exit functions and clears every module
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert Path(f"{path}-wal").exists()
store.write(Append(3), durable=True)
store.close()
assert seqs(path) == [1, 2, 3]
assert_intact(path)
"""


def test_a_child_that_exits_in_good_order_closes_nothing(tmp_path: Path) -> None:
    child = python(EXITS, tmp_path / "a.db")
    said, complaints = child.communicate(timeout=60)
    # From Python 3.12 on, Python itself warns of a fork beside threads; nothing else may be said.
    ours = [line for line in complaints.splitlines() if "fork()" not in line]
    assert (said, ours) == ("", [])
    assert child.returncode == 0


def test_a_child_that_outlives_its_parent_closes_nothing(tmp_path: Path) -> None:
    # With the parent gone its locks are gone too: a child that closed would get all it asks for.
    code = (
        "import os, sys\n"
        "from outlast.store import open_store\n"
        "from tests.store.helpers import Append\n"
        "store = open_store(f'sqlite:///{sys.argv[1]}')\n"
        "store.write(Append(1), durable=True)\n"
        "parent = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    while os.getppid() == parent: pass\n"
        "    sys.exit(0)\n"
        "os._exit(0)\n"
    )
    output_of(python(code, tmp_path / "a.db"))  # waits for the grandchild: it shares the pipes
    assert (tmp_path / "a.db-wal").stat().st_size > 0
    assert seqs(tmp_path / "a.db") == [1]
    assert_intact(tmp_path / "a.db")


def _refused_in_worker(url: str) -> bool:
    return is_refused(lambda: open_store(url))


def test_multiprocessing_by_fork_is_refused(store: Store) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_refused_in_worker, (store.url,))
    assert store.write(Append(2), durable=True) == 2
    assert_intact(Path(store.path))


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_a_new_program_shares_the_store(store: Store) -> None:
    code = (
        "import sys\n"
        "from outlast.store import open_store\n"
        "from tests.store.helpers import Append\n"
        "store = open_store(sys.argv[1])\n"
        "store.write(Append(2), durable=True)\n"
    )
    output_of(python(code, store.url))
    assert store.write(Append(3), durable=True) == 3
    assert seqs(Path(store.path)) == [1, 2, 3]
    assert_intact(Path(store.path))
