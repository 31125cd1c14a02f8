"""The command resume: one run, or all of them in turn."""

from typing import Annotated

import typer
from msgspec import structs
from rich.text import Text

from outlast.api.client import Client
from outlast.cli.commands_read import RUN_HELP, JsonOption, caller_of, client_of
from outlast.cli.executing import (
    ENDS,
    RELEASED,
    InProcessOption,
    NoWaitOption,
    WaitOption,
    execute,
    operator,
    report,
)
from outlast.cli.jsonout import run_json
from outlast.cli.limits import parse_added, parse_charged
from outlast.cli.output import err, out, printable, write_json
from outlast.cli.resume_all import resume_all
from outlast.cli.wording import Caller, stop_words
from outlast.errors import UsageError
from outlast.records import RunView
from outlast.worker.order import COMPLETED, Order

AddOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LIMITS", help="First raise limits of its budget, such as usd=5,calls=100."
    ),
]
ChargeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="usd=AMOUNT", help="First say what its unknown costs came to."),
]


def resume(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All runs that wait for a process or for a time, in turn, until none is left; not "
            "the held ones. With --no-wait: each that can go on now, once.",
        ),
    ] = False,
    add: AddOption = None,
    charge: ChargeOption = None,
    accept_from: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="First drop what is recorded from this step on: the code at hand counts. Never "
            "drops what a `once` step did.",
        ),
    ] = None,
    revive: Annotated[
        bool, typer.Option("--revive", help="First take back that it was killed.")
    ] = False,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="Only let it go on: whoever takes up runs executes it."),
    ] = False,
    in_process: InProcessOption = False,
    wait: WaitOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
) -> int:
    """Go on with a run that was interrupted, paused, held or queued."""
    if (run is None) != every:
        raise UsageError("name one run, or say --all: outlast resume RUN, outlast resume --all")
    given = {
        "--accept-from STEP": accept_from,
        "--add LIMITS": add,
        "--charge usd=AMOUNT": charge,
        "--revive": revive,
        "--queue": queue,
    }
    for option, value in given.items():
        if every and value not in (None, [], False):
            name = option.split()[0]
            raise UsageError(f"{name} belongs to one run: outlast resume RUN {option}")
    if queue and accept_from is not None:
        raise UsageError("--queue loads no code, which --accept-from STEP needs")
    caller = caller_of(ctx)
    order = Order(
        store=caller.url,
        run_id="",
        in_process=in_process,
        wait=not no_wait,
        wait_if_owned=wait,
        resume=not every,
        accept_from=accept_from,
        by="" if accept_from is None else operator(),
        named=caller.store,
    )
    with client_of(ctx) as client:
        if run is None:
            return resume_all(client, order, caller, as_json)
        before = client.run(run)
        run_id = before.run_id
        if revive:
            client.revive(run_id, by=operator())
            err().lines([Text(f"the kill of run {printable(run_id)} was taken back")])
        budget = (add or [], charge or [])
        if queue:
            _add_budget(client, run_id, *budget)
            return _let_go_on(client, run_id, caller, as_json)
        return _resume_one(client, before, order, caller, budget, as_json)


def _let_go_on(client: Client, run_id: str, caller: Caller, as_json: bool) -> int:
    """Resume a run without executing it here."""
    view = client.resume(run_id, by=operator())
    if as_json:
        write_json(run_json(view))
    else:
        how = "interrupted" if view.interrupted else view.status
        where = f"goes on in {view.owner}" if view.owner else f"is {how}: a worker takes it up"
        out().lines([Text(printable(f"run {run_id} {where}"))])
    if view.stopped is not None:
        err().lines([stop_words(view.stopped, caller)])
    return COMPLETED


def _resume_one(
    client: Client,
    before: RunView,
    order: Order,
    caller: Caller,
    budget: tuple[list[str], list[str]],
    as_json: bool,
) -> int:
    run_id = before.run_id
    added = _add_budget(client, run_id, *budget)
    if before.reason == "paused" and before.owner is not None:
        # It lets a step come to its end, and goes on by itself then.
        client.resume(run_id, by=operator())
        err().lines([Text(printable(f"run {run_id} goes on in {before.owner}"))])
    code, view = execute(client, structs.replace(order, run_id=run_id), as_json)
    if view:
        report(view, code, caller, as_json)
        if as_json:
            write_json(run_json(view))
    if added and code not in (*ENDS, *RELEASED):
        again = caller.command("resume", run_id)
        err().lines([Text(f"What was added to the budget stays added. To go on: {again}")])
    return code


def _add_budget(client: Client, run_id: str, add: list[str], charge: list[str]) -> bool:
    """Raise the limits of a run, as asked; whether that was asked at all. What happens to the run
    afterwards does not take it back."""
    if not add and not charge:
        return False
    added = parse_added(add) if add else None
    charged = parse_charged(charge) if charge else None
    view = client.add_budget(run_id, added, charged=charged, by=operator())
    err().lines([Text(f"the budget of run {printable(run_id)} is now:")])
    err().lines(Text(f"  {printable(line)}") for line in view.budget)
    return True
