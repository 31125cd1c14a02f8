"""A program in a folder of its own, run by the command line in a real process, killed by a real
SIGKILL, edited and resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import outlast
from outlast.events import Event, decode
from outlast.worker.stores import get_store
from tests.checkers import check_all

HEAD = """
import os, signal
import outlast

def did(*what):
    text = " ".join(map(str, what))
    with open("effects.log", "a") as log:
        log.write(text + "\\n")
    if os.path.exists("die at " + text):
        os.unlink("die at " + text)
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""Bodies append to a file, and die there once if the test has asked for it."""


def in_colour(text: str, colour: str) -> str:
    """A program written with `async` and `await`, or the same in plain code."""
    if colour == "async":
        return text
    waits = text.replace("await outlast.sleep(60)", "outlast.sleep(60).result()")
    return waits.replace("async def", "def").replace("await ", "")


def line_of(text: str, part: str) -> int:
    """The line in which a text has a part, which must be the only one."""
    (number,) = [n for n, line in enumerate(text.splitlines(), 1) if part in line]
    return number


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def result(self) -> object:
        assert self.code == 0, self
        return json.loads(self.stdout)


class Workshop:
    """A folder with a program, its store and the log of its effects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/store.db"

    def write(self, text: str, file: str = "desk.py") -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, target: str = "desk.py:desk", run_id: str = "r") -> Ended:
        return self.command("run", target, "--id", run_id, "--in-process")

    def resume(self, run_id: str = "r") -> Ended:
        return self.command("resume", run_id, "--in-process")

    def command(self, *words: str) -> Ended:
        return self._start("-m", "outlast", *words)

    def python(self, file: str) -> Ended:
        return self._start(file)

    def _start(self, *words: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={
                **os.environ,
                "OUTLAST_STORE": self.url,
                "NO_COLOR": "1",
                # An edit within the same second and of the same length must be seen.
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def die_at(self, effect: str) -> None:
        (self.folder / f"die at {effect}").touch()

    def effects(self) -> list[str]:
        log = self.folder / "effects.log"
        return log.read_text().splitlines() if log.exists() else []

    def view(self, run_id: str = "r") -> outlast.RunView:
        return outlast.Client(self.url).run(run_id)

    def events(self, kind: str, run_id: str = "r") -> list[Event]:
        journal = outlast.Client(self.url).journal(run_id)
        return [decode(event.kind, event.data) for event in journal if event.kind == kind]

    def keep(self) -> Path:
        """A copy of the folder as it is."""
        copy = self.folder.with_name(self.folder.name + " kept")
        shutil.copytree(self.folder, copy)
        return copy

    def restore(self, copy: Path) -> None:
        """Make the folder what it was, at the place at which the store knows it."""
        get_store(self.url).store.close()
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)

    def close(self) -> None:
        """Check what must hold for every run, whatever happened to it."""
        for run in outlast.Client(self.url).runs():
            check_all(self.url, run.run_id)
        get_store(self.url).store.close()
