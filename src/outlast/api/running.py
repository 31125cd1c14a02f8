"""`run`, `execute`, `start` and `submit`: from a workflow and its arguments to a result, an error,
or a handle on a run."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, TypeVarTuple, overload

from outlast.api.handles import Handle, handle_for
from outlast.engine.scope import ATTEMPT, SCOPE
from outlast.engine.spec import Settings, workflow_spec
from outlast.errors import UsageError
from outlast.policy.budget import Budget
from outlast.worker.execution import (
    IfOwned,
    Plan,
    creation,
    execute_plain,
    execute_plan,
    new_run,
    run_plan,
)
from outlast.worker.loader import module_being_imported
from outlast.worker.pool import poke_pools
from outlast.worker.stores import OpenStore, get_store

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@overload
def run(
    workflow: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool | float = True,
    if_owned: IfOwned = "raise",
    settings: Settings | None = None,
    budget: Budget | None = None,
) -> R: ...
@overload
def run(
    workflow: Callable[[*Ts], R],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool | float = True,
    if_owned: IfOwned = "raise",
    settings: Settings | None = None,
    budget: Budget | None = None,
) -> R: ...
def run(
    workflow: Callable[..., object],
    *args: object,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool | float = True,
    if_owned: IfOwned = "raise",
    settings: Settings | None = None,
    budget: Budget | None = None,
) -> object:
    """Run a workflow to its end and return its result; go on where an earlier process stopped.

    Called again with the same `run_id`, it resumes an unfinished run, and returns the result of a
    completed one without running anything.

    Args:
        workflow: a function decorated with `@workflow`, plain or asynchronous. Keyword arguments go
            through `functools.partial`.
        args: its arguments; they are stored.
        run_id: names the run; a new unique id by default.
        store: URL of the store; `$OUTLAST_STORE` by default, else `sqlite:///outlast.db`.
        tags: labels, kept from its creation on and shown with the run.
        wait: wait in this process for timers and retries; otherwise leave with `RunWaiting`. A
            number leaves only for waits of more than so many seconds.
        if_owned: what to do if another live process executes the run: `raise` `RunOwned`, or
            `wait` for its result.
        settings: leases, grace periods, crash limits, the largest value.
        budget: what this run may spend, in place of the workflow's own; given again, it changes the
            limits of a run that exists.

    Raises:
        RunFailed: the workflow raised; its exception is the cause.
        RunHeld, RunKilled, RunWaiting, RunOwned, LostRun: see their own descriptions.
        RunMismatch: the id is taken by another workflow or by other arguments.
        UsageError: this is no workflow, its arguments do not fit, or an event loop is running.
        NotStorable: an argument cannot be stored.
        StoreError: the store cannot be used. The run can be resumed once it can.
    """
    _refuse_in_loop()
    plan, opened = _plan(workflow, args, run_id, store, tags, wait, if_owned, settings, budget)
    return run_plan(plan, opened)


@overload
async def execute(
    workflow: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool | float = True,
    if_owned: IfOwned = "raise",
    settings: Settings | None = None,
    budget: Budget | None = None,
) -> R: ...
@overload
async def execute(
    workflow: Callable[[*Ts], R],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool | float = True,
    if_owned: IfOwned = "raise",
    settings: Settings | None = None,
    budget: Budget | None = None,
) -> R: ...
async def execute(
    workflow: Callable[..., object],
    *args: object,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool | float = True,
    if_owned: IfOwned = "raise",
    settings: Settings | None = None,
    budget: Budget | None = None,
) -> object:
    """`run` for code in an event loop; the same arguments, result and errors.

    A plain workflow is executed in a thread. If the calling task is cancelled, the run is released
    and can be resumed.
    """
    plan, opened = _plan(workflow, args, run_id, store, tags, wait, if_owned, settings, budget)
    if not plan.spec.is_async:
        return await execute_plain(plan, opened)
    return await execute_plan(plan, opened)


@overload
def submit(
    workflow: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Handle[R]: ...
@overload
def submit(
    workflow: Callable[[*Ts], R],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Handle[R]: ...
def submit(
    workflow: Callable[..., object],
    *args: object,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Handle[object]:
    """Record a run, durably, and return a handle on it without executing it. A worker takes it up:
    `outlast.serving` in this process or another one, `outlast worker`, `outlast resume --all`.

    The same id with the same arguments returns the same run. Arguments and errors are those of
    `run`.
    """
    plan, opened = _plan(workflow, args, run_id, store, tags, True, "raise", None, budget)
    assert plan.new is not None
    opened.store.write(creation(plan.new, opened), durable=True)
    poke_pools(opened.store.path)
    return handle_for(opened, plan.spec, plan.run_id)


@overload
async def start(
    workflow: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Handle[R]: ...
@overload
async def start(
    workflow: Callable[[*Ts], R],
    *args: *Ts,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Handle[R]: ...
async def start(
    workflow: Callable[..., object],
    *args: object,
    run_id: str | None = None,
    store: str | None = None,
    tags: Mapping[str, str] | None = None,
    budget: Budget | None = None,
) -> Handle[object]:
    """`submit` for code in an event loop; the same arguments, handle and errors."""
    plan, opened = _plan(workflow, args, run_id, store, tags, True, "raise", None, budget)
    assert plan.new is not None
    await opened.store.awrite(creation(plan.new, opened), durable=True)
    poke_pools(opened.store.path)
    return handle_for(opened, plan.spec, plan.run_id)


# ---- plans


def _plan(
    workflow: Callable[..., object],
    args: tuple[object, ...],
    run_id: str | None,
    store: str | None,
    tags: Mapping[str, str] | None,
    wait: bool | float,
    if_owned: IfOwned,
    settings: Settings | None,
    budget: Budget | None,
) -> tuple[Plan, OpenStore]:
    if SCOPE.get() is not None and ATTEMPT.get() is None:
        raise UsageError(
            "a run cannot be started in workflow code, where each replay would start another one: "
            "call the workflow itself, which makes it a child run, or start it in a step"
        )
    module = module_being_imported()
    if module is not None:
        raise UsageError(
            f'{module} starts a run while it is imported; put that under if __name__ == "__main__":'
        )
    fn, kwargs = workflow, dict[str, object]()
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    spec = workflow_spec(fn)
    if spec is None:
        raise UsageError(f"{fn!r} is not a workflow; decorate it with @outlast.workflow")
    opened = get_store(store)
    chosen = run_id or f"{spec.name}-{opened.store.world.token()[:12]}"
    settings = settings or Settings()
    if budget is not None and not isinstance(budget, Budget):
        raise UsageError(f"budget={budget!r}: an outlast.Budget is expected")
    new = new_run(spec, chosen, args, kwargs, tags or {}, settings, budget)
    return Plan(spec, chosen, new, wait, if_owned, settings, budget=budget), opened


def _refuse_in_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "outlast.run() blocks, and an event loop is running here; use: await outlast.execute(...)"
    )
