import shutil
import signal
from pathlib import Path

import apsw
import pytest
from msgspec import Raw

from outlast import Client
from outlast.errors import StoreError
from outlast.events import ErrorRecord, RunCreated, RunFailed
from outlast.journal import GENESIS, link
from outlast.store import migrations, open_store
from outlast.world import World
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
    assert query(path, "SELECT version FROM store_version") == [(VERSION,)]
    assert query(path, "PRAGMA application_id") == [(migrations.APPLICATION_ID,)]
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


VERSION = len(migrations.load_migrations())

STARTS = ("CREATE", "INSERT", "DROP", "ALTER")
STATEMENTS = [
    statement
    for script in migrations.load_migrations()
    for statement in migrations._statements(script)
]


def test_every_statement_of_the_scripts_is_run_once() -> None:
    scripts = "".join(migrations.load_migrations())
    starts = [line.split()[0] for line in scripts.splitlines() if line.startswith(STARTS)]
    assert len(STATEMENTS) == len(starts) == 45
    assert "".join(STATEMENTS).split() == scripts.split()


def test_a_store_of_the_first_version_is_brought_up_with_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    first = migrations.load_migrations()[:1]
    with monkeypatch.context() as older:
        older.setattr(migrations, "load_migrations", lambda: first)
        migrations.migrate(str(touched(path)), World(), 5.0)
    connection = apsw.Connection(str(path))
    events = [
        RunCreated(uid="u", workflow="flow", args=Raw(b"{}"), digest="d", trace_id="t"),
        RunFailed(ErrorRecord("ValueError", "no", "workflow")),
    ]
    head = GENESIS
    for seq, event in enumerate(events, start=1):
        head = link(head, "r", seq, event.kind, None, float(seq), 0, event.encode())
        row = ("r", seq, event.kind, None, event.encode(), float(seq), 0, head)
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute(
        "INSERT INTO runs (run_id, uid, workflow, digest, status, tags, trace_id, created_at,"
        " updated_at, seq, head, epoch, args)"
        " VALUES ('r', 'u', 'flow', 'd', 'failed', '{}', 't', 1, 2, 2, ?, 0, x'7b7d')",
        (head,),
    )
    connection.close()
    client = Client(url_of(path))
    view = client.run("r")
    assert (view.status, view.seq, view.head) == ("failed", 2, head.hex())
    assert (view.created_at, view.updated_at) == (1, 2)
    assert client.verify("r")[0].ok
    open_store(url_of(tmp_path / "new.db")).close()
    assert schema_of(path) == schema_of(tmp_path / "new.db")


def touched(path: Path) -> Path:
    path.touch()
    return path


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
    assert query(path, "SELECT version FROM store_version") == [(VERSION + 1,)]
    assert seqs(path) == [1]


@pytest.mark.parametrize("statement", range(len(STATEMENTS)))
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
        assert query(tmp_path / f"{number}.db", "SELECT version FROM store_version") == [(VERSION,)]


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
        with pytest.raises(StoreError, match=rf"version 99 .* up to {VERSION}") as caught:
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
