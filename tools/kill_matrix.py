"""The kill matrix: how long it takes until nothing of a killed run runs any more.

`python -m tools.kill_matrix` measures every cell and prints the table; `--write` puts it into
docs/control.md as well. A run hangs in each of the ways of `kill_programs.py`, in each colour,
executed by `outlast run`, by `outlast worker` or by a program of one's own, and is killed by
`outlast kill` from another process, which knows the store and the run id alone.
"""

import argparse
import contextlib
import datetime
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

import outlast
from outlast.processes import Found
from outlast.world import start_ticks
from tools import kill_programs

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tools" / "kill_programs.py"
DOCUMENT = ROOT / "docs" / "control.md"
BEGIN, END = "<!-- kill-matrix:begin -->", "<!-- kill-matrix:end -->"

KINDS = {
    "wait": "waits for ever",
    "sleep": "`time.sleep`, in the loop's thread",
    "busy": "busy Python loop that swallows `BaseException`",
    "regex": "catastrophic regular expression",
    "sum": "`sum(range(10**11))`",
    "thread": "a thread that it has started",
    "stubborn": "a subprocess that ignores TERM",
    "session": "the same in a session of its own",
    "daemon": "the same, forked twice",
}
COLOURS = ("async", "sync")
MODES = ("run", "worker", "own")

PATIENCE = 30.0
"""Seconds for a program to start, and for a command to answer."""

BEYOND = 6.0
"""Seconds beyond the grace after which something is said to run on."""

PACE = 0.005
"""Seconds between two looks."""


class Case(msgspec.Struct, frozen=True):
    """One run to be killed: how it hangs, in which colour, and who executes it."""

    kind: str
    colour: str
    mode: str


class Measured(msgspec.Struct, frozen=True):
    """What came of a kill.

    Attributes:
        status: of the run, once the command had returned.
        fenced: seconds that the transaction of the kill took.
        stopped: seconds from the kill until nothing of the run ran; None if something ran on.
        left: what ran on.
        hard: seconds that `outlast kill --hard` took to end that; None if it was not needed, or
            was of no avail.
        confirmed: the journal says that nothing of it is executed, and the run has no owner.
        code: exit code of the program that executed the run, if it has ended by itself.
    """

    case: Case
    status: str
    stopped: float | None
    left: tuple[str, ...] = ()
    hard: float | None = None
    confirmed: bool = False
    code: int | None = None


# ---- one case


class Stage:
    """A folder with a store, a program that executes a run in it, and the pieces of that run."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.url = f"sqlite:///{folder}/store.db"
        self.pieces: dict[str, Found] = {}
        self._seen: set[Found] = set()

    def __enter__(self) -> "Stage":
        with (self.folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self._note(self.process.pid)
        return self

    def _command(self) -> list[str]:
        case, folder, python = self.case, str(self.folder), sys.executable
        arguments = msgspec.json.encode([case.kind, folder]).decode()
        target = f"{PROGRAM}:hang_{case.colour}"
        match case.mode:
            case "run":
                options = ["--id", "r", "--store", self.url]
                return [python, "-m", "outlast", "run", target, arguments, *options]
            case "worker":
                hang = getattr(kill_programs, f"hang_{case.colour}")
                outlast.submit(hang, case.kind, folder, run_id="r", store=self.url)
                return [python, "-m", "outlast", "worker", str(PROGRAM), "--store", self.url]
            case _:
                return [python, str(PROGRAM), case.colour, case.kind, folder]

    def wait_until_it_hangs(self) -> None:
        """All pieces run."""
        names = ["body"]
        names += ["thread"] if self.case.kind == "thread" else []
        names += ["child"] if self.case.kind in ("stubborn", "session", "daemon") else []
        files = {name: self.folder / f"{name}.pid" for name in names}
        begun = until(lambda: self._has_ended() or all(map(Path.exists, files.values())), PATIENCE)
        if self._has_ended() or not begun:
            said = (self.folder / "stderr").read_text()
            raise RuntimeError(f"{self.case}: its step has not come up: {said}")
        for name, file in files.items():
            self.pieces[name] = self._note(int(file.read_text()))
        self.look()

    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def running(self) -> list[str]:
        """The pieces that run still."""
        return [
            name
            for name, process in self.pieces.items()
            if process.alive and not (self.folder / f"{name}.ended").exists()
        ]

    def look(self) -> None:
        """Remember every process that came from here, so that it can be ended at last."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._note(child.pid)

    def _note(self, pid: int) -> Found:
        found = Found(pid, start_ticks(pid) or -1)
        self._seen.add(found)
        return found

    def __exit__(self, *exc: object) -> None:
        """End whatever is left, each by its pid and start time."""
        if not self._has_ended():
            self.look()
        for process in self._seen:
            if process.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, 9)
        self.process.wait()


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again whether something holds; whether it did in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(PACE)
    return True


