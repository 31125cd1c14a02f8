"""A folder that a test shares with processes that serve `programs/desk.py`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

import outlast
from outlast.journal import to_event
from outlast.views import read_run
from outlast.worker.stores import get_store
from tests.ownership.children import PATIENCE, kinds, lines, until

DESK = Path(__file__).parent / "programs" / "desk.py"


@dataclass
class Crew:
    """`outlast worker` under test."""

    process: "subprocess.Popen[bytes]"
    said: Path
    ended: dict[int, psutil.Process] = field(default_factory=dict)

    def workers(self) -> list[psutil.Process]:
        """Its worker processes that take up runs, as they have said, and that live."""
        pids = [int(line.split()[2]) for line in lines(self.said) if " serves " in line]
        children = {child.pid: child for child in psutil.Process(self.process.pid).children()}
        return [children[pid] for pid in pids if pid in children]

    def worker(self, pid: int) -> psutil.Process:
        (found,) = [worker for worker in self.workers() if worker.pid == pid]
        return found

    def await_workers(self, number: int) -> None:
        until(lambda: len(self.workers()) == number, f"{number} workers")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(PATIENCE)


@dataclass
class Stage:
    folder: Path
    stack: ExitStack

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    @property
    def client(self) -> outlast.Client:
        return outlast.Client(self.url)

    @property
    def log(self) -> list[list[str]]:
        return [line.split() for line in lines(self.folder / "log")]

    def at_gate(self, name: str) -> int:
        """Wait until a run stands at its gate; the process that it is in."""

        def found() -> list[int]:
            return [int(pid) for what, who, pid in self.log if (what, who) == ("gate", name)]

        return until(found, f"{name} to be at its gate")[-1]

    def open(self, name: str) -> None:
        (self.folder / f"open-{name}").touch()

    def kinds(self, run_id: str) -> list[str]:
        return kinds(self.client.journal(run_id))

    def owner(self, run_id: str) -> object:
        row = read_run(get_store(self.url).store, run_id)
        assert row is not None
        return row.owner

    def stored(self, run_id: str) -> list[outlast.StoredEvent]:
        rows = get_store(self.url).store.read("read_events", run_id=run_id)
        return [to_event(row) for row in rows]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "FOLDER": str(self.folder), "OUTLAST_STORE": self.url}

    def serve(self) -> "subprocess.Popen[str]":
        """A process that serves from a plain `with` block until its stdin is closed."""
        process = subprocess.Popen(
            [sys.executable, str(DESK)],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.stack.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        return process

    def crew(
        self, *options: str, places: tuple[str, ...] = (str(DESK),), patience: float = 10
    ) -> Crew:
        """`outlast worker` on the desk.

        Args:
            patience: seconds after which a lost store is given up.
        """
        said = self.folder / "said"
        program = (
            f"from outlast.worker import crew; crew.PATIENCE = {patience}; "
            "from outlast.__main__ import main; raise SystemExit(main())"
        )
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", program, "worker", *places, *options],
                env=self.env,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
            )
        self.stack.callback(_end, process)
        return Crew(process, said)


def _end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    process.kill()  # its workers end with it
    process.wait()
    pipes: tuple[IO[str] | IO[bytes] | None, ...] = (process.stdin, process.stdout)
    for pipe in filter(None, pipes):
        pipe.close()


@contextmanager
def stage_in(folder: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(folder, stack)
