"""The run `r` of `programs/stoppable.py`, started in processes of its own, and an operator's view
of it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import outlast
from outlast.records import StoredEvent
from tests.ownership.children import Child, children, kinds, lines, until

PROGRAM = Path(__file__).parent / "programs" / "stoppable.py"
ROOT = Path(__file__).parents[2]


@dataclass
class Stoppable:
    folder: Path
    _start: Callable[[Path, Mapping[str, object]], Child]
    _options: dict[str, object]

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    @property
    def client(self) -> outlast.Client:
        return outlast.Client(self.url)

    def start(self, where: str, **options: object) -> Child:
        """Start the run, or go on with it."""
        self._options = {
            "store": self.url,
            "folder": str(self.folder),
            "where": where,
            **options,
        }
        return self._start(PROGRAM, self._options)

    def start_in_body(self, where: str, **options: object) -> Child:
        """Start the run and wait until the body of its first step runs."""
        child = self.start(where, **options)
        mark = self.folder / f"in-body.{child.pid}"
        until(lambda: mark.exists() or child.process.poll() is not None, "the body")
        assert mark.exists(), (child.end(), child.stderr)
        return child

    def open_gate(self) -> None:
        """Let the body end, wherever it runs and from now on."""
        (self.folder / "go").touch()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`outlast WORDS...` on the store of the run, in a process of its own."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            [sys.executable, "-m", "outlast", *words],
            cwd=self.folder,
            env={
                **os.environ,
                "OUTLAST_STORE": self.url,
                "STOPPABLE": json.dumps(self._options),
                "PYTHONPATH": path,
                "NO_COLOR": "1",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def status(self, run_id: str = "r") -> str:
        return self.client.run(run_id).status

    def journal(self, run_id: str = "r") -> list[StoredEvent]:
        return self.client.journal(run_id)

    def kinds(self, run_id: str = "r") -> list[str]:
        return kinds(self.journal(run_id))

    @property
    def executed(self) -> list[str]:
        """What the bodies have said, in order, in all processes."""
        return lines(self.folder / "log")


@contextmanager
def stoppable_run(folder: Path) -> Iterator[Stoppable]:
    """The processes of the run are gone afterwards."""
    with children() as start:
        yield Stoppable(folder, start, {})
