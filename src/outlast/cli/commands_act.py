"""The commands that change something: run, resume, settle, fork."""

import getpass
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from outlast.api.client import Client, Failed
from outlast.cli.commands_read import RUN_HELP, JsonOption, RunArgument, caller_of, client_of
from outlast.cli.jsonout import run_json
from outlast.cli.output import err, out, printable, short, stdout_kept_for_json, write_json
from outlast.cli.progress import Progress, look
from outlast.cli.render import doubt, pretty
from outlast.cli.screen import Screen
from outlast.cli.tracebacks import last_user_frame
from outlast.cli.wording import Caller, advice, duration
from outlast.errors import NotDone, UsageError
from outlast.records import FINAL, Done, RunView, Status
from outlast.worker.order import (
    COMPLETED,
    FAILED,
    HELD,
    INTERRUPTED,
    KILLED,
    OWNED,
    WAITING,
    Order,
)
from outlast.worker.supervisor import run_supervised
from outlast.world import World

RELEASED = (INTERRUPTED, 143)
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


def run(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FILE_OR_MODULE:WORKFLOW", help="Such as desk.py:desk.")
    ],
    arguments: Annotated[
        str | None,
        typer.Argument(
            metavar="ARGS", help="JSON: an array of positional or an object of keyword arguments."
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--id", help="The run's id; the same again resumes it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label.")] = None,
    in_process: InProcessOption = False,
    wait: WaitOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
) -> int:
    """Start a run, or resume it if it exists, and wait for its end."""
    workflow = _workflow_of(target)
    if arguments is not None:
        _parse(arguments, "ARGS")  # What it must hold is known once the workflow is imported.
    caller = caller_of(ctx)
    order = Order(
        store=caller.url,
        run_id=run_id or f"{workflow}-{World().token()[:8]}",
        target=target,
        arguments=arguments,
        tags=_tags(tag or []),
        in_process=in_process,
        wait=not no_wait,
        wait_if_owned=wait,
        named=caller.store,
    )
    with client_of(ctx, create=True) as client:
        code, view = _execute(client, order, as_json)
    if view:
        _report(view, code, caller, as_json)
        if as_json:
            write_json(run_json(view))
    return code


def resume(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All runs that wait for a process; not the held ones.")
    ] = False,
    accept_from: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="First drop what is recorded from this step on: the code at hand counts. Never "
            "drops what a `once` step did.",
        ),
    ] = None,
    in_process: InProcessOption = False,
    wait: WaitOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
) -> int:
    """Go on with a run that was interrupted, held or queued."""
    if (run is None) != every:
        raise UsageError("name one run, or say --all: outlast resume RUN, outlast resume --all")
    if every and accept_from is not None:
        raise UsageError("--accept-from belongs to one run: outlast resume RUN --accept-from STEP")
    caller = caller_of(ctx)
    codes, ends = [], []
    with client_of(ctx) as client:
        chosen = [client.run(run).run_id] if run else client.unfinished()
        for run_id in chosen:
            order = Order(
                store=caller.url,
                run_id=run_id,
                in_process=in_process,
                wait=not no_wait,
                wait_if_owned=wait,
                resume=not every,
                accept_from=accept_from,
                by="" if accept_from is None else _operator(),
                named=caller.store,
            )
            code, view = _execute(client, order, as_json)
            codes.append(code)
            if view:
                ends.append(view)
                _report(view, code, caller, as_json)
            if code in RELEASED:
                break
    if as_json:
        views = [run_json(view) for view in ends]
        write_json(views if every else views[0])
    elif not chosen:
        err().lines([Text("no run waits for a process")])
    return next((code for code in codes if code), 0)


