"""A run's life in one process, once it is ours: run the workflow, write how it ended, let go."""

import asyncio
import contextvars
import inspect
import shlex
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TypeVar, cast

from msgspec import Raw, Struct

from outlast import codec, events
from outlast.amounts import NOTHING
from outlast.engine import guards
from outlast.engine.bodies import leave_behind
from outlast.engine.children import end_children, ended_with
from outlast.engine.drive import drive_async, drive_sync, sequence
from outlast.engine.ended import Exiting, Raised, Returned, Stopped, unwrapped
from outlast.engine.ending import begin_ending
from outlast.engine.holds import ended_early, signature_changed, swallowed, unreadable
from outlast.engine.order import PASSES
from outlast.engine.outcomes import is_large, pack
from outlast.engine.requests import Drain, Reply, Request, Write
from outlast.engine.run import KILLED, PAUSED, Run
from outlast.engine.scope import (
    ATTEMPT,
    SCOPE,
    Scope,
    create_unscoped_task,
    install_task_factory,
)
from outlast.engine.spec import WorkflowSpec, return_hint
from outlast.engine.stop import Asleep, Broken, Hold, Moved, Release
from outlast.engine.undo import is_undone_by_request, is_wanted, undo
from outlast.errors import NotStorable, OutlastWarning, StopRun, Unreadable
from outlast.events import Event
from outlast.journal import Along, Becomes, Entry
from outlast.policy.budget import is_limited
from outlast.records import FINAL

T = TypeVar("T")

Ended = Returned | Raised | Stopped
"""The end of a workflow."""


class Conclusion(Struct, frozen=True):
    """How a run left this process.

    Attributes:
        event: the last thing written about it; None if nothing could be written.
        cause: the workflow's own exception, where it failed.
    """

    run: Run
    event: Event | None
    cause: BaseException | None = None


def execute_sync(run: Run, spec: WorkflowSpec) -> Conclusion:
    """Run a plain workflow to its end, or until it must stop.

    Raises:
        KeyboardInterrupt, SystemExit: passed on, after the run was released.
    """
    ended: Ended = Stopped()
    run.max_repeats = spec.max_repeats
    context = contextvars.copy_context()
    context.run(_enter, run)
    try:
        ended = context.run(_call_workflow, run, spec)
        if is_wanted(run, spec, ended):
            run.undone = context.run(drive_sync, undo(run, spec), run)
    except StopRun:
        pass
    except BaseException as exc:
        run.request_stop(Release(type(exc).__name__))
        _conclude_sync(run, spec, ended)
        raise
    return _conclude_sync(run, spec, ended)


async def execute_async(run: Run, spec: WorkflowSpec) -> Conclusion:
    """Run an asynchronous workflow to its end, or until it must stop.

    Raises:
        asyncio.CancelledError: passed on, after the run was released.
    """
    run.max_repeats = spec.max_repeats
    sequence(run)
    install_task_factory(asyncio.get_running_loop())
    root = create_unscoped_task(_root(run, spec), name=f"outlast {run.run_id}")
    end = _End(run, root)
    try:
        with run.watch(end.hurry):
            await end.over
    except asyncio.CancelledError:
        run.request_stop(Release("cancelled"))
        root.cancel()
        await asyncio.wait({root}, timeout=run.settings.grace)
        await _conclude_async(run, spec, root, Stopped())
        raise
    if not root.done():
        return await _conclude_async(run, spec, root, Stopped())
    interrupt = None if root.cancelled() else root.exception()
    if interrupt is not None:  # such as KeyboardInterrupt, on its way out of the loop
        interrupt = unwrapped(interrupt)
        run.request_stop(Release(type(interrupt).__name__))
        await _conclude_async(run, spec, root, Stopped())
        raise interrupt
    ended = Raised(asyncio.InvalidStateError("cancelled")) if root.cancelled() else root.result()
    return await _conclude_async(run, spec, root, ended)


async def release(run: Run, why: str) -> None:
    """Give up a run that was claimed and not begun."""
    run.request_stop(Release(why))
    event, becomes = events.RunReleased(why), Becomes("queued", f"released: {why}")
    item = run.owner_write((Entry(event),), "record", becomes, release=True)
    await run.store.awrite(item, durable=True)


