"""A run's life in one process: claim it, read its history, run the workflow, conclude.

As in flow.py, the algorithms are generators; here they also request `Commit` and `Load`, which
concern a run that is not ours yet.
"""

import asyncio
import contextvars
import inspect
from collections import OrderedDict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar, cast

import msgspec
from msgspec import Raw

from outlast import codec, events
from outlast.engine.drive import drive_async, drive_sync, sequence
from outlast.engine.flow import (
    Drain,
    Raised,
    Reply,
    Request,
    Returned,
    Write,
    crash_loop,
    unreadable,
)
from outlast.engine.history import History, build
from outlast.engine.order import PASSES
from outlast.engine.run import Run
from outlast.engine.scope import (
    ATTEMPT,
    SCOPE,
    Scope,
    create_unscoped_task,
    install_task_factory,
)
from outlast.engine.spec import Settings, WorkflowSpec, return_hint
from outlast.engine.stop import Asleep, Broken, Hold, Release
from outlast.errors import NotStorable, StopRun, Unreadable
from outlast.events import Event
from outlast.journal import Becomes, Entry, to_event
from outlast.leases import Claim, Claimed, Refused
from outlast.policy.gate import Gate, allow_all
from outlast.records import StoredEvent
from outlast.store.base import Item
from outlast.store.writer import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit an item durably. Reply: its result."""

    item: Item[object]


@dataclass(frozen=True, slots=True)
class Load:
    """Read a run's events. Reply: a list of them."""

    run_id: str


Preparation = Generator[Commit | Load, object, Run | Refused]


def prepare(
    store: Store, claim: Claim, settings: Settings, wait: bool, gate: Gate = allow_all
) -> Preparation:
    """Claim a run and read what it has done. Returns it, or why it is not to be had.

    Raises:
        UnknownRun, RunMismatch: see `leases.Claim`.
        StoreError: the store is in trouble.
    """
    got = yield Commit(claim)
    if isinstance(got, Refused):
        return got
    assert isinstance(got, Claimed)
    rows: list[StoredEvent] = []
    if not got.created:
        rows = cast(list[StoredEvent], (yield Load(got.row.run_id)))
    trouble = ""
    try:
        history = build(rows)
    except (msgspec.DecodeError, KeyError) as problem:
        history, trouble = History(), f"its journal cannot be read: {problem!r}"
    run = Run(got.row, got.args, history, store, settings, wait=wait, gate=gate)
    if trouble:
        run.request_stop(unreadable(run, trouble))
        return run
    interrupted = _interruptions(history, crash=got.crash)
    if interrupted:
        yield Commit(run.owner_write(interrupted, "record"))
    if history.claims_without_progress >= settings.max_crashes:
        run.request_stop(_crash_loop(run))
    return run


def prepare_sync(preparation: Preparation, store: Store) -> Run | Refused:
    """Perform a preparation in this thread."""
    reply: object = None
    while True:
        try:
            request = preparation.send(reply)
        except StopIteration as end:
            return cast(Run | Refused, end.value)
        if isinstance(request, Commit):
            reply = store.write(request.item, durable=True)
        else:
            reply = _load(store, request.run_id)


async def prepare_async(preparation: Preparation, store: Store) -> Run | Refused:
    """Perform a preparation without blocking the event loop."""
    reply: object = None
    while True:
        try:
            request = preparation.send(reply)
        except StopIteration as end:
            return cast(Run | Refused, end.value)
        if isinstance(request, Commit):
            reply = await store.awrite(request.item, durable=True)
        else:
            reply = await asyncio.to_thread(_load, store, request.run_id)


def _load(store: Store, run_id: str) -> list[StoredEvent]:
    return [to_event(row) for row in store.read("read_events", run_id=run_id)]


def _interruptions(history: History, crash: bool) -> tuple[Entry, ...]:
    """Attempts that an earlier owner opened and did not end."""
    entries = []
    for past in history.calls.values():
        if past.open:
            entries.append(Entry(events.StepInterrupted(past.attempts, crash), past.key))
            past.open = False
            past.crashes += crash
            past.doubt = "its process ended while it ran"
    return tuple(entries)


# ---- running the workflow