def settle(
    ctx: typer.Context,
    run: RunArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Its key, see outlast show.")],
    done: Annotated[
        str | None, typer.Option(metavar="JSON", help="It happened; this is its result.")
    ] = None,
    not_done: Annotated[bool, typer.Option("--not-done", help="It did not happen.")] = False,
    failed: Annotated[
        str | None, typer.Option(metavar="TEXT", help="It failed; the workflow gets this error.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Say what became of a step that is in doubt."""
    if (done is not None) + not_done + (failed is not None) != 1:
        raise UsageError("say one of --done JSON, --not-done and --failed TEXT")
    decision: Done[object] | NotDone | Failed
    if done is not None:
        decision = Done(_parse(done, "--done"))
    elif failed is not None:
        decision = Failed(failed)
    else:
        decision = NotDone()
    with client_of(ctx) as client:
        view = client.settle(run, step, decision, by=_operator())
    if as_json:
        write_json(run_json(view))
        return 0
    out().lines([Text(f"settled step {printable(step)} of run {printable(view.run_id)}")])
    err().lines(Text(line) for line in advice(view, caller_of(ctx), World().wall()))
    return 0


def fork(
    ctx: typer.Context,
    run: RunArgument,
    step: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="STEP",
            help="Its key, see outlast show: what began before it is copied. @end copies all.",
        ),
    ],
    run_id: Annotated[str | None, typer.Option("--id", help="The new run's id.")] = None,
    repeat_effects: Annotated[
        bool,
        typer.Option("--repeat-effects", help="Make steps again that have changed something."),
    ] = False,
    in_process: InProcessOption = False,
    wait: WaitOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
) -> int:
    """Make a new run of what another one has done before a step, and go on with it."""
    caller = caller_of(ctx)
    with client_of(ctx) as client:
        made = client.fork(run, step, new_id=run_id, repeat_effects=repeat_effects, by=_operator())
        words = f"run {made.run_id} is a fork of {made.forked_from} at {step}"
        err().lines([Text(printable(words))])
        order = Order(
            store=caller.url,
            run_id=made.run_id,
            in_process=in_process,
            wait=not no_wait,
            wait_if_owned=wait,
            resume=True,
            named=caller.store,
        )
        code, view = _execute(client, order, as_json)
    if view:
        _report(view, code, caller, as_json)
        if as_json:
            write_json(run_json(view))
    return code


def _execute(client: Client, order: Order, as_json: bool) -> tuple[int, RunView | None]:
    """Carry an order out and tell how it goes. Returns the exit code and the run afterwards."""
    before = look(client, order.run_id)
    # A moving line would fight with the prompt of a debugger.
    screen = Screen() if sys.stderr.isatty() and not order.in_process else None
    terminal = screen.terminal if screen else err()
    progress = Progress(order.store, order.run_id, before, terminal, live=screen is not None)
    with stdout_kept_for_json(as_json), screen or nullcontext(), progress:
        code = run_supervised(order)
    return code, look(client, order.run_id)


def _report(view: RunView, code: int, caller: Caller, as_json: bool) -> None:
    """Say how it ended: the result on stdout, everything else on stderr."""
    terminal = err()
    if code not in (*RELEASED, OWNED) and view.status != ENDS.get(code):
        return  # It did not come to that: the worker has said why in a line of its own.
    if code == COMPLETED:
        took = duration(view.updated_at - view.created_at)
        terminal.lines([Text(f"run {printable(view.run_id)} completed, took {took}")])
        if not as_json:
            out().lines(pretty(view.result))
        return
    terminal.lines([_headline(view, code)])
    if code == OWNED and view.owner is None:
        return  # Whoever had it has let go of it since: there is nobody to wait for.
    for step in view.steps:
        if step.status == "in-doubt":
            terminal.lines(doubt(step))
    terminal.lines(Text(line) for line in advice(view, caller, World().wall()))


def _headline(view: RunView, code: int) -> Text:
    if code == OWNED:
        what = "is being executed already" if view.owner else "was not to be had just now"
    elif code in RELEASED and view.interrupted:
        what = "was cut off: its process had to be ended; nothing that is done is lost"
    elif code in RELEASED and view.status not in FINAL:
        what = "was released by this process; nothing that is done is lost"
    else:
        # The reason of a failure is the class of its error, which the error's text begins with.
        reason = f" ({view.reason})" if view.reason and not view.error else ""
        verb = "" if view.status in FINAL and view.status != "killed" else "is "
        why = view.error or (view.detail if view.reason != "in-doubt" else None)
        place = last_user_frame(view.traceback or "")
        why = f"{why} ({place})" if place else why
        what = f"{verb}{view.status}{reason}" + (f": {why}" if why else "")
    # The detail of a hold has lines of its own, a user's error has not.
    lines = [what] if view.error else what.split("\n")
    shown = "\n".join(map(printable, lines))
    return Text(f"outlast: run {printable(view.run_id)} {shown}")


def _operator() -> str:
    """Who is at the keyboard, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return f"uid {os.getuid()}"


def _workflow_of(target: str) -> str:
    """The workflow's name in FILE_OR_MODULE:WORKFLOW, for a made-up run id."""
    place, colon, name = target.rpartition(":")
    if not (place and colon and name.replace(".", "_").isidentifier()):
        raise UsageError(f"{target!r} names no workflow; write desk.py:desk or package.module:desk")
    return name.replace(".", "-")


def _parse(text: str, what: str) -> object:
    try:
        return json.loads(text, parse_constant=_not_json)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        hint = """; text needs quotes of its own: '"receipt 17"'""" if what == "--done" else ""
        raise UsageError(
            f"{what} is not JSON: {error.msg} at {where}: {short(text, 60)}{hint}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be read: {error}") from error


def _not_json(word: str) -> NoReturn:
    raise UsageError(f"{word} is not JSON")


def _tags(pairs: Sequence[str]) -> dict[str, str]:
    tags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(f"--tag {pair!r} has no value; write --tag key=value")
        tags[key] = value
    return tags
