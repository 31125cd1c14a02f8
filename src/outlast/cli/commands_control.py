"""The commands that stop runs from outside: kill, pause, stop-all, allow."""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from outlast.api.client import Client
from outlast.cli.commands_read import JsonOption, RunArgument, caller_of, client_of
from outlast.cli.commands_undo import carry_out_undo
from outlast.cli.executing import operator
from outlast.cli.jsonout import killed_json, run_json, stop_json
from outlast.cli.output import err, out, printable, write_json
from outlast.cli.render import killed_lines
from outlast.cli.wording import Caller, pausing, stop_words
from outlast.control import GRACE
from outlast.errors import OutlastError, StoreError, UnknownRun, UsageError
from outlast.records import Killed
from outlast.worker.order import COMPLETED, FAILED, USAGE
from outlast.worker.work import exit_code
from outlast.world import World

MARGIN = 3.0
"""Seconds beyond the grace in which what executes a killed run is ended from outside."""

MOMENT = 0.5
"""Seconds in which what executes a killed run has mostly ended."""

PAUSE = 0.1
"""Seconds between two looks at what is still executed."""

SHOWN = 20
"""So many runs are listed at most that are still executed."""

ReasonOption = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")]
GraceOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="What executes it gets so long to end.")
]
HardOption = Annotated[
    bool,
    typer.Option(
        "--hard",
        help="End the process that has not let go of it by then, with all that it executes beside.",
    ),
]


def kill(
    ctx: typer.Context,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Ids, unique prefixes, or @last.")
    ] = None,
    reason: ReasonOption = "",
    grace: GraceOption = GRACE,
    tree: Annotated[
        bool, typer.Option("--tree", help="The whole family: also the run that started it.")
    ] = False,
    hard: HardOption = False,
    workflow: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="All runs of this workflow that have not ended."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All runs that have not ended.")] = False,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Undo what it has done, once nothing of it runs. Of one RUN."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """End runs for good, with the runs that they have started, whatever they do.

    Exit codes: 0 all are killed, 1 one had completed or failed, or could not be ended, 2 one is
    not known.
    """
    if bool(runs) + (workflow is not None) + every != 1:
        raise UsageError("say one of RUN..., --workflow NAME and --all")
    if tree and not runs:
        raise UsageError("--tree belongs to runs: outlast kill RUN... --tree")
    if undo and len(runs or ()) != 1:
        raise UsageError("--undo belongs to one run: outlast kill RUN --undo")
    code, caller = COMPLETED, caller_of(ctx)
    with client_of(ctx) as client:
        if runs:
            code, killed = _kill_each(client, runs, reason, grace, tree, hard, caller)
        else:
            killed = client.kill_all(workflow=workflow, reason=reason, grace=grace, by=operator())
        killed = _confirm(client, killed, grace, hard)
        _tell(killed, caller, as_json and not undo)
        code = code or _code_of(killed, hard)
        if undo and code == COMPLETED:
            return _undo(client, killed[0], caller, as_json)
    return code


def _undo(client: Client, killed: Killed, caller: Caller, as_json: bool) -> int:
    """Undo what a run has done that was killed now or before.

    Raises:
        UsageError: something of it is still executed, beside which nothing is to be undone.
    """
    if not killed.stopped:
        raise UsageError(
            f"run {killed.run_id} is killed, and its process has not let go of it, so that nothing "
            f"was undone yet. Once it has: outlast undo {killed.run_id}"
        )
    client.undo(killed.run_id, by=operator())
    return carry_out_undo(client, killed.run_id, caller, False, True, as_json)


def _kill_each(
    client: Client,
    runs: list[str],
    reason: str,
    grace: float,
    tree: bool,
    hard: bool,
    caller: Caller,
) -> tuple[int, list[Killed]]:
    """Kill runs one by one: what is wrong with one does not save the others."""
    killed, code = [], COMPLETED
    for run in runs:
        kill = partial(client.kill, run, reason=reason, grace=grace, tree=tree, by=operator())
        try:
            killed.append(_past_its_own_process(client, run, kill) if hard else kill())
        except (UnknownRun, StoreError) as problem:
            if len(runs) == 1:
                raise
            code = max(code, USAGE if isinstance(problem, UnknownRun) else exit_code(problem))
            _complain(problem, caller)
    return code, killed


def _past_its_own_process(client: Client, run: str, kill: Callable[[], Killed]) -> Killed:
    """A kill that ends the process of the run first, should that keep it from the store."""
    try:
        return kill()
    except StoreError as problem:
        if problem.problem != "busy" or not client.end_blocker(run):
            raise
        return kill()


