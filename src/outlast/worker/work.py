"""Carrying out an order in this process: load the workflow, execute the run, name the end."""

import inspect
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from msgspec import structs

from outlast import codec
from outlast.engine.spec import Settings, WorkflowSpec, hints_of
from outlast.errors import (
    LostRun,
    NotStorable,
    OutlastError,
    OutlastWarning,
    RunFailed,
    RunHeld,
    RunKilled,
    RunOwned,
    RunReleased,
    RunWaiting,
    StoreError,
    StoreStopped,
    UnknownRun,
    Unreadable,
    UsageError,
)
from outlast.leases import NewRun
from outlast.policy.budget import Budget, Limits
from outlast.rewriting import Accept
from outlast.views import read_run
from outlast.worker import order as codes
from outlast.worker.execution import Plan, new_run, run_plan
from outlast.worker.loader import load_source, load_target
from outlast.worker.order import Order
from outlast.worker.saying import write_line
from outlast.worker.stores import OpenStore, get_store, reaching

_CODES: tuple[tuple[type[OutlastError], int], ...] = (
    (RunFailed, codes.FAILED),
    (RunHeld, codes.HELD),
    (RunKilled, codes.KILLED),
    (RunWaiting, codes.WAITING),
    (RunOwned, codes.OWNED),
    (LostRun, codes.OWNED),
    (RunReleased, codes.INTERRUPTED),
    (StoreError, codes.STORE),
    (UsageError, codes.USAGE),
    (NotStorable, codes.USAGE),
    (Unreadable, codes.HELD),
    (StoreStopped, codes.HELD),
)


def exit_code(problem: OutlastError) -> int:
    """The exit code for an error that ended an order."""
    return next((code for cls, code in _CODES if isinstance(problem, cls)), codes.FAILED)


def carry_out(order: Order) -> object:
    """Execute an order in this process and return the run's result.

    Raises:
        OutlastError: it came to another end, see `exit_code`.
        SystemExit, KeyboardInterrupt: asked to stop; the run was released.
    """
    opened = get_store(order.store)
    spec = _workflow(order, opened)
    settings = Settings(grace=order.grace)
    budget = None if order.budget is None else _budget(order.budget)
    if order.accept_from is not None:
        _accept(order, order.accept_from, spec, opened)
    plan = Plan(
        spec=spec,
        run_id=order.run_id,
        new=None if order.target is None else _new_run(order, spec, opened, settings, budget),
        wait=order.wait,
        if_owned="wait" if order.wait_if_owned else "raise",
        settings=settings,
        resume=order.resume,
        budget=budget,
    )
    return run_plan(plan, opened)


def _workflow(order: Order, opened: OpenStore) -> WorkflowSpec:
    if order.target is not None:
        return load_target(order.target)
    row = read_run(opened.store, order.run_id)
    if row is None:
        raise UnknownRun(f"there is no run {order.run_id!r} in {order.store}; see: outlast ls")
    return load_source(row.source, row.run_id)


def _accept(order: Order, step: str, spec: WorkflowSpec, opened: OpenStore) -> None:
    """Let the code that was loaded count, and say what that drops. If it is another workflow, the
    claim refuses it, and nothing is to be lost before."""
    store = opened.store
    row = read_run(store, order.run_id)
    if row is None or row.workflow != spec.name:
        return
    own = opened.heart.claims
    item = Accept(row.run_id, step, store.world.wall(), store.world, own, order.by)
    for line in store.write(item, durable=True).lines():
        _write(line)


def _new_run(
    order: Order,
    spec: WorkflowSpec,
    opened: OpenStore,
    settings: Settings,
    budget: Budget | None,
) -> NewRun | None:
    """What to create the run from; None if it exists and no arguments were given to compare."""
    if order.arguments is None and read_run(opened.store, order.run_id) is not None:
        return None
    args, kwargs = _arguments(spec, order.arguments)
    return new_run(spec, order.run_id, args, kwargs, order.tags, settings, budget)


