"""One run of `programs/gated.py`, in as many processes as a test likes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import outlast
from tests.ownership.children import Child, children, kinds, lines, until

PROGRAM = Path(__file__).parent / "programs" / "gated.py"


@dataclass
class Gated:
    folder: Path
    url: str
    _start: Callable[[Path, Mapping[str, object]], Child]

    def start(self, **options: object) -> Child:
        base = {"store": self.url, "run_id": "r", "folder": str(self.folder)}
        return self._start(PROGRAM, {**base, **options})

    def start_in_body(self, **options: object) -> Child:
        """Start a process and wait until the middle step's body runs in it."""
        child = self.start(**options)
        mark = self.folder / f"in-body.{child.pid}"
        until(lambda: mark.exists() or child.process.poll() is not None, "the body")
        assert mark.exists(), (child.end(), child.stderr)
        return child

    def open_gate(self) -> None:
        """Let the middle step's body end, wherever it runs and from now on."""
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


@contextmanager
def gated_run(folder: Path) -> Iterator[Gated]:
    """The run `r` in the store `store.db` of a folder; its processes are gone afterwards."""
    with children() as start:
        yield Gated(folder, f"sqlite:///{folder}/store.db", start)