def _complain(problem: OutlastError, caller: Caller) -> None:
    err().lines([Text(f"outlast: {printable(caller.ready(str(problem)))}")])


def _confirm(client: Client, killed: list[Killed], grace: float, hard: bool) -> list[Killed]:
    """Wait until nothing of the runs is executed any more; say so if that takes a moment."""
    killed = client.await_stop(killed, min(grace, MOMENT))
    if all(one.stopped for one in killed):
        return killed
    for one in killed:
        if not one.stopped:
            said = f"run {printable(one.run_id)} is killed: nothing more opens or is recorded"
            err().lines([Text(said)])
    seconds = _rest(killed)
    longest = f"waiting until nothing of it runs, at most {math.ceil(seconds)} s"
    err().lines([Text(longest)] if seconds else [])
    return client.await_stop(killed, seconds, hard=hard)


def _rest(killed: list[Killed]) -> float:
    """Seconds in which the last of the runs should have been ended from outside. One that was
    killed before has had its grace already."""
    now = World().wall()
    kills = [one.kill for top in killed for one in top.all if one.kill and not one.kill.stopped]
    rests = [min(kill.grace, kill.at + kill.grace - now) + MARGIN for kill in kills]
    return max([0.0, *rests])


def _tell(killed: list[Killed], caller: Caller, as_json: bool) -> None:
    if as_json:
        write_json([killed_json(one) for one in killed])
    elif killed:
        out().lines(line for one in killed for line in killed_lines(one, caller))
    else:
        out().lines([Text("there is no run that has not ended")])


def _code_of(killed: list[Killed], hard: bool) -> int:
    missed = any(one.status != "killed" for one in killed)
    return FAILED if missed or (hard and not all(one.stopped for one in killed)) else COMPLETED


def pause(
    ctx: typer.Context, run: RunArgument, reason: ReasonOption = "", as_json: JsonOption = False
) -> int:
    """Hold a run once the step under way has ended, until outlast resume."""
    with client_of(ctx) as client:
        view = client.pause(run, reason=reason, by=operator())
    if as_json:
        write_json(run_json(view))
    else:
        out().lines(Text(line) for line in pausing(view, caller_of(ctx)))
    return COMPLETED


def stop_all(
    ctx: typer.Context,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; everybody is shown it.")],
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill every run that has not ended, too.")
    ] = False,
    grace: GraceOption = GRACE,
    as_json: JsonOption = False,
) -> int:
    """Emergency stop: no step begins in any run and no run is taken up until outlast allow."""
    caller = caller_of(ctx)
    killed: list[Killed] = []
    executed: list[tuple[str, str]] = []
    with client_of(ctx) as client:
        stop = client.stop_all(reason, by=operator(), kill=kill)
        if not as_json:
            out().lines([stop_words(stop, caller)])
        if kill:
            killed = client.kill_all(reason=reason, grace=grace, by=operator())
            killed = _confirm(client, killed, grace, hard=False)
        else:
            executed = _let_end(client, grace + MARGIN)
    if as_json:
        named = [{"run_id": run_id, "owner": owner} for run_id, owner in executed]
        killed_ = [killed_json(one) for one in killed]
        fields = {"killed": killed_} if kill else {"executed": named}
        write_json({"stopped": stop_json(stop), **fields})
    elif kill:
        _tell(killed, caller, as_json)
    else:
        _tell_executed(executed, caller)
    return COMPLETED


def _let_end(client: Client, seconds: float) -> list[tuple[str, str]]:
    """Wait until processes have let go of their runs; those that they have still."""
    world, executed = World(), client.executed()
    end = world.boot() + seconds
    while executed and world.boot() < end:
        world.pause(PAUSE)
        executed = client.executed()
    return executed


def _tell_executed(executed: list[tuple[str, str]], caller: Caller) -> None:
    if not executed:
        out().lines([Text("no process executes a run any more")])
        return
    out().lines([Text(f"steps of {len(executed)} runs are still under way, and may end:")])
    for run_id, owner in executed[:SHOWN]:
        out().lines([Text(f"  {printable(run_id)} in {printable(owner)}")])
    out().lines([Text("To kill them:"), Text("  " + caller.command("kill", "--all"))])


def allow(ctx: typer.Context, as_json: JsonOption = False) -> int:
    """End the emergency stop."""
    with client_of(ctx) as client:
        was = client.allow(by=operator())
    if as_json:
        write_json({"stopped": None, "was_stopped": was})
        return COMPLETED
    again = caller_of(ctx).command("resume", "--all")
    said = (
        "allowed: runs go on where workers take them up, or with:" if was else "nothing is stopped"
    )
    out().lines([Text(said), *([Text(f"  {again}")] if was else [])])
    return COMPLETED
