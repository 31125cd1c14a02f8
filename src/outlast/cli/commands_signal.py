"""The commands by which something is sent to a run: signal, inbox, answer."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from outlast.cli.commands_act import parse_json
from outlast.cli.commands_read import (
    RUN_HELP,
    JsonOption,
    RunArgument,
    caller_of,
    client_of,
    missing_store,
)
from outlast.cli.executing import operator
from outlast.cli.mail import VALUE, place_of, question_lines
from outlast.cli.output import out, printable, short, write_json
from outlast.errors import UsageError
from outlast.mail import Approval, QuestionView
from outlast.world import World


def signal(
    ctx: typer.Context,
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the signal, as in the code.")],
    value: Annotated[
        str | None, typer.Argument(metavar="JSON", help="What is sent; null if left out.")
    ] = None,
) -> int:
    """Send a run a signal. It is kept if the run does not wait for it yet."""
    data = None if value is None else parse_json(value, "JSON")
    with client_of(ctx) as client:
        view = client.run(run)
        client.signal(view.run_id, name, data, by=operator())
    out().lines([Text(f"sent signal {printable(name)} to run {printable(view.run_id)}")])
    return 0


def inbox(ctx: typer.Context, as_json: JsonOption = False) -> int:
    """List the questions that runs ask, the oldest first."""
    views: list[QuestionView] = []
    missing = missing_store(ctx, "question")
    if not missing:
        with client_of(ctx) as client:
            views = client.inbox()
    if as_json:
        write_json([asdict(view) for view in views])
    elif views:
        caller, now = caller_of(ctx), World().wall()
        for number, view in enumerate(views):
            out().lines([Text()] if number else [])
            out().lines(question_lines(view, caller, now))
    else:
        out().lines([Text(missing or "no questions")])
    return 0


def answer(
    ctx: typer.Context,
    question: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_QUESTION",
            help=f"The question, see outlast inbox; or the run, if it asks one. {RUN_HELP}",
        ),
    ],
    value: Annotated[str | None, typer.Argument(metavar="JSON", help="The answer.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Deny.")] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="What you say about it.")] = None,
) -> int:
    """Answer a question of a run. One answer counts."""
    if yes + no + (value is not None) != 1:
        raise UsageError("say one of --yes, --no and JSON")
    if note is not None and value is not None:
        raise UsageError("--note goes with --yes or --no")
    given = Approval(yes, note or "") if value is None else parse_json(value, "JSON")
    with client_of(ctx) as client:
        view = client.answer(question, given, by=operator())
    said = ("yes" if yes else "no") if value is None else short(value, VALUE)
    remark = f" ({note})" if note else ""
    words = f"answered {said}{remark} to: {view.prompt}"
    out().lines(
        [
            Text(printable(words)),
            Text(printable(f"  question {view.question}, {place_of(view)}"), style="dim"),
        ]
    )
    return 0
