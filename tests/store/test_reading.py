"""A store that is only read keeps every byte, and a copy that nobody may write to will do."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast.errors import StoreError
from outlast.journal import Evidence
from outlast.store.open import open_store
from outlast.store.reading import open_to_read
from outlast.views import live_runs
from tests.engine.tools import copy_store, url_of

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Without the powers of root, to whom every file is writable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others can reach, unlike pytest's."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def _fill(url: str) -> None:
    """A store with one run, which stands in the log file as long as the store is open."""
    store = open_store(url)
    database = store._database
    connection = database._writer  # type: ignore[attr-defined]
    connection.execute(
        "INSERT INTO runs (run_id, uid, workflow, args, digest, status, tags, trace_id, created_at,"
        " epoch)"
        " VALUES ('r', 'u', 'w', x'', '', 'queued', '{}', '', 1, 0)"
    )


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith("-shm")}


def test_reading_changes_no_byte_and_sees_what_stands_in_the_log(tmp_path: Path) -> None:
    _fill(url_of(tmp_path / "a.db"))
    url = copy_store(url_of(tmp_path / "a.db"), tmp_path / "copy" / "store.db")
    before = _bytes(tmp_path / "copy")
    assert set(before) == {"store.db", "store.db-wal"}
    with open_to_read(url) as store:
        assert live_runs(store, None) == [("r", "w")]
        assert live_runs(store, "another") == []
        with pytest.raises(StoreError) as refused:
            store.write(Evidence("r", 1, 0.0, ()), durable=True)
        assert refused.value.problem == "read-only"
    assert _bytes(tmp_path / "copy") == before


@pytest.mark.parametrize("log", [True, False], ids=["with its log", "without a log"])
def test_a_copy_in_a_folder_that_cannot_be_written_is_read(
    log: bool, folder: Path, tmp_path: Path
) -> None:
    _fill(url_of(tmp_path / "a.db"))
    url = copy_store(url_of(tmp_path / "a.db"), folder / "store.db")
    if not log:
        open_store(url).close()  # what stood in the log is now in the file
    for part in folder.iterdir():
        part.chmod(0o444)
    folder.chmod(0o555)
    before = _bytes(folder)
    with unprivileged(), open_to_read(url) as store:
        assert live_runs(store, None) == [("r", "w")]
    assert _bytes(folder) == before
    assert ("store.db-wal" in before) is log


def test_what_is_no_store_is_refused_and_not_made_one(tmp_path: Path) -> None:
    for name, content in (("no.db", None), ("empty.db", b""), ("text.db", b"text " * 500)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(StoreError) as refused, open_to_read(url_of(path)):
            pass
        assert refused.value.problem == ("gone" if content is None else "not-a-store")
        assert path.exists() is (content is not None)
        assert content is None or path.read_bytes() == content