def _enter(run: Run) -> Scope:
    """From here on this context is workflow code of the run, even if a step of another one began
    it: its calls are recorded."""
    scope = Scope(run)
    SCOPE.set(scope)
    ATTEMPT.set(None)
    return scope


def _call_workflow(run: Run, spec: WorkflowSpec) -> Ended:
    if run.stop is not None or is_undone_by_request(run):
        return Stopped()
    try:
        args, kwargs = arguments(run, spec)
        return Returned(spec.fn(*args, **kwargs))
    except StopRun:
        return Stopped()
    except Exception as exc:
        return Raised(exc)


async def _root(run: Run, spec: WorkflowSpec) -> Ended:
    ended = await _await_workflow(run, spec)
    if is_wanted(run, spec, ended):
        await _end_tasks(run)
        with suppress(StopRun):  # the run's own flag says so
            run.undone = await drive_async(undo(run, spec), run)
    return ended


async def _await_workflow(run: Run, spec: WorkflowSpec) -> Ended:
    scope = _enter(run)
    if run.stop is not None or is_undone_by_request(run):
        return Stopped()
    try:
        args, kwargs = arguments(run, spec)
        result = scope.coro = spec.fn(*args, **kwargs)
        return Returned(await result if inspect.isawaitable(result) else result)
    except StopRun:
        return Stopped()
    except BaseExceptionGroup as group:
        # A task group wraps StopRun; the run's own flag says what happened.
        if group.subgroup((KeyboardInterrupt, SystemExit)) is None:
            return Raised(_as_exception(group))
        raise
    except Exception as exc:
        return Raised(exc)
    except SystemExit as leaving:
        raise Exiting(leaving) from None


def _as_exception(group: BaseExceptionGroup[BaseException]) -> Exception:
    if isinstance(group, Exception):
        return group
    return RuntimeError(f"the workflow ended with {group!r}")


class _End:
    """The end of a workflow's task.

    When a run must stop, its workflow may be waiting for something that never comes. It is
    cancelled once nothing is open in it, and after the grace period in any case. To unwind it has
    the grace period again; one that swallows the cancellation is given up.

    Attributes:
        over: done once the task has ended or was given up.
    """

    __slots__ = ("_loop", "_root", "_run", "over")

    def __init__(self, run: Run, root: "asyncio.Task[Ended]") -> None:
        self._run = run
        self._root = root
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        root.add_done_callback(self._wake)

    def hurry(self) -> None:
        """The run must stop. Called in any thread."""
        self._loop.call_soon_threadsafe(self._on_stop)

    def _on_stop(self) -> None:
        grace = self._run.settings.grace
        if self._run.stop == KILLED:
            self._root.cancel()
            self._loop.call_later(grace, self._wake)
            return
        if self._run.stop == PAUSED:  # what is under way may come to its end, however long it takes
            self._run.watch(self._idle, idle=True).__enter__()
        else:
            self._loop.call_later(grace, self._root.cancel)
            self._loop.call_later(2 * grace, self._wake)
        if not isinstance(self._run.stop, Hold | Asleep):
            # Some passes later: a task that learns of the stop by itself unwinds with that. A hold
            # starts inside the workflow and unwinds it by itself, so that one gets more time.
            _after_passes(self._loop, PASSES, self._look)

    def _idle(self) -> None:
        """Nothing is open in a paused run any more. Called in any thread."""
        with suppress(RuntimeError):  # the loop was closed, and what kept the run busy outlived it
            self._loop.call_soon_threadsafe(_after_passes, self._loop, PASSES, self._look)

    def _look(self) -> None:
        if not self._run.is_busy and not self._root.done():
            self._root.cancel()

    def _wake(self, _: object = None) -> None:
        if not self.over.done():
            self.over.set_result(None)


def _after_passes(loop: asyncio.AbstractEventLoop, passes: int, then: Callable[[], None]) -> None:
    if passes == 0:
        then()
    else:
        loop.call_soon(_after_passes, loop, passes - 1, then)


