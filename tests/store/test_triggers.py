"""The journal is append-only for whoever opens the file, not just for this library."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from outlast.store import open_store
from tests.store.helpers import Append, seqs, url_of

COLUMNS = "events (run_id, seq, kind, data, at, epoch, hash)"
ROW = "('r', 1, 'forged', x'', 1.0, 1, x'')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    store.write(Append(1), durable=False)
    store.write(Append(1, run="other"), durable=False)
    store.close()
    return path


@pytest.fixture
def outsider(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET data = x''",
        "UPDATE OR REPLACE events SET seq = 2",
        "DELETE FROM events",
        "DELETE FROM events WHERE run_id = 'r'",
        f"INSERT INTO {COLUMNS} VALUES {ROW}",
        f"REPLACE INTO {COLUMNS} VALUES {ROW}",
        f"INSERT OR REPLACE INTO {COLUMNS} VALUES {ROW}",
        f"INSERT INTO {COLUMNS} VALUES {ROW} ON CONFLICT DO UPDATE SET kind = 'forged'",
    ],
)
def test_events_cannot_be_changed(path: Path, outsider: apsw.Connection, sql: str) -> None:
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        outsider.execute(sql)
    assert outsider.execute("SELECT DISTINCT kind FROM events").fetchall() == [("test",)]
    assert seqs(path) == [1]


def test_a_permit_lets_one_runs_events_be_deleted(path: Path, outsider: apsw.Connection) -> None:
    outsider.execute("INSERT INTO prune_permits VALUES ('r', 1.0)")
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        outsider.execute("DELETE FROM events")
    outsider.execute("DELETE FROM events WHERE run_id = 'r'")
    outsider.execute("DELETE FROM prune_permits")
    assert seqs(path) == []
    assert seqs(path, "other") == [1]


def test_a_status_outside_the_seven_words_is_refused(outsider: apsw.Connection) -> None:
    with pytest.raises(apsw.ConstraintError, match="CHECK"):
        outsider.execute(
            "INSERT INTO runs (run_id, uid, workflow, args, digest, status, tags, trace_id,"
            " created_at, epoch)"
            " VALUES ('a', 'u', 'w', x'', '', 'done', '{}', '', 1, 0)"
        )