@dataclass(frozen=True, slots=True)
class Conclusion:
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
    ended: Returned | Raised = Returned(None)
    context = contextvars.copy_context()
    context.run(_enter, run)
    try:
        if run.stop is None:
            args, kwargs = arguments(run, spec)
            ended = Returned(context.run(spec.fn, *args, **kwargs))
    except StopRun:
        pass
    except Exception as exc:
        ended = Raised(exc)
    except BaseException as exc:
        run.request_stop(Release(type(exc).__name__))
        drive_sync(_conclude(run, spec, ended), run)
        raise
    return drive_sync(_conclude(run, spec, ended), run)


async def execute_async(run: Run, spec: WorkflowSpec) -> Conclusion:
    """Run an asynchronous workflow to its end, or until it must stop.

    Raises:
        asyncio.CancelledError: passed on, after the run was released.
    """
    sequence(run)
    install_task_factory(asyncio.get_running_loop())
    root = create_unscoped_task(_root(run, spec), name=f"outlast {run.run_id}")
    try:
        with run.watch(_cancel_later(run, root)):
            await asyncio.wait({root})
    except asyncio.CancelledError:
        run.request_stop(Release("cancelled"))
        root.cancel()
        await asyncio.wait({root})
        await _conclude_async(run, spec, Returned(None))
        raise
    interrupt = None if root.cancelled() else root.exception()
    if interrupt is not None:  # KeyboardInterrupt or SystemExit, on its way out of the loop
        run.request_stop(Release(type(interrupt).__name__))
        await _conclude_async(run, spec, Returned(None))
        raise interrupt
    ended = Raised(asyncio.InvalidStateError("cancelled")) if root.cancelled() else root.result()
    return await _conclude_async(run, spec, ended)


async def release(run: Run, why: str) -> None:
    """Give up a run that was claimed and not begun."""
    run.request_stop(Release(why))
    event, becomes = events.RunReleased(why), Becomes("queued", f"released: {why}")
    item = run.owner_write((Entry(event),), "record", becomes, release=True)
    await run.store.awrite(item, durable=True)


def _enter(run: Run) -> None:
    """From here on this context is workflow code of the run, even if a step of another one began
    it: its calls are recorded."""
    SCOPE.set(Scope(run))
    ATTEMPT.set(None)


async def _root(run: Run, spec: WorkflowSpec) -> Returned | Raised:
    _enter(run)
    try:
        if run.stop is not None:
            return Returned(None)
        args, kwargs = arguments(run, spec)
        result = spec.fn(*args, **kwargs)
        return Returned(await result if inspect.isawaitable(result) else result)
    except StopRun:
        return Returned(None)
    except BaseExceptionGroup as group:
        # A task group wraps StopRun; the run's own flag says what happened.
        if run.stop is not None or group.subgroup((KeyboardInterrupt, SystemExit)) is None:
            return Raised(_as_exception(group))
        raise
    except Exception as exc:
        return Raised(exc)


def _as_exception(group: BaseExceptionGroup[BaseException]) -> Exception:
    if isinstance(group, Exception):
        return group
    return RuntimeError(f"the workflow ended with {group!r}")


