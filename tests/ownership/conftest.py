from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ownership.children import Child, children, kinds, lines, until

import outlast

GATED = Path(__file__).parent / "programs" / "gated.py"


@dataclass
class Gated:
    """One run of the program with the gate, in as many processes as a test likes."""

    folder: Path
    url: str
    _start: Callable[..., Child]

    def start(self, **options: object) -> Child:
        base = {"store": self.url, "run_id": "r", "folder": str(self.folder)}
        return self._start(GATED, {**base, **options})

    def start_in_body(self, **options: object) -> Child:
        """Start a process and wait until the middle step's body runs in it."""
        child = self.start(**options)
        mark = self.folder / f"in-body.{child.pid}"
        until(lambda: mark.exists() or child.process.poll() is not None, "the body")
        assert mark.exists(), child.end()
        return child

    def open_gate(self) -> None:
        (self.folder / "go").touch()

    @property
    def client(self) -> outlast.Client:
        return outlast.Client(self.url)

    @property
    def kinds(self) -> list[str]:
        return kinds(self.client.journal("r"))

    @property
    def executed(self) -> list[str]:
        """The bodies that ran, in order, in all processes."""
        return lines(self.folder / "log")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def gated(tmp_path: Path, url: str) -> Iterator[Gated]:
    with children() as start:
        yield Gated(tmp_path, url, start)
