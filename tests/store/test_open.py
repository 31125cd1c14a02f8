import os
import socket
import stat
import warnings
from pathlib import Path
from types import SimpleNamespace

import apsw
import psutil
import pytest

from outlast.errors import OutlastError, StoreError, UsageError
from outlast.store import filesystems, open_store
from outlast.store.connection import check_library
from outlast.store.open import parse_url
from tests.store.helpers import Append, query, url_of


def problem_of(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    return caught.value.problem


def test_a_new_store_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    store.write(Append(1), durable=True)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 3  # the log and its index too
    store.close()


def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///a.db")
    monkeypatch.chdir("/")
    store.write(Append(1), durable=True)
    assert store.path == str(tmp_path / "a.db")
    store.close()


def test_a_symbolic_link_leads_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    store = open_store(url_of(tmp_path / "link.db"))
    store.close()
    assert (tmp_path / "real.db").stat().st_size > 0
    assert (tmp_path / "link.db").is_symlink()


def test_a_path_is_unquoted() -> None:
    assert parse_url("sqlite:////a%20b/c%3F.db").path == "/a b/c?.db"
    assert parse_url("sqlite:////a.db?busy_timeout=0.5").busy_timeout == 0.5


@pytest.mark.parametrize(
    "url",
    [
        "a.db",
        "sqlite://a.db",
        "sqlite:a.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:////a.db#b",
        "sqlite:////a.db?busy_timeout=soon",
        "sqlite:////a.db?busy_timeout=-1",
        "sqlite:////a.db?busy_timeout=nan",
        "sqlite:////a.db?mode=ro",
        "mysql://localhost/x",
        "",
    ],
)
def test_a_wrong_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url)


def test_postgresql_is_announced_for_later() -> None:
    with pytest.raises(UsageError, match="later release"):
        open_store("postgresql://localhost/runs")


def test_places_that_hold_no_store(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("dear diary, " * 500)
    (tmp_path / "short").write_text("xy")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "text", "short", "pipe"):
        assert problem_of(url_of(tmp_path / name)) == "not-a-store", name
    assert (tmp_path / "short").read_text() == "xy"
    assert problem_of(url_of(tmp_path / "nowhere" / "a.db")) == "gone"
    assert problem_of(url_of(tmp_path / "text" / "a.db")) == "gone"


def test_a_socket_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert problem_of("sqlite:///socket") == "not-a-store"


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    query(path, "CREATE TABLE contacts (name)")
    before = path.read_bytes()
    assert problem_of(url_of(path)) == "not-a-store"
    assert path.read_bytes() == before


def test_a_file_that_sqlite_made_but_nobody_filled_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    query(path, "PRAGMA journal_mode=WAL")
    assert path.stat().st_size > 0
    open_store(url_of(path)).close()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_shared_file_system_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(filesystems, "filesystem_of", lambda path: kind)
    with pytest.raises(StoreError, match=f"unsafe_filesystem={kind}"):
        open_store(url_of(tmp_path / "a.db"))
    with pytest.raises(StoreError):
        open_store(url_of(tmp_path / "a.db", "?unsafe_filesystem=other"))
    assert list(tmp_path.iterdir()) == []
    open_store(url_of(tmp_path / "a.db", f"?unsafe_filesystem={kind}")).close()


def test_an_unknown_file_system_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "filesystem_of", lambda path: "newfs")
    with pytest.warns(UserWarning, match="newfs"):
        open_store(url_of(tmp_path / "a.db")).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_store(url_of(tmp_path / "a.db", "?unsafe_filesystem=newfs")).close()
        monkeypatch.setattr(filesystems, "filesystem_of", lambda path: "ext4")
        open_store(url_of(tmp_path / "a.db")).close()


def test_the_innermost_mount_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [("/", "ext4"), ("/data", "xfs"), ("/data/shared", "NFS4"), ("/data", "tmpfs")]
    parts = [SimpleNamespace(mountpoint=root, fstype=kind) for root, kind in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)
    assert filesystems.filesystem_of("/home/a.db") == "ext4"
    assert filesystems.filesystem_of("/database/a.db") == "ext4"
    assert filesystems.filesystem_of("/data/a.db") == "tmpfs"  # mounted over xfs
    assert filesystems.filesystem_of("/data/shared/a.db") == "nfs4"


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("3.44.5", False),
        ("3.44.6", True),
        ("3.45.3", False),
        ("3.50.6", False),
        ("3.50.7", True),
        ("3.51.0", False),
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.54.1", True),
    ],
)
def test_a_sqlite_that_loses_writes_is_refused(
    version: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if good:
        check_library(version)
        return
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(OutlastError, match="WAL-reset"):
        open_store(url_of(tmp_path / "a.db"))
    assert list(tmp_path.iterdir()) == []