def arguments(run: Run, spec: WorkflowSpec) -> tuple[tuple[object, ...], dict[str, object]]:
    """The run's arguments, as stored: what a workflow receives never depends on which process
    started it.

    Raises:
        StopRun: they cannot be read any more, or do not fit the workflow; the run is held.
    """
    hints = tuple(p.annotation for p in spec.signature.parameters.values())
    try:
        stored = codec.decode(run.args, hints=(*hints, spec.fn, *run.history.moved))
    except Unreadable as problem:
        run.request_stop(unreadable(run, f"its arguments: {problem}"))
        raise StopRun(run.stop) from None
    names = cast(OrderedDict[str, object], stored)
    missing = [
        name
        for name, parameter in spec.signature.parameters.items()
        if name not in names
        and parameter.default is parameter.empty
        and not _is_variadic(parameter)
    ]
    if missing or names.keys() - spec.signature.parameters.keys():
        run.request_stop(signature_changed(run, spec, list(names)))
        raise StopRun(run.stop)
    bound = inspect.BoundArguments(spec.signature, names)
    bound.apply_defaults()
    return bound.args, bound.kwargs


# ---- the end


def _conclude_sync(run: Run, spec: WorkflowSpec, ended: Ended) -> Conclusion:
    conclusion = drive_sync(_conclude(run, spec, ended), run)
    if run.stop == KILLED:
        begin_ending(run).left()
    return conclusion


async def _conclude_async(
    run: Run, spec: WorkflowSpec, root: "asyncio.Task[Ended]", ended: Ended
) -> Conclusion:
    await _end_tasks(run)
    alive = any(not task.done() for task in run.tasks)
    if not root.done():
        leave_behind(root)
    if not root.done() or (alive and run.is_busy):
        # Its code may still do something, so nobody may go on with the run beside it.
        run.give_up(swallowed(run, next(iter(run.open), None)))
    conclusion = await drive_async(_conclude(run, spec, ended), run)
    if run.stop == KILLED:
        left: list[asyncio.Future[object]] = [task for task in run.tasks if not task.done()]
        begin_ending(run).left(left if root.done() else [*left, cast(asyncio.Future[object], root)])
    return conclusion


async def _end_tasks(run: Run) -> None:
    """Tasks that the workflow left behind: what they have open ends by itself, then they go."""
    # From here on they ask for what is recorded, but open nothing more.
    run.ended = True
    for _ in range(PASSES):
        if not (run.history.unconsumed() or run.history.children):
            break
        await asyncio.sleep(0)  # a task may still ask for what it did, or for a child to go on
    await drive_async(end_children(run), run)
    leftover = [t for t in run.tasks if not t.done()]
    if not leftover:
        return
    if run.stop == KILLED:
        for task in leftover:
            task.cancel()
    await drive_async(_drain(), run)
    for task in leftover:
        task.cancel()
    _, alive = await asyncio.wait(leftover, timeout=run.settings.grace)
    for task in leftover:
        if task in alive and isinstance(task, asyncio.Task):
            leave_behind(task)  # it swallowed the cancellation
        elif not task.cancelled():
            task.exception()  # looked at, so that asyncio need not complain


def _drain() -> Generator[Request, Reply, None]:
    yield Drain()


def _conclude(run: Run, spec: WorkflowSpec, ended: Ended) -> Generator[Request, Reply, Conclusion]:
    """Write how the run left this process, and let go of it: at once, unless a body still runs
    here, beside which nobody may go on."""
    yield from end_children(run)
    if run.stop is None:
        yield Drain()
    if run.stop is None and not is_undone_by_request(run) and run.history.unconsumed():
        run.request_stop(ended_early(run, ended.exc if isinstance(ended, Raised) else None))
    event, becomes = _last_word(run, spec, ended)
    if event is None:
        return Conclusion(run, None)
    cancelled = None
    if isinstance(event, events.RunCompleted):
        stored, cancelled = yield from pack(bytes(event.result))
        event = events.RunCompleted(stored)
    interrupted, along = _interrupted(run)
    assert becomes is not None
    along = (*along, *ended_with(run, becomes.status))
    keeps_owner = becomes.status not in FINAL and bool(run.executing)
    undone = () if run.undone is None or run.stop is not None else (run.undone.event,)
    entries = (*interrupted, *(Entry(e) for e in undone if e is not event), Entry(event))
    try:
        large = is_large(event)
        yield Write(
            entries, "record", becomes=becomes, release=not keeps_owner, large=large, along=along
        )
    except StopRun:  # refused: the last word is not ours
        if run.stop == PAUSED and becomes.status in FINAL:  # it would have ended, had it gone on
            return (yield from _conclude(run, spec, ended))
        return Conclusion(run, None)
    run.keeps_owner = keeps_owner
    if isinstance(event, events.RunCompleted):
        _warn_of_budget(run, spec)
    if cancelled is not None:
        raise cancelled
    cause = ended.exc if isinstance(ended, Raised) and isinstance(event, events.RunFailed) else None
    return Conclusion(run, event, cause)


