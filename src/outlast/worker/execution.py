"""Executing one run in this process: claim it, drive it, keep its lease, conclude."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from outlast import codec
from outlast.budgets import Declared
from outlast.engine.ending import await_ending
from outlast.engine.lifecycle import execute_async, execute_sync, release
from outlast.engine.preparation import Preparation, prepare, prepare_async, prepare_sync
from outlast.engine.run import PAUSED, Run, active
from outlast.engine.scope import create_unscoped_task
from outlast.engine.spec import Settings, WorkflowSpec
from outlast.engine.stop import Release
from outlast.engine.threads import in_thread
from outlast.errors import OutlastError, RunOwned, RunReleased, UsageError
from outlast.journal import ACTIVE
from outlast.leases import Claim, Create, NewRun, Refused, lease_from
from outlast.policy.budget import Budget
from outlast.records import Identity, Source
from outlast.store.writer import Store
from outlast.views import read_run
from outlast.worker.outcome import result_of_conclusion, result_of_row
from outlast.worker.signals import release_on_signals
from outlast.worker.stores import OpenStore

IfOwned = Literal["raise", "wait"]

POLL = (0.02, 1.0)
"""First and longest pause, in seconds, between two looks at a run that another process has."""


class Plan(Struct, frozen=True):
    """What is to be executed, and how.

    Attributes:
        new: what to create the run from; None to go on with an existing one.
        wait: for timers and retries, or a number: only for waits of at most so many seconds.
        resume: an operator asked for it, so any hold is lifted.
        budget: of this run, in place of the workflow's own.
        parent: the run that has called it, which this process executes.
    """

    spec: WorkflowSpec
    run_id: str
    new: NewRun | None = None
    wait: bool | float = True
    if_owned: IfOwned = "raise"
    settings: Settings = Settings()
    resume: bool = False
    budget: Budget | None = None
    parent: Run | None = None


def run_plan(plan: Plan, opened: OpenStore) -> object:
    """Execute a run in this thread and return its result; raises as `outlast.run` does."""
    if not plan.spec.is_async:
        with release_on_signals():
            return run_plain(plan, opened)
    # The loop is closed within the signals' block: tasks that go on for ever must not keep it open.
    with release_on_signals(), asyncio.Runner() as runner:
        return runner.run(execute_plan(plan, opened))


class Caller:
    """Whoever waits for a run that is executed elsewhere in this process, and may stop waiting.

    Attributes:
        run: once it is ours.
    """

    def __init__(self) -> None:
        self.gone = threading.Event()
        self.run: Run | None = None
        self._why = ""

    def begins(self, run: Run) -> None:
        """The run is ours."""
        self.run = run
        if self.gone.is_set():
            run.request_stop(Release(self._why))

    def leaves(self, why: str = "cancelled") -> None:
        """Nobody waits any more: the run is to be released."""
        self._why = why
        self.gone.set()
        if self.run is not None:
            self.run.request_stop(Release(why))


async def execute_plain(plan: Plan, opened: OpenStore) -> object:
    """Execute a plain workflow in a thread.

    A thread cannot be interrupted. If the caller is cancelled, what is open in the run comes to its
    end, nothing else begins, and the run is released; that is waited for, within the grace period.
    """
    caller = Caller()
    work = create_unscoped_task(asyncio.to_thread(run_plain, plan, opened, caller))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        caller.leaves()
        await asyncio.wait({work}, timeout=plan.settings.grace)
        # Its outcome is in the store, and nobody is left to whom it could be told.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def run_plain(plan: Plan, opened: OpenStore, caller: Caller | None = None) -> object:
    """Execute a plain workflow in this thread."""
    store, caller = opened.store, caller or Caller()
    pauses = _pauses()
    while not caller.gone.is_set():
        with opened.heart.claiming() as owner:
            claim = _claim(plan, opened, owner)
            got = prepare_sync(_preparation(plan, store, claim), store)
            if isinstance(got, Run):
                _begin(got, plan, opened, caller)
                with active(got), opened.heart.keep(got):
                    conclusion = execute_sync(got, plan.spec)
                await_ending(got)
                if _was_resumed(got):
                    continue
                return result_of_conclusion(conclusion, plan.spec)
        if not _may_wait(got, plan):
            return result_of_row(store, got.row, plan.spec)
        store.world.pause(next(pauses), caller.gone)
    raise _unwanted(plan)


async def execute_plan(plan: Plan, opened: OpenStore, caller: Caller | None = None) -> object:
    """Execute an asynchronous workflow in the running loop."""
    store = opened.store
    pauses = _pauses()
    while caller is None or not caller.gone.is_set():
        with opened.heart.claiming() as owner:
            # What has a name here is kept as long as the run, so the claim has none.
            got = await _to_its_end(
                prepare_async(_preparation(plan, store, _claim(plan, opened, owner)), store)
            )
            if isinstance(got, Run):
                _begin(got, plan, opened, caller)
                with active(got), opened.heart.keep(got):
                    conclusion = await execute_async(got, plan.spec)
                if got.ending is not None:
                    await in_thread(await_ending, got)
                if _was_resumed(got):
                    continue
                return result_of_conclusion(conclusion, plan.spec)
        if not _may_wait(got, plan):
            return result_of_row(store, got.row, plan.spec)
        await asyncio.sleep(next(pauses))
    raise _unwanted(plan)


def _preparation(plan: Plan, store: Store, claim: Claim) -> Preparation:
    return prepare(store, claim, plan.settings, plan.wait, parent=plan.parent)


def _begin(run: Run, plan: Plan, opened: OpenStore, caller: Caller | None) -> None:
    if run.family is None:
        from outlast.worker.family import Clan  # which executes runs by what stands here

        run.family = Clan(opened, plan)
    if caller is not None:
        caller.begins(run)


def _unwanted(plan: Plan) -> RunReleased:
    return RunReleased(plan.run_id, f"run {plan.run_id} is not waited for any more")


async def _to_its_end(preparation: Coroutine[object, object, Run | Refused]) -> Run | Refused:
    """A claim cannot be withdrawn: if the caller is cancelled meanwhile, the run is released."""
    task = create_unscoped_task(preparation)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        await asyncio.wait({task})
        got = None if task.cancelled() or task.exception() else task.result()
        if isinstance(got, Run):
            try:
                await release(got, "cancelled")
            except OutlastError as problem:
                cancelled.add_note(f"run {got.run_id} could not be released: {problem}")
        raise


def _was_resumed(run: Run) -> bool:
    """Whether a run that was paused here was let go on while a step came to its end. Somebody else
    may have it by now, or have brought it to its end: the next claim finds out."""
    if run.stop != PAUSED:
        return False
    row = read_run(run.store, run.run_id)
    return row is not None and row.status != "held"


def _may_wait(refused: Refused, plan: Plan) -> bool:
    """Whether to look again later.

    Raises:
        RunOwned: another process has the run and the caller does not want to wait.
    """
    if not refused.owned:
        return False
    if plan.if_owned == "wait":
        return True
    owner = refused.row.owner
    assert owner is not None
    process = f"process {owner.pid} on {owner.host}"
    if refused.row.status not in ACTIVE:
        process += ", where a step that could not be stopped still runs"
    raise RunOwned(plan.run_id, process)


def _pauses() -> Iterator[float]:
    pause, longest = POLL
    while True:
        yield pause
        pause = min(longest, pause * 1.5)


# ---- creating and claiming


def new_run(
    spec: WorkflowSpec,
    run_id: str,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    tags: Mapping[str, str],
    settings: Settings,
    budget: Budget | None = None,
) -> NewRun:
    """What a run is created from.

    Raises:
        UsageError: the id, the tags or the arguments do not fit.
        NotStorable: an argument cannot be stored.
    """
    check_run_id(run_id)
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"tags={dict(tags)!r}: text for names and values is expected")
        if any("\ud800" <= char <= "\udfff" for char in name + value):
            raise UsageError(
                f"tags={dict(tags)!r}: a lone surrogate (undecoded bytes, such as those of a file "
                "name) cannot stand in a tag; decode or escape it first"
            )
    try:
        bound = spec.signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise UsageError(
            f"workflow {spec.name}: {problem}; expected {spec.name}{spec.signature}"
        ) from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    where = f"argument of workflow {spec.name}: arguments"
    limit = settings.max_value_bytes
    data = codec.encode(values, where=where, hints=(spec.fn,), limit=limit)
    return NewRun(
        run_id=run_id,
        workflow=spec.name,
        args=codec.pack(data),
        digest=codec.digest(values, where=where, limit=limit),
        source=source_of(spec.fn, spec.module),
        tags=dict(tags),
        preview=codec.preview(values),
        budget=declared(spec, budget),
    )


MAX_RUN_ID = 200
"""Characters that a run id may have."""


def check_run_id(run_id: str) -> None:
    """A run id is text that can be typed and printed: 1 to 200 characters without control
    characters, blanks at the ends or a leading `@` or `-`.

    Raises:
        UsageError: it is not.
    """
    fine = (
        isinstance(run_id, str)
        and 0 < len(run_id) <= MAX_RUN_ID
        and run_id.isprintable()
        and run_id == run_id.strip()
        and run_id[0] not in "@-"
    )
    if not fine:
        raise UsageError(
            f"run id {run_id!r}: expected 1 to 200 printable characters, not starting with '@' or "
            "'-', no blanks at the ends"
        )


@cache
def source_of(fn: Callable[..., object], module: str) -> Source | None:
    """Where to find the workflow again; None if it has no place of its own."""
    qualname = fn.__qualname__
    if "<locals>" in qualname or not module:
        return None
    file = inspect.getsourcefile(inspect.unwrap(fn))
    if module == "__main__":
        main = sys.modules["__main__"]
        known = getattr(main, "__spec__", None)
        module = known.name if known is not None else Path(file or "").stem
    return Source(None if file is None else str(Path(file).resolve()), module, qualname)


def creation(new: NewRun, opened: OpenStore) -> Create:
    """The item that creates a run."""
    world = opened.store.world
    return Create(new, world.token(), world.token(), world.wall(), _library())


@cache
def _library() -> str:
    from importlib.metadata import version  # takes a tenth of the time of `import outlast`

    return version("outlast")


def _claim(plan: Plan, opened: OpenStore, owner: Identity) -> Claim:
    world = opened.store.world
    return Claim(
        run_id=plan.run_id,
        workflow=plan.spec.name,
        world=world,
        owner=owner,
        lease=lease_from(world, plan.settings.lease),
        at=world.wall(),
        own_claims=opened.heart.claims,
        create=None if plan.new is None else creation(plan.new, opened),
        resume=plan.resume,
        source=source_of(plan.spec.fn, plan.spec.module),
        budget=declared(plan.spec, plan.budget),
    )


def declared(spec: WorkflowSpec, given: Budget | None) -> Declared | None:
    """The budget that counts for a run: the one that it was given, or the workflow's."""
    if given is not None:
        return Declared(given, override=True)
    return None if spec.budget is None else Declared(spec.budget)
