"""Tells on the terminal what happens on stage, and what was found afterwards."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from outlast.demo import mails
from outlast.demo.audit import Check
from outlast.demo.child import RUN_ID
from outlast.demo.killer import Kill, mail_in_hand
from outlast.records import RunView, StepView

RECONCILED = {
    "done": "the mail server has it: not sent again",
    "not-done": "the mail server never got it: sent now",
    "unknown": "the mail server cannot tell",
}


class Commentary:
    """Speaks while the show goes on: a line for each kill and resume, the state in `status`."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status
        self._mails = len(mails.names(mails.INBOX))
        self._kills = 0
        self._killed: Kill | None = None
        self._reconciled: set[str] = set()

    def look(self, view: RunView) -> None:
        """Show where the run is; speak when it has come back to life after a kill."""
        running = [step for step in view.steps if step.status == "running"]
        if self._killed is not None and running and not view.interrupted:
            kept = self._killed.finished
            at = ", ".join(step.name for step in running)
            self._say(f"         resumed: {kept} steps not run again, continuing at {at}")
            self._killed = None
        for step in view.steps:
            if step.reconciled and step.key not in self._reconciled:
                self._reconciled.add(step.key)
                said = step.reconciled
                answer = RECONCILED.get(said.partition(":")[0], said)
                self._say(f"         {step.name} was in doubt: {answer}")
        self._status.update(self._state(view, running))

    def kill(self, kill: Kill) -> None:
        """Speak of a kill."""
        self._kills += 1
        self._killed = kill
        where = " and ".join(_call(step) for step in kill.in_flight) or "between two steps"
        text = f"pid {kill.pid}, mail {kill.mail}, {kill.finished} steps finished, in {where}"
        self._console.print(f"[red]kill {self._kills:2}[/]  {escape(text)}", soft_wrap=True)

    def _say(self, text: str) -> None:
        self._console.print(escape(text), soft_wrap=True)

    def _state(self, view: RunView, running: list[StepView]) -> str:
        doing = ", ".join(step.name for step in running)
        return f"mail {mail_in_hand(view)} of {self._mails}, {len(view.steps)} steps, {doing}"


def _call(step: StepView) -> str:
    """A step and the part of its arguments that says most to a reader."""
    wanted = [part for part in step.preview.split(", ") if part.startswith(("order_id", "name"))]
    return f"{step.name}({', '.join(wanted)})" if wanted else step.name


def report(console: Console, checks: Sequence[Check], notes: Sequence[str]) -> None:
    """Print what the audit found."""
    table = Table("", "audit", "found", title=None, box=None, pad_edge=False)
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]WRONG[/]"
        table.add_row(mark, check.name, escape(check.found))
    console.print()
    console.print(table)
    if notes:
        console.print()
    for note in notes:
        console.print(note, soft_wrap=True)


def farewell(console: Console, store: str, folder: Path) -> None:
    """Print commands that show what the show has left behind."""
    console.print(f"\nAll of it is in {folder}. Look at the runs:", soft_wrap=True)
    for command in ("ls", f"show {RUN_ID}", f"journal {RUN_ID}", "breakers", "verify"):
        console.print(f"  outlast --store {store} {command}", soft_wrap=True, markup=False)
