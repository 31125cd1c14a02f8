import shutil
import signal
from pathlib import Path

import apsw
import pytest

from outlast.errors import StoreError
from outlast.store import migrations, open_store
from tests.store.helpers import Append, assert_intact, output_of, python, query, seqs, url_of

EXTRA = (
    "CREATE TABLE extra (x INTEGER) STRICT;\n"
    "INSERT INTO extra VALUES (1);\n"
    "ALTER TABLE runs ADD COLUMN extra TEXT;\n"
)

# Opens argv[1] with argv[2] as a further migration, and is killed before statement argv[3].
KILLED = """
import os, signal, sys
from outlast.store import migrations, open_store

scripts = migrations.load_migrations() + ((sys.argv[2],) if sys.argv[2] else ())
migrations.load_migrations = lambda: scripts
split, left = migrations._statements, int(sys.argv[3])

def killing(script):
    global left
    for statement in split(script):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        yield statement
    if left == 0:  # before the commit
        os.kill(os.getpid(), signal.SIGKILL)

migrations._statements = killing
open_store(sys.argv[1]).close()
"""

RACE = """
import sys
from outlast.store import open_store

print("ready", flush=True)
sys.stdin.readline()
for number in range(5):
    open_store(f"sqlite:///{sys.argv[1]}/{number}.db").close()
"""


def killed_at(path: Path, script: str, statement: int) -> None:
    child = python(KILLED, url_of(path), script, statement)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL


def schema_of(path: Path) -> list[tuple[object, ...]]:
    return query(path, "SELECT type, name, sql FROM sqlite_schema ORDER BY name")


def test_a_new_store_has_the_version_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(url_of(path)).close()
    assert query(path, "SELECT version FROM store_version") == [(1,)]
    assert query(path, "PRAGMA application_id") == [(migrations.APPLICATION_ID,)]
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


def test_every_statement_of_a_script_is_run_once() -> None:
    script = migrations.load_migrations()[0]
    statements = list(migrations._statements(script))
    starts = [line.split()[0] for line in script.splitlines() if line.startswith(("CREATE", "INS"))]
    assert len(statements) == len(starts) == 11
    assert "".join(statements).split() == script.split()


def test_an_older_store_is_brought_up_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    store.write(Append(1), durable=True)
    store.close()
    newer = (*migrations.load_migrations(), EXTRA)
    monkeypatch.setattr(migrations, "load_migrations", lambda: newer)
    for _ in range(2):
        open_store(url_of(path)).close()
    assert query(path, "SELECT * FROM extra") == [(1,)]
    assert query(path, "SELECT version FROM store_version") == [(2,)]
    assert seqs(path) == [1]


@pytest.mark.parametrize("statement", range(11))
def test_killed_while_a_store_is_created(tmp_path: Path, statement: int) -> None:
    path = tmp_path / "a.db"
    killed_at(path, "", statement)
    assert_intact(path)
    assert schema_of(path) == []
    open_store(url_of(path)).close()
    open_store(url_of(tmp_path / "undisturbed.db")).close()
    assert schema_of(path) == schema_of(tmp_path / "undisturbed.db")


@pytest.mark.parametrize("statement", range(4))
def test_killed_while_a_store_is_brought_up(tmp_path: Path, statement: int) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    store.write(Append(1), durable=True)
    store.close()
    before = schema_of(path)
    killed_at(path, EXTRA, statement)
    store = open_store(url_of(path))  # still of the old version, for the old library
    store.write(Append(2), durable=True)
    store.close()
    assert schema_of(path) == before
    assert seqs(path) == [1, 2]
    assert_intact(path)


def test_processes_that_open_a_new_file_at_once_create_it_once(tmp_path: Path) -> None:
    children = [python(RACE, tmp_path) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        output_of(child)
    for number in range(5):
        assert_intact(tmp_path / f"{number}.db")
        assert query(tmp_path / f"{number}.db", "SELECT version FROM store_version") == [(1,)]


@pytest.mark.parametrize("in_log", [False, True])
def test_a_newer_store_is_refused_without_a_byte_changed(tmp_path: Path, in_log: bool) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "copy").mkdir()
    path = tmp_path / "live" / "a.db"
    open_store(url_of(path)).close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE store_version SET version = 99")
    if in_log:  # as a process that was killed leaves it: the version stands in the log only
        for file in ("a.db", "a.db-wal"):
            shutil.copy(tmp_path / "live" / file, tmp_path / "copy" / file)
    connection.close()
    if not in_log:
        shutil.copy(path, tmp_path / "copy" / "a.db")

    def contents() -> dict[str, bytes]:
        files = (tmp_path / "copy").iterdir()
        # The index of the log is shared memory, made anew by whoever looks.
        return {f.name: f.read_bytes() for f in files if not f.name.endswith("-shm")}

    before = contents()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"version 99 .* up to 1") as caught:
            open_store(url_of(tmp_path / "copy" / "a.db"))
        assert caught.value.problem == "newer"
    assert {name: data for name, data in contents().items() if data or name in before} == before


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM store_version",
        "INSERT INTO store_version VALUES (1)",
        "UPDATE store_version SET version = -1",
        "UPDATE store_version SET version = 0",
        "DROP TABLE store_version; CREATE TABLE store_version (version);"
        "INSERT INTO store_version VALUES ('one')",
        "DROP TABLE store_version; CREATE TABLE store_version (version);"
        "INSERT INTO store_version VALUES (NULL)",
        "DROP TABLE store_version; CREATE TABLE store_version (version);"
        "INSERT INTO store_version VALUES (1.5)",
        "DROP TABLE store_version",
        "DROP TABLE store_version; CREATE TABLE store_version (other)",
    ],
)
def test_a_damaged_version_is_refused_and_nothing_changed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.db"
    open_store(url_of(path)).close()
    query(path, damage)
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        open_store(url_of(path))
    assert caught.value.problem == "damaged"
    assert path.read_bytes() == before
