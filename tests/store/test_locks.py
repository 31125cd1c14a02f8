"""Who keeps everybody from writing can be told while he does."""

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from outlast.store.locks import StalledWriter, write_lock_holder

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc/locks")

HOLDS = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
sys.stdin.read()
"""


def test_the_process_in_a_write_transaction_is_named_and_nobody_else(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE t (a)")
    assert write_lock_holder(path) is None
    command = [sys.executable, "-c", HOLDS, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        assert write_lock_holder(path) == holder.pid
        stalled = StalledWriter(path, 5.0)
        assert [stalled.look(now) for now in (0.0, 4.9, 5.0)] == [None, None, holder.pid]
        holder.communicate()
    assert (write_lock_holder(path), stalled.look(6.0)) == (None, None)
    connection.execute("INSERT INTO t VALUES (1)")
    connection.close()


def test_a_process_that_writes_again_and_again_is_not_stalled(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE t (a)")
    stalled = StalledWriter(path, 5.0)
    for now in range(0, 30, 3):
        connection.execute("BEGIN IMMEDIATE")
        assert stalled.look(float(now)) is None
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("COMMIT")
    connection.close()


def test_a_store_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    assert write_lock_holder(str(tmp_path / "none.db")) is None
