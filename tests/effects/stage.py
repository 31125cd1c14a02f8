"""What a test and the child processes it starts share: a folder with the store, a log of effects
(one line each, on disk before the next thing happens), and points at which a child kills itself.

The test says `stage.kill_at("sent")`; the next child that comes to `stage.reach("sent")` is gone
there by a real SIGKILL, the one after it passes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import outlast
from outlast.engine.spec import workflow_spec
from outlast.errors import RunStopped
from outlast.journal import ACTIVE
from outlast.views import read_run
from outlast.worker.execution import Plan, run_plan
from outlast.worker.stores import get_store
from outlast.world import World
from tests.checkers import check_all

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 30.0
"""Seconds after which a child that should have ended is taken for a failure of the test."""


@dataclass(frozen=True)
class Played:
    """How a child ended. `outcome` is what it printed about the run; empty if it was killed."""

    killed: bool
    outcome: dict[str, object]
    stderr: str

    @property
    def result(self) -> object:
        assert "result" in self.outcome, (self.outcome, self.stderr)
        return self.outcome["result"]

    @property
    def stopped(self) -> tuple[object, object]:
        """Class of the error that `outlast.run` raised, and the reason of a hold."""
        assert "error" in self.outcome, (self.outcome, self.stderr)
        return self.outcome["error"], self.outcome["reason"]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition holds."""
    world = World()
    end = world.boot() + DEADLINE
    while not condition():
        assert world.boot() < end, f"waited in vain for {what}"
        world.pause(0.005)


class Stage:
    """A folder that a test and its children share."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.url = f"sqlite:///{self.folder}/store.db"
        self._log = self.folder / "effects.log"

    # ---- in the children

    def log(self, *words: object) -> None:
        """Do something outside the store that no rollback takes back."""
        with self._log.open("ab") as file:
            file.write((" ".join(map(str, words)) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def reach(self, point: str) -> None:
        """Die here, once, if the test has asked for it."""
        try:
            (self.folder / f"kill-{point}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def has(self, flag: str) -> bool:
        """Whether the test has set a flag."""
        return (self.folder / f"flag-{flag}").exists()

    def follow_clock(self) -> None:
        """Live in the time that the test has set by `later`."""
        file = self.folder / "clock"
        ahead = float(file.read_text()) if file.exists() else 0.0
        World.wall = lambda world: time.time() + ahead  # type: ignore[method-assign]

    def report(self, start: Callable[[], object]) -> None:
        """Run something and print how it ended."""
        try:
            outcome: dict[str, object] = {"result": start()}
        except (RunStopped, outlast.UsageError) as stop:
            reason = getattr(stop, "reason", None)
            outcome = {"error": type(stop).__name__, "reason": reason, "text": str(stop)}
        print(json.dumps(outcome))

    # ---- in the test

    def kill_at(self, point: str) -> None:
        (self.folder / f"kill-{point}").touch()

    def set(self, flag: str) -> None:
        (self.folder / f"flag-{flag}").touch()

    def later(self, seconds: float) -> None:
        """Children that follow this clock and are started from now on live so much later than the
        ones before. So a wait may be long enough not to end by itself."""
        file = self.folder / "clock"
        file.write_text(str(seconds + (float(file.read_text()) if file.exists() else 0.0)))

    def effects(self) -> list[str]:
        """The log, oldest line first."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def start(self, program: Path, *args: str) -> "subprocess.Popen[str]":
        """Start a program with this folder as its first argument."""
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [sys.executable, str(program), str(self.folder), *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def play(self, program: Path, *args: str) -> Played:
        """Run a program to its end, which may be a SIGKILL."""
        with self.start(program, *args) as child:
            return self.ended(child)

    def ended(self, child: "subprocess.Popen[str]") -> Played:
        """Wait for a child's end."""
        try:
            stdout, stderr = child.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        killed = child.returncode == -signal.SIGKILL
        assert killed or child.returncode == 0, stderr
        return Played(killed, {} if killed else json.loads(stdout.splitlines()[-1]), stderr)

    def client(self) -> outlast.Client:
        return outlast.Client(self.url)

    def step(self, key: str, run_id: str = "run") -> outlast.StepView:
        """One step of a run, as an operator sees it."""
        (found,) = [s for s in self.client().run(run_id).steps if s.key == key]
        return found

    def when(self, kind: str, do: Callable[[], object], run_id: str = "run") -> None:
        """Do something as soon as the journal has an event of this kind."""
        wait_for(
            lambda: bool(self.client().runs()) and kind in self.kinds(run_id=run_id), f"a {kind}"
        )
        do()

    def resume(self, flow: object, run_id: str = "run") -> object:
        """Go on with a held run, as `outlast resume --wait` does."""
        spec = workflow_spec(flow)
        assert spec is not None
        return run_plan(Plan(spec, run_id, resume=True, if_owned="wait"), get_store(self.url))

    def kinds(self, key: str | None = None, run_id: str = "run") -> list[str]:
        """The kinds of a run's events, of one step or of all."""
        events = self.client().journal(run_id)
        return [e.kind for e in events if key is None or e.key == key]

    def _is_free(self, run_id: str) -> bool:
        row = read_run(get_store(self.url).store, run_id)
        return row is not None and (row.owner is None or row.status in ACTIVE)

    def check_runs(self) -> None:
        """Check what must hold for every run, whatever happened to it."""
        for run in self.client().runs():
            # A body that outlived its timeout may be about to end.
            wait_for(partial(self._is_free, run.run_id), "the run to be let go")
            check_all(self.url, run.run_id)