def _cancel_later(run: Run, root: "asyncio.Task[Returned | Raised]") -> Callable[[], object]:
    """When a run must stop, its workflow may be waiting for something that never comes. It is
    cancelled once nothing is open in it, and after the grace period in any case."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not run.open and not root.done():
            root.cancel()

    def on_stop() -> None:
        loop.call_later(run.settings.grace, root.cancel)
        if not isinstance(run.stop, Hold | Asleep):
            # Some passes later: a task that learns of the stop by itself unwinds with that. A hold
            # starts inside the workflow and unwinds it by itself, so that one gets more time.
            _after_passes(loop, PASSES, look)

    return lambda: loop.call_soon_threadsafe(on_stop)


def _after_passes(loop: asyncio.AbstractEventLoop, passes: int, then: Callable[[], None]) -> None:
    if passes == 0:
        then()
    else:
        loop.call_soon(_after_passes, loop, passes - 1, then)


def arguments(run: Run, spec: WorkflowSpec) -> tuple[tuple[object, ...], dict[str, object]]:
    """The run's arguments, as stored: what a workflow receives never depends on which process
    started it.

    Raises:
        StopRun: they cannot be read any more; the run is held.
    """
    hints = tuple(p.annotation for p in spec.signature.parameters.values())
    try:
        stored = codec.decode(run.args, hints=(*hints, spec.fn))
    except Unreadable as problem:
        run.request_stop(unreadable(run, f"its arguments: {problem}"))
        raise StopRun(run.stop) from None
    bound = inspect.BoundArguments(spec.signature, cast(OrderedDict[str, object], stored))
    return bound.args, bound.kwargs


# ---- the end


async def _conclude_async(run: Run, spec: WorkflowSpec, ended: Returned | Raised) -> Conclusion:
    await _end_tasks(run)
    return await drive_async(_conclude(run, spec, ended), run)


async def _end_tasks(run: Run) -> None:
    """Tasks that the workflow left behind: what they have open ends by itself, then they go."""
    # From here on they ask for what is recorded, but open nothing more.
    run.ended = True
    for _ in range(PASSES):
        if not run.history.unconsumed():
            break
        await asyncio.sleep(0)  # a task may still ask for what it did the last time
    leftover = [t for t in run.tasks if not t.done()]
    if not leftover:
        return
    await drive_async(_drain(), run)
    for task in leftover:
        task.cancel()
    await asyncio.gather(*leftover, return_exceptions=True)


def _drain() -> Generator[Request, Reply, None]:
    yield Drain()


def _conclude(
    run: Run, spec: WorkflowSpec, ended: Returned | Raised
) -> Generator[Request, Reply, Conclusion]:
    """Write how the run left this process, and let go of it."""
    if run.stop is None:
        yield Drain()
    if run.stop is None and run.history.unconsumed():
        run.request_stop(_returned_early(run))
    event, becomes = _last_word(run, spec, ended)
    if event is None:
        return Conclusion(run, None)
    interrupted = tuple(
        Entry(events.StepInterrupted(attempt.number, crash=False), key)
        for key, attempt in run.open.items()
    )
    try:
        yield Write((*interrupted, Entry(event)), "record", becomes=becomes, release=True)
    except StopRun:  # refused: the last word is not ours
        return Conclusion(run, None)
    cause = ended.exc if isinstance(ended, Raised) and isinstance(event, events.RunFailed) else None
    return Conclusion(run, event, cause)


def _last_word(
    run: Run, spec: WorkflowSpec, ended: Returned | Raised
) -> tuple[Event | None, Becomes | None]:
    match run.stop:
        case None:
            return _outcome(run, spec, ended)
        case Hold(reason, detail, fix, step):
            return events.RunHeld(reason, detail, fix, step), Becomes("held", reason, detail)
        case Release(why):
            return events.RunReleased(why), Becomes("queued", f"released: {why}")
        case Asleep(due):
            return events.RunReleased("waiting"), Becomes("waiting", due_at=due)
        case Broken():
            # The store may be well again. Unless it is told so, the next owner takes this end for
            # a crash, and some of those make a crash loop.
            why = "the store failed"
            return events.RunReleased(why), Becomes("queued", f"released: {why}")
        case _:  # lost or moved: there is nothing that we may write
            return None, None


def _outcome(
    run: Run, spec: WorkflowSpec, ended: Returned | Raised
) -> tuple[Event | None, Becomes | None]:
    if isinstance(ended, Raised):
        error = codec.encode_error(ended.exc, "workflow")
        return events.RunFailed(error), Becomes("failed", error.type, error.message)
    try:
        hint = return_hint(spec.fn)
        data = codec.encode(ended.value, where=f"result of run {run.run_id}", hints=(hint,))
    except NotStorable as problem:
        error = codec.encode_error(problem, "workflow")
        return events.RunFailed(error), Becomes("failed", error.type, error.message)
    return events.RunCompleted(Raw(data)), Becomes("completed")


def _returned_early(run: Run) -> Hold:
    left = run.history.unconsumed()
    return Hold(
        "diverged",
        f"the workflow ended without asking for {len(left)} recorded calls, the first is "
        f"{left[0].key}",
        f"Bring back the code that the run started with, then: outlast resume {run.run_id}",
        left[0].key,
    )


def _crash_loop(run: Run) -> Hold:
    for past in run.history.calls.values():
        if past.crashes >= run.settings.max_crashes:
            return crash_loop(run, past)
    return Hold(
        "crash-loop",
        f"the process died {run.history.claims_without_progress} times in a row without a step "
        "being completed",
        f"Find out why the process ends, then: outlast resume {run.run_id}",
    )
