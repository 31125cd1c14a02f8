"""The command undo: what a run has done is undone, here and now."""

from typing import Annotated

import typer
from rich.text import Text

from outlast.api.client import Client
from outlast.cli.commands_read import JsonOption, RunArgument, caller_of, client_of
from outlast.cli.executing import InProcessOption, NoWaitOption, execute, operator, report
from outlast.cli.jsonout import run_json
from outlast.cli.output import err, printable, write_json
from outlast.cli.render import undone_lines
from outlast.cli.wording import Caller
from outlast.records import FINAL
from outlast.worker.order import COMPLETED, Order


def undo(
    ctx: typer.Context,
    run: RunArgument,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="Its key, see outlast show: undo what ended after it, and it; by default all.",
        ),
    ] = None,
    in_process: InProcessOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
) -> int:
    """Undo what a run has done that has ended or is held: the last step first."""
    with client_of(ctx) as client:
        run_id = client.undo(run, to, by=operator()).run_id
        return carry_out_undo(client, run_id, caller_of(ctx), in_process, not no_wait, as_json)


def carry_out_undo(
    client: Client, run_id: str, caller: Caller, in_process: bool, wait: bool, as_json: bool
) -> int:
    """Execute the compensations of a run for which that was asked, and tell how it went. 0 if all
    was undone that has an undo."""
    order = Order(
        store=caller.url,
        run_id=run_id,
        in_process=in_process,
        wait=wait,
        wait_if_owned=True,  # a worker may have been quicker
        resume=True,
        named=caller.store,
    )
    code, view = execute(client, order, as_json)
    if view is None:
        return code
    if view.status in FINAL and view.undone is not None:
        code = COMPLETED
        err().lines([Text(f"run {printable(view.run_id)} is undone, and {view.status}")])
        err().lines(undone_lines(view))
    else:
        report(view, code, caller, as_json)
    if as_json:
        write_json(run_json(view))
    return code
