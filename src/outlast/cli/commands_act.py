"""The commands that change something: run, settle, fork. For resume see commands_resume.py."""

import json
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from outlast.api.client import Failed
from outlast.cli.commands_read import JsonOption, RunArgument, caller_of, client_of
from outlast.cli.executing import (
    InProcessOption,
    NoWaitOption,
    WaitOption,
    execute,
    operator,
    report,
)
from outlast.cli.jsonout import run_json
from outlast.cli.limits import parse_budget
from outlast.cli.output import err, out, printable, short, write_json
from outlast.cli.wording import advice
from outlast.errors import NotDone, UsageError
from outlast.records import Done
from outlast.worker.order import Order
from outlast.world import World


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
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMITS",
            help="What this run may spend, in place of the workflow's own budget, such as "
            "usd=2,calls=100 or usd=unlimited. Limits: usd, tokens, calls, steps, turns, seconds.",
        ),
    ] = None,
    in_process: InProcessOption = False,
    wait: WaitOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
) -> int:
    """Start a run, or resume it if it exists, and wait for its end."""
    workflow = _workflow_of(target)
    if arguments is not None:
        parse_json(arguments, "ARGS")  # What it must hold is known once the workflow is imported.
    caller = caller_of(ctx)
    order = Order(
        store=caller.url,
        run_id=run_id or f"{workflow}-{World().token()[:8]}",
        target=target,
        arguments=arguments,
        tags=_tags(tag or []),
        budget=parse_budget(budget) if budget else None,
        in_process=in_process,
        wait=not no_wait,
        wait_if_owned=wait,
        named=caller.store,
    )
    with client_of(ctx, create=True) as client:
        code, view = execute(client, order, as_json)
    if view:
        report(view, code, caller, as_json)
        if as_json:
            write_json(run_json(view))
    return code


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
        decision = Done(parse_json(done, "--done"))
    elif failed is not None:
        decision = Failed(failed)
    else:
        decision = NotDone()
    with client_of(ctx) as client:
        view = client.settle(run, step, decision, by=operator())
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
        made = client.fork(run, step, new_id=run_id, repeat_effects=repeat_effects, by=operator())
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
        code, view = execute(client, order, as_json)
    if view:
        report(view, code, caller, as_json)
        if as_json:
            write_json(run_json(view))
    return code


def _workflow_of(target: str) -> str:
    """The workflow's name in FILE_OR_MODULE:WORKFLOW, for a made-up run id."""
    place, colon, name = target.rpartition(":")
    if not (place and colon and name.replace(".", "_").isidentifier()):
        raise UsageError(f"{target!r} names no workflow; write desk.py:desk or package.module:desk")
    return name.replace(".", "-")


def parse_json(text: str, what: str) -> object:
    """The data in an argument that is JSON.

    Raises:
        UsageError: it is none.
    """
    try:
        return json.loads(text, parse_constant=_not_json)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        hint = (
            """; text needs quotes of its own: '"receipt 17"'"""
            if what in ("--done", "JSON")
            else ""
        )
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