def measure(case: Case, folder: Path, grace: float, beyond: float = BEYOND) -> Measured:
    """Let a run hang, kill it, and see what comes of that, for so many seconds beyond the grace."""
    with Stage(case, folder) as stage:
        stage.wait_until_it_hangs()
        killing = command("kill", "r", "--grace", f"{grace:g}", "--store", stage.url)
        client = outlast.Client(stage.url)
        until(lambda: client.run("r").status == "killed", PATIENCE)
        gone = until(lambda: not stage.running(), grace + beyond)
        at = time.time()
        killed = [event.at for event in client.journal("r") if event.kind == "run.killed"]
        left = tuple(stage.running())
        killing.wait(PATIENCE)
        hard = None if gone else _end_hard(stage)
        confirmed = until(lambda: is_confirmed(client), 2.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            stage.process.wait(2.0 if case.mode == "run" else 0.0)
        return Measured(
            case,
            client.run("r").status,
            at - killed[0] if gone else None,
            left,
            hard,
            confirmed,
            stage.process.poll(),
        )


def _end_hard(stage: Stage) -> float | None:
    begun = time.monotonic()
    with command("kill", "r", "--hard", "--store", stage.url):
        gone = until(lambda: not stage.running(), PATIENCE)
        return time.monotonic() - begun if gone else None


def command(*words: str) -> "subprocess.Popen[bytes]":
    """`outlast WORDS...`, as another process."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-m", "outlast", *words], stdin=quiet, stdout=quiet, stderr=quiet
    )


def is_confirmed(client: outlast.Client) -> bool:
    """The journal says that nothing of the run is executed, and nobody owns it."""
    view = client.run("r")
    told = client.journal("r")[-1].kind in ("run.stopped", "step.late")
    return told and view.owner is None


# ---- the table


def cases(kinds: Sequence[str] = (*KINDS,), modes: Sequence[str] = MODES) -> Iterator[Case]:
    for kind in kinds:
        for colour in COLOURS:
            for mode in modes:
                yield Case(kind, colour, mode)


HEAD = (
    "| what hangs | step | `outlast run` | `outlast worker` | your own process: fenced | "
    "step stopped | after `--hard` |\n|---|---|---|---|---|---|---|"
)


def table(results: Sequence[Measured]) -> str:
    """The table, a row for each kind and colour."""
    by_case = {result.case: result for result in results}
    rows = [HEAD]
    for kind, words in KINDS.items():
        for colour in COLOURS:
            run, worker, own = (by_case.get(Case(kind, colour, mode)) for mode in MODES)
            fenced = "at once" if own is not None and own.status == "killed" else "no"
            hard = "" if own is None or own.stopped is not None else seconds(own.hard)
            cells = [words, colour, _cell(run), _cell(worker), fenced, _cell(own), hard or "–"]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(result: Measured | None) -> str:
    if result is None:
        return ""
    if result.stopped is not None:
        return seconds(result.stopped)
    return f"no: {' and '.join(result.left)}"


def seconds(value: float | None) -> str:
    return "no" if value is None else f"{value:.2f} s"


def section(results: Sequence[Measured], grace: float) -> str:
    """The table with the line above it."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"Measured on {today} with Python {platform.python_version()} and {os.cpu_count()} CPUs, "
        f"with `--grace {grace:g}`:\n\n{table(results)}"
    )


def with_section(document: str, text: str) -> str:
    """The document with this table in its place.

    Raises:
        ValueError: it has no place for it.
    """
    place = re.compile(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", re.S)
    if not place.search(document):
        raise ValueError(f"{DOCUMENT.name} has no lines {BEGIN} and {END}: put them back")
    return place.sub(lambda m: f"{m[1]}{text}\n{m[2]}", document)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how long it takes to kill a run.")
    parser.add_argument("--grace", type=float, default=1.0, help="seconds")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--write", action="store_true", help=f"put it into {DOCUMENT.name}")
    options = parser.parse_args()
    results = []
    for case in cases(options.kind or (*KINDS,), options.mode or MODES):
        with tempfile.TemporaryDirectory(prefix="outlast-kill-") as folder:
            result = measure(case, Path(folder), options.grace)
            outlast.Client(f"sqlite:///{folder}/store.db").close()
        print(result, file=sys.stderr, flush=True)
        results.append(result)
    text = section(results, options.grace)
    print(text)
    if options.write:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(with_section(document, text), encoding="utf-8")


if __name__ == "__main__":
    main()
