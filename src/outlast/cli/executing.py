"""Carrying out an order and telling how it went: what run, resume and fork have in common."""

import getpass
import os
import sys
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.text import Text

from outlast.api.client import Client
from outlast.cli.output import err, out, printable, stdout_kept_for_json
from outlast.cli.progress import Progress, look
from outlast.cli.render import doubt, pretty
from outlast.cli.screen import Screen
from outlast.cli.tracebacks import last_user_frame
from outlast.cli.wording import Caller, advice, duration, kill_words, stop_words
from outlast.records import FINAL, RunView, Status
from outlast.worker.order import (
    COMPLETED,
    FAILED,
    HELD,
    INTERRUPTED,
    KILLED,
    OWNED,
    TERMINATED,
    WAITING,
    Order,
)
from outlast.worker.supervisor import run_supervised
from outlast.world import World

RELEASED = (INTERRUPTED, TERMINATED)
"""Exit codes after Ctrl-C and SIGTERM."""

ENDS: dict[int, Status] = {
    COMPLETED: "completed",
    FAILED: "failed",
    HELD: "held",
    KILLED: "killed",
    WAITING: "waiting",
}
"""The status that an exit code tells of."""

InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="No worker process of its own; for debuggers.")
]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Leave when only timers are left; say when it is due.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="If another process executes it, wait for its result.")
]


def execute(client: Client, order: Order, as_json: bool) -> tuple[int, RunView | None]:
    """Carry an order out and tell how it goes. Returns the exit code and the run afterwards."""
    before = look(client, order.run_id)
    # A moving line would fight with the prompt of a debugger.
    screen = Screen() if sys.stderr.isatty() and not order.in_process else None
    terminal = screen.terminal if screen else err()
    progress = Progress(order.store, order.run_id, before, terminal, live=screen is not None)
    with stdout_kept_for_json(as_json), screen or nullcontext(), progress:
        code = run_supervised(order)
    return code, look(client, order.run_id)


def report(view: RunView, code: int, caller: Caller, as_json: bool) -> None:
    """Say how it ended: the result on stdout, everything else on stderr."""
    terminal = err()
    refused = code == HELD and view.status != "held"  # the worker has told of the stop
    if view.stopped is not None and not refused:
        terminal.lines([stop_words(view.stopped, caller)])
    if code not in (*RELEASED, OWNED) and view.status != ENDS.get(code):
        return  # It did not come to that: the worker has said why in a line of its own.
    if code == COMPLETED:
        took = duration(view.updated_at - view.created_at)
        terminal.lines([Text(f"run {printable(view.run_id)} completed, took {took}")])
        if not as_json:
            out().lines(pretty(view.result))
        return
    terminal.lines([headline(view, code)])
    if code == OWNED and view.owner is None:
        return  # Whoever had it has let go of it since: there is nobody to wait for.
    for step in view.steps:
        if step.status == "in-doubt":
            terminal.lines(doubt(step))
    terminal.lines(Text(line) for line in advice(view, caller, World().wall()))


def headline(view: RunView, code: int) -> Text:
    """How a run ended or stopped, in words."""
    if code == OWNED:
        what = "is being executed already" if view.owner else "was not to be had just now"
    elif code in RELEASED and view.interrupted:
        what = "was cut off: its process had to be ended; nothing that is done is lost"
    elif code in RELEASED and view.status not in FINAL:
        what = "was released by this process; nothing that is done is lost"
    elif view.kill is not None:
        what = f"was {kill_words(view.kill)}"
    else:
        # The reason of a failure is the class of its error, which the error's text begins with.
        reason = f" ({view.reason})" if view.reason and not view.error else ""
        verb = "" if view.status in FINAL and view.status != "killed" else "is "
        told = view.reason == "in-doubt" or view.status == "waiting"  # in what follows
        why = view.error or (None if told else view.detail)
        place = last_user_frame(view.traceback or "")
        why = f"{why} ({place})" if place else why
        what = f"{verb}{view.status}{reason}" + (f": {why}" if why else "")
    # The detail of a hold has lines of its own, a user's error has not.
    lines = [what] if view.error else what.split("\n")
    shown = "\n".join(map(printable, lines))
    return Text(f"outlast: run {printable(view.run_id)} {shown}")


def operator() -> str:
    """Who is at the keyboard, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return f"uid {os.getuid()}"