def _interrupted(run: Run) -> tuple[tuple[Entry, ...], tuple[Along, ...]]:
    """Attempts that end with the run's stay here, without an outcome."""
    entries: list[Entry] = []
    along: list[Along] = []
    opened = {key: (attempt, False) for key, attempt in run.open.items()}
    for key, (attempt, crash) in {**run.cut, **opened}.items():
        bill = guards.settled(run, key)
        interrupted = events.StepInterrupted(attempt.number, crash)
        entries += [Entry(event, key) for event in (*bill.events, interrupted)]
        along += bill.along
    return tuple(entries), tuple(along)


def _warn_of_budget(run: Run, spec: WorkflowSpec) -> None:
    """The run has completed, and its limit of money has not kept what it promised."""
    account = run.purse.account
    if run.row.root is not None:  # it is its root's
        return
    if account is None or not is_limited(account, "usd") or account.limits.usd is None:
        return
    if account.unknown_usd:
        text = (
            f"run {run.run_id}: what {account.unknown_usd} of its attempts have cost is not known, "
            f"so nobody can tell what it has spent; see: outlast show {shlex.quote(run.run_id)}"
        )
    elif account.steps and not account.metered and account.settled == NOTHING:
        text = (
            f"run {run.run_id} has a money budget, and no step of it declares a cost, so nothing "
            'was counted; say what steps cost: @outlast.step(cost=0.01), or cost="llm" for model '
            "calls"
        )
    else:
        return
    code = getattr(spec.fn, "__code__", None)
    place = ("<workflow>", 0) if code is None else (code.co_filename, code.co_firstlineno)
    warnings.warn_explicit(text, OutlastWarning, *place)


def _last_word(run: Run, spec: WorkflowSpec, ended: Ended) -> tuple[Event | None, Becomes | None]:
    match run.stop:
        case None:
            return _outcome(run, spec, ended)
        case Hold(reason, detail, fix, step):
            return events.RunHeld(reason, detail, fix, step), Becomes("held", reason, detail)
        case Release(why):
            return events.RunReleased(why), Becomes("queued", f"released: {why}")
        case Moved("held"):
            # The status stays as the operator has set it; unless he let the run go on meanwhile.
            return events.RunReleased("paused"), Becomes("queued", "released: paused")
        case Asleep(due):
            return events.RunReleased("waiting"), run.waits_until(due)
        case Broken():
            # The store may be well again. Unless it is told so, the next owner takes this end for
            # a crash, and some of those make a crash loop.
            why = "the store failed"
            return events.RunReleased(why), Becomes("queued", f"released: {why}")
        case _:  # lost or moved: there is nothing that we may write
            return None, None


def _outcome(run: Run, spec: WorkflowSpec, ended: Ended) -> tuple[Event | None, Becomes | None]:
    if run.history.undoing is not None and run.undone is not None:
        return run.undone.last_word(run.history.undoing)
    if isinstance(ended, Stopped):
        ended = Raised(RuntimeError("the workflow raised StopRun, and its run need not stop"))
    if isinstance(ended, Raised):
        error = codec.encode_error(ended.exc, "workflow")
        return events.RunFailed(error), Becomes("failed", error.type, error.message)
    try:
        data = run.encode(ended.value, f"result of run {run.run_id}", return_hint(spec.fn))
    except NotStorable as problem:
        error = codec.encode_error(problem, "workflow")
        return events.RunFailed(error), Becomes("failed", error.type, error.message)
    return events.RunCompleted(Raw(data)), Becomes("completed")


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
