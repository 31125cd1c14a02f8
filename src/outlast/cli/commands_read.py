"""The commands that only look: ls, show, journal, verify."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.text import Text

from outlast import events
from outlast.api.client import Client, Verdict
from outlast.cli.jsonout import event_json, run_json, verdict_json
from outlast.cli.output import err, out, printable, write_json
from outlast.cli.render import journal_lines, run_details, run_list, verdict_lines
from outlast.cli.wording import Caller, stop_words
from outlast.errors import StoreError, Unreadable, UsageError
from outlast.records import RunView, Status, StopView
from outlast.store.open import parse_url
from outlast.world import World

INTERRUPTED = "interrupted"

RUN_HELP = "Its id, a unique prefix, or @last."

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)]
JournalArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help=f"{RUN_HELP[:-1]}; @store: the store as a whole, such as its breakers."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@contextmanager
def client_of(ctx: typer.Context, *, create: bool = False) -> Iterator[Client]:
    """A client on the store that the user chose. A command that only looks creates none.

    Raises:
        UsageError: there is no store and `create` is false.
    """
    client = Client(caller_of(ctx).url if create else existing_store(ctx))
    try:
        yield client
    finally:
        client.close()


def caller_of(ctx: typer.Context) -> Caller:
    """How we were called; the app's callback has put it there."""
    assert isinstance(ctx.obj, Caller)
    return ctx.obj


def missing_store(ctx: typer.Context, what: str = "run") -> str | None:
    """A sentence about the store if it does not exist yet, and so none of what is looked for."""
    path = Path(parse_url(caller_of(ctx).url).path)
    return None if path.exists() else f"there is no store {path} yet, and so no {what}"


def existing_store(ctx: typer.Context) -> str:
    """The URL of the store that the user chose.

    Raises:
        UsageError: there is none.
    """
    missing = missing_store(ctx)
    if missing:
        raise UsageError(f"{missing}; --store or $OUTLAST_STORE names another")
    return caller_of(ctx).url


def ls(
    ctx: typer.Context,
    status: Annotated[
        str | None, typer.Option(help="Only runs with this status; interrupted is one, too.")
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 100,
    as_json: JsonOption = False,
) -> int:
    """List runs, the newest first."""
    wanted = _status(status)
    missing = missing_store(ctx)
    views: list[RunView] = []
    stop: StopView | None = None
    if not missing:
        with client_of(ctx) as client:
            stop = client.stopped()
            if status == INTERRUPTED:
                views = _interrupted(client, workflow)[:limit]
            else:
                views = client.runs(status=wanted, workflow=workflow, limit=limit)
            if as_json:  # Programs get the steps too, which a list does not bring.
                views = [_with_steps(client, view) for view in views]
    if stop is not None:
        (err() if as_json else out()).lines([stop_words(stop, caller_of(ctx))])
    if as_json:
        write_json([run_json(view) for view in views])
    elif views:
        out().lines(run_list(views, World().wall()))
        caller = caller_of(ctx)
        said = [caller.ready(view.damaged) for view in views if view.damaged is not None]
        err().lines(Text(f"outlast: {printable(text)}") for text in said)
    else:
        out().lines([Text(missing or "no runs")])
    return 0


def _with_steps(client: Client, listed: RunView) -> RunView:
    """A run with its steps, or what the list has of it if they cannot be read."""
    try:
        return client.run(listed.run_id)
    except (StoreError, Unreadable) as problem:
        if isinstance(problem, StoreError) and problem.problem != "damaged":
            raise
        return replace(listed, damaged=str(problem))


def _interrupted(client: Client, workflow: str | None) -> list[RunView]:
    """No status of the store's, but what it looks like from outside, see `RunView`."""
    statuses: tuple[Status, ...] = ("running", "waiting")
    views = [view for s in statuses for view in client.runs(status=s, workflow=workflow, limit=-1)]
    views.sort(key=lambda view: view.created_at, reverse=True)
    return [view for view in views if view.interrupted]


def _status(word: str | None) -> Status | None:
    for known in get_args(Status):
        if word == known:
            return known  # type: ignore[no-any-return]
    if word is None or word == INTERRUPTED:
        return None
    words = ", ".join((*get_args(Status), INTERRUPTED))
    raise UsageError(f"no status is called {word!r}; the words are {words}")


def show(ctx: typer.Context, run: RunArgument, as_json: JsonOption = False) -> int:
    """Show one run: its state, what to do next, its steps on a timeline."""
    with client_of(ctx) as client:
        view = client.run(run)
    if as_json:
        write_json(run_json(view))
    else:
        terminal = out()
        width = terminal.width if terminal.is_terminal else None
        terminal.lines(run_details(view, caller_of(ctx), World().wall(), width))
    return 0


def journal(
    ctx: typer.Context,
    run: JournalArgument,
    kind: Annotated[
        str | None, typer.Option(help="Only this kind, such as step.started, or step for all such.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Print the journal of a run, or of the store as a whole: every event, as recorded."""
    known = sorted(events.ALL)
    if kind and not any(_is_kind(name, kind) for name in known):
        raise UsageError(f"no event has the kind {kind!r}; the kinds are {', '.join(known)}")
    with client_of(ctx) as client:
        stored = client.journal(run)
    chosen = [event for event in stored if not kind or _is_kind(event.kind, kind)]
    if as_json:
        write_json([event_json(event) for event in chosen])
    else:
        terminal = out()
        terminal.lines(journal_lines(chosen, cut=terminal.is_terminal))
    return 0


def _is_kind(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(wanted + ".")


def verify(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Its id, or @store; all runs and the store as a whole if left out.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="The head hash that you kept elsewhere.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check the hash chain of a journal. Exit code 1 if a record was altered."""
    if head and not run:
        raise UsageError("--head belongs to one run: outlast verify RUN --head HASH")
    with client_of(ctx) as client:
        verdicts: list[Verdict] = client.verify(run, head)
    if as_json:
        write_json([verdict_json(verdict) for verdict in verdicts])
    else:
        out().lines(verdict_lines(verdicts))
    return 0 if all(verdict.ok for verdict in verdicts) else 1
