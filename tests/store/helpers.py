"""Items, children and looks from outside for the tests of the store."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import apsw

from outlast.store.base import Tx

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Append:
    """Appends event `seq` of run `run`; `size` bytes of data."""

    seq: int
    run: str = "r"
    size: int = 2
    before: Callable[[], object] = lambda: None

    def apply(self, tx: Tx) -> int:
        self.before()
        tx.append((self.run, self.seq, "test", None, b"x" * self.size, 1.0, 1, b"h"))
        return self.seq


@dataclass(frozen=True)
class Raises:
    """Writes event `seq` unless that is None, then raises."""

    error: BaseException
    seq: int | None = None

    def apply(self, tx: Tx) -> int:
        if self.seq is not None:
            Append(self.seq).apply(tx)
        raise self.error


def url_of(path: Path, options: str = "") -> str:
    return f"sqlite:///{path}{options}"


def seqs(path: Path, run: str = "r") -> list[int]:
    """Numbers of a run's events as another program sees them."""
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT seq FROM events WHERE run_id = ? ORDER BY seq", (run,))
        return [cast(int, seq) for (seq,) in rows.fetchall()]
    finally:
        connection.close()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Run SQL as another program would."""
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def assert_intact(path: Path) -> None:
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


def python(code: str, *args: object, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    """Start a child that runs `code` with `args` as `sys.argv[1:]`."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", code, *map(str, args)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(child: "subprocess.Popen[str]", timeout: float = 60) -> str:
    """What a child printed; it must end well."""
    out, err = child.communicate(timeout=timeout)
    assert child.returncode == 0, f"exit code {child.returncode}\n{out}\n{err}"
    return out
