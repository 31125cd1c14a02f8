"""Child processes for tests: start one, wait until it has come somewhere, stop it, read its word.

Only processes started here are ever signalled, through their own handle.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from outlast.events import Event, decode
from outlast.records import StoredEvent
from outlast.world import World

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds after which a test gives up: not a measure of speed, only of being stuck."""


def until(condition: Callable[[], T], what: str) -> T:
    """Poll until a condition holds; its value."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.005)


class Child:
    """A Python program that ends with one line of JSON: its result, or its error."""

    def __init__(self, program: Path, options: Mapping[str, object], *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *flags, str(program), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stderr = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stopped(self) -> bool:
        """Whether SIGSTOP has taken effect."""
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> dict[str, object]:
        """Wait for the program; what it said, and its exit code under `code`."""
        out, self.stderr = self.process.communicate(timeout=PATIENCE)
        lines = out.splitlines()
        said: dict[str, object] = json.loads(lines[-1]) if lines else {}
        return {**said, "code": self.process.returncode}


@contextmanager
def children() -> Iterator[Callable[..., Child]]:
    """Start children that are gone when the block ends."""
    started: list[Child] = []

    def start(program: Path, options: Mapping[str, object], *flags: str) -> Child:
        child = Child(program, options, *flags)
        started.append(child)
        return child

    try:
        yield start
    finally:
        for child in started:
            if child.process.poll() is None:
                child.send(signal.SIGCONT)
                child.kill()
            for pipe in (child.process.stdout, child.process.stderr):
                assert pipe is not None
                pipe.close()


def lines(path: Path) -> list[str]:
    """Lines of a log that children append to."""
    return path.read_text().splitlines() if path.exists() else []


def kinds(journal: list[StoredEvent]) -> list[str]:
    return [event.kind for event in journal]


def events(journal: list[StoredEvent], kind: str) -> list[Event]:
    return [decode(event.kind, event.data) for event in journal if event.kind == kind]


class SteppingWorld(World):
    """A world whose wall clock can be set, as an administrator or a time server would."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.pauses: list[float] = []

    def wall(self) -> float:
        return super().wall() + self.offset

    def set_wall(self, seconds: float) -> None:
        self.offset = seconds - super().wall()


class SimulatedWorld(SteppingWorld):
    """A world in which pauses take no time but move the clocks. `on_pause` is called after each."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0.0
        self.on_pause: Callable[[], object] = lambda: None

    def wall(self) -> float:
        return super().wall() + self.ran

    def boot(self) -> float:
        return super().boot() + self.ran

    def pause(self, seconds: float, wake: object = None) -> None:
        self.pauses.append(seconds)
        self.ran += seconds
        self.on_pause()
