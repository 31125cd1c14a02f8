"""The command worker: processes that take up runs as they come."""

from typing import Annotated

import typer

from outlast.cli.commands_read import caller_of
from outlast.engine.spec import Settings
from outlast.worker.crew import run_crew
from outlast.worker.order import Serve


def worker(
    ctx: typer.Context,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE_OR_FILE...", help="Such as desk.py or shop.desk; all their workflows."
        ),
    ],
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Worker processes, all on the one store.")
    ] = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs that each executes at once.")
    ] = 50,
    grace: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="Time for open steps once it was asked to stop."
        ),
    ] = Settings().grace,
) -> int:
    """Take up queued, interrupted and due runs as they come, until SIGTERM or Ctrl-C."""
    caller = caller_of(ctx)
    order = Serve(
        store=caller.url,
        places=tuple(places),
        concurrency=concurrency,
        grace=grace,
        named=caller.store,
    )
    return run_crew(order, processes)
