"""The command breakers: what tools are left alone, and an operator's word about that."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from outlast.api.client import BreakerView, Client
from outlast.cli.commands_read import JsonOption, caller_of, client_of, missing_store
from outlast.cli.executing import operator
from outlast.cli.jsonout import breaker_json
from outlast.cli.output import err, out, printable, write_json
from outlast.cli.render import breaker_list, breaker_state
from outlast.cli.wording import clock, stop_words
from outlast.errors import StoreError
from outlast.world import World

app = typer.Typer(
    name="breakers", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As outlast breakers lists it.")]


@app.callback(invoke_without_command=True)
def breakers(ctx: typer.Context, as_json: JsonOption = False) -> int:
    """List the breakers of the store: which tools are called, and which are left alone."""
    if ctx.invoked_subcommand is not None:
        return 0
    missing = missing_store(ctx, "breaker")
    views: list[BreakerView] = []
    if not missing:
        with client_of(ctx) as client:
            views, stop = client.breakers(), client.stopped()
        if stop is not None:
            (err() if as_json else out()).lines([stop_words(stop, caller_of(ctx))])
    if as_json:
        write_json([breaker_json(view) for view in views])
    elif views:
        out().lines(breaker_list(views, World().wall()))
    else:
        none = "no breakers: no step has settings of its own for one, and no tool has failed"
        out().lines([Text(missing or none)])
    return 0


@app.command()
def reset(ctx: typer.Context, name: NameArgument, as_json: JsonOption = False) -> int:
    """Close a breaker, whatever state it is in: its tool is called again."""
    with client_of(ctx) as client:
        view = client.reset_breaker(name, by=operator())
    return _tell(ctx, view, as_json)


@app.command()
def trip(
    ctx: typer.Context,
    name: NameArgument,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="SECONDS", help="Until it is tried again; else its own cool-down."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Open a breaker: its tool is left alone for a while, in all runs of the store."""
    with client_of(ctx) as client:
        known = _names(client)
        view = client.trip_breaker(name, seconds, by=operator())
    if known is not None and name not in known:
        others = ", ".join(map(printable, known)) or "none"
        said = f"{printable(name)} was not known before: no step that uses it has failed"
        err().lines([Text(f"{said}; known: {others}")])
    return _tell(ctx, view, as_json)


def _names(client: Client) -> list[str] | None:
    """The breakers that there are; None if that cannot be told, which keeps nobody from opening
    one."""
    try:
        return [view.name for view in client.breakers()]
    except StoreError as problem:
        if problem.problem != "damaged":
            raise
        return None


def _tell(ctx: typer.Context, view: BreakerView, as_json: bool) -> int:
    behind_group = ctx.parent is not None and bool(ctx.parent.params.get("as_json"))
    if as_json or behind_group:
        write_json(breaker_json(view))
    else:
        out().lines(_state_of(view))
    return 0


def _state_of(view: BreakerView) -> Iterator[Text]:
    until = "" if view.until is None else f" until {clock(view.until)}"
    yield Text.assemble(f"breaker {printable(view.name)} is ", breaker_state(view), until)