def _budget(limits: Limits) -> Budget:
    """A budget with these limits; an infinite `usd` allows any amount."""
    numbers = structs.asdict(limits)
    if limits.usd is None or limits.usd.is_finite():
        return Budget(**numbers)
    return Budget.unlimited(**{name: n for name, n in numbers.items() if name != "usd"})


def _arguments(
    spec: WorkflowSpec, text: str | None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """JSON arguments, turned into the types that the workflow's signature names."""
    form = f"{spec.name}{spec.signature}"
    try:
        given = [] if text is None else json.loads(text)
    except json.JSONDecodeError as problem:
        raise UsageError(
            f"ARGS is not JSON ({problem.msg} at character {problem.pos}); expected an array of "
            f"positional or an object of keyword arguments for {form}"
        ) from None
    if not isinstance(given, list | dict):
        raise UsageError(
            f"ARGS is {type(given).__name__}; expected a JSON array of positional or an object of "
            f"keyword arguments for {form}"
        )
    args, kwargs = (given, {}) if isinstance(given, list) else ([], given)
    try:
        bound = spec.signature.bind(*args, **kwargs)
    except TypeError as problem:
        unknown = [name for name in kwargs if name not in spec.signature.parameters]
        hint = f"; there is no argument {unknown[0]!r}" if unknown else ""
        if isinstance(given, list) and len(spec.signature.parameters) == 1 and len(given) > 1:
            hint = "; to give a list as its one argument, put it into another: [[1, 2]]"
        raise UsageError(f"{problem}; expected arguments for {form}{hint}") from None
    hints = hints_of(inspect.unwrap(spec.fn))
    for name, value in bound.arguments.items():
        kind = spec.signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        try:
            # Not msgspec's: it makes null of a NaN and stumbles over a lone surrogate.
            data = json.dumps(value).encode()
            bound.arguments[name] = codec.from_plain(data, hints.get(name, Any))
        except (UsageError, NotStorable) as problem:
            raise UsageError(f"argument {name!r} of {form}: {problem}") from None
    return bound.args, bound.kwargs


def work(order: Order) -> int:
    """Carry an order out and return its exit code; errors and warnings of ours go to stderr, a line
    each."""
    try:
        with warnings_in_a_line():
            carry_out(order)
    except (RunFailed, RunHeld, RunKilled, RunWaiting, RunOwned) as problem:
        # The command line tells what became of the run, from the store.
        if isinstance(problem, RunHeld) and problem.reason == "stuck" and order.supervised:
            return codes.STUCK
        return exit_code(problem)
    except UsageError as problem:
        said, *more = (reaching(str(text), order.named) for text in problem.args or ("",))
        say(said)
        for line in more:
            _write(line)
        return exit_code(problem)
    except OutlastError as problem:
        say(reaching(str(problem), order.named))
        return exit_code(problem)
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    except SystemExit as exit:
        if exit.code == codes.TERMINATED:  # SIGTERM, see signals.py
            return codes.TERMINATED
        # A tool's own code must not pass for one of ours: 0 would say that the run has completed.
        say(f"run {order.run_id}: the program called sys.exit({exit.code!r}); the run was released")
        return codes.FAILED
    except Exception as bug:  # errors of the workflow arrive as RunFailed, so this one is ours
        if os.environ.get("OUTLAST_DEBUG"):
            raise
        say(f"a bug in outlast: {type(bug).__name__}: {bug} (OUTLAST_DEBUG=1 shows where)")
        return codes.BUG
    return codes.COMPLETED


@contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Show our warnings so: Python would name a line of ours, which tells a user nothing. Other
    warnings stay as they are, and so does what the user's filters say."""
    before = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is None and issubclass(category, OutlastWarning):
            say(f"warning: {message}")
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:  # the user's program may have its own by now
            warnings.showwarning = before


def say(text: str) -> None:
    """Say something in one line on stderr, whatever stands in it."""
    _write(f"outlast: {' '.join(text.split())}")


def _write(line: str) -> None:
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    write_line(visible)
