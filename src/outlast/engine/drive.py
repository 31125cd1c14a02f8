"""The two drivers of a flow: one for plain code, one for asyncio. They do what a flow requests."""

import asyncio
from collections.abc import Generator
from typing import TypeVar, cast

from outlast import codec
from outlast.engine.bodies import (
    await_bodies,
    await_with_timeout,
    call_body,
    call_with_timeout,
    cancelled_from_within,
    late_result,
)
from outlast.engine.emitting import news_of
from outlast.engine.ended import Ended, Exiting, Raised, Returned, as_failure, unwrapped
from outlast.engine.interrupts import call
from outlast.engine.loading import load
from outlast.engine.order import Sequencer
from outlast.engine.pausing import (
    drain,
    drain_async,
    in_line,
    in_line_async,
    pause,
    sleep,
    sleep_async,
)
from outlast.engine.requests import (
    Advance,
    Body,
    Cancelled,
    Child,
    Deliver,
    Drain,
    Forever,
    InLine,
    Late,
    Pack,
    Recall,
    Reply,
    Request,
    Sleep,
    Unwind,
    Write,
)
from outlast.engine.run import EMERGENCY, Run, is_alone
from outlast.engine.scope import ATTEMPT
from outlast.engine.stop import Broken, Lost, Moved, Release
from outlast.errors import LostRun, StopRun, StoreError, StoreStopped, UsageError
from outlast.journal import Entry, Evidence, OwnerWrite, RunMoved

T = TypeVar("T")

STOPPING = (LostRun, RunMoved, StoreError, StoreStopped)
"""Why a write is refused so that the run must stop."""


def drive_sync(flow: Generator[Request, Reply, T], run: Run) -> T:
    """Perform a flow's requests in the calling thread."""
    reply: Reply = None
    error: BaseException | None = None
    while True:
        try:
            request = flow.send(reply) if error is None else flow.throw(error)
        except StopIteration as end:
            return cast(T, end.value)
        reply = error = None
        try:
            if run.dry is None:
                reply = _perform_sync(request, run)
            else:
                reply = run.dry.perform_sync(request, _perform_sync)
        except (StopRun, Exception) as problem:
            reply, error = _unless_the_bodys_own(request, run, problem)
        except BaseException as leaving:
            _cut_off(request, run, leaving)
            raise


async def drive_async(flow: Generator[Request, Reply, T], run: Run) -> T:
    """Perform a flow's requests in the running task."""
    reply: Reply = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            request = flow.send(reply) if error is None else flow.throw(error)
        except StopIteration as end:
            return cast(T, end.value)
        except Cancelled:
            assert cancelled is not None
            raise cancelled from None
        reply = error = None
        try:
            if run.dry is None:
                reply = await _perform_async(request, run)
            else:
                reply = await run.dry.perform_async(request, _perform_async)
        except (StopRun, Exception) as problem:
            reply, error = _unless_the_bodys_own(request, run, problem)
        except asyncio.CancelledError as cancel:
            error, cancelled = Cancelled(), cancel
        except BaseException as leaving:
            _cut_off(request, run, unwrapped(leaving))
            if isinstance(leaving, SystemExit):  # of a child
                raise Exiting(leaving) from None
            raise


def _unless_the_bodys_own(
    request: Request, run: Run, problem: BaseException
) -> tuple[Reply, BaseException | None]:
    """What stops a run is thrown into its flows. A body that raises StopRun by itself, in a run
    that nobody stops, is one that failed."""
    if isinstance(request, Body) and isinstance(problem, StopRun) and run.dry is None:
        if run.stop is None:
            said = "the body raised StopRun, which only outlast itself raises"
            return Raised(UsageError(said)), None
        run.cut_off(request.attempt, type(problem).__name__)
    return None, problem


def _cut_off(request: Request, run: Run, leaving: BaseException) -> None:
    """KeyboardInterrupt, SystemExit and their like leave the run, which must stop even if workflow
    code swallows them on their way."""
    if isinstance(request, Body):
        # Nobody has asked for it, so it is as if the process had died of it: it counts, or a worker
        # would try the step again for ever.
        crash = run.stop is None and not isinstance(leaving, KeyboardInterrupt | GeneratorExit)
        run.cut_off(request.attempt, type(leaving).__name__, crash=crash)
    elif isinstance(request, Child | Advance):
        run.request_stop(Release(type(leaving).__name__))


# ---- plain code


def _perform_sync(request: Request, run: Run) -> Reply:
    match request:
        case Write():
            if request.mode == "open":
                await_bodies(run)
            try:
                item = _item(request, run)
                order = run.store.write(item, durable=request.durable)
            except STOPPING as problem:
                raise _stopped_by(problem, request, run) from None
            news_of(run)
            return order
        case Recall():
            return load(run.store, request.run_id or run.run_id)
        case Pack():
            return codec.pack(request.data)
        case Body():
            return _call(request)
        case Late():
            return late_result(run, request.key)
        case Deliver():
            if run.sequencer is not None:
                run.sequencer.skip(request.order)
            return None
        case Sleep():
            sleep(request, run)
            return None
        case Drain():
            drain(run, request.seconds)
            return None
        case InLine():
            in_line(run, request)
            return None
        case Forever():
            return None  # only asynchronous code can be cancelled: the code has changed colour
        case Child():
            assert run.family is not None
            return run.family.execute(run, request.call)
        case Advance() | Unwind():
            request.perform()
            return None


def _call(request: Body) -> Ended:
    attempt = request.attempt
    if request.timeout is not None:
        return call_with_timeout(request, request.timeout)
    token = ATTEMPT.set(attempt)
    try:
        return Returned(call(request))
    except Exception as exc:
        return Raised(exc)
    except BaseExceptionGroup as group:
        return _raised(group)
    finally:
        ATTEMPT.reset(token)
        attempt.run.body_ended(attempt.key)


# ---- asyncio


async def _perform_async(request: Request, run: Run) -> Reply:
    match request:
        case Write():
            run.arriving += 1
            try:
                return await _write(request, run)
            finally:
                run.arriving -= 1
        case Recall():
            return await asyncio.to_thread(load, run.store, request.run_id or run.run_id)
        case Pack():
            return await asyncio.to_thread(codec.pack, request.data)
        case Body():
            if request.timeout is None:
                return await _await_body(request)
            return await await_with_timeout(request, request.timeout)
        case Late():
            return await asyncio.to_thread(late_result, run, request.key)
        case Deliver():
            run.arriving += 1
            try:
                await _in_order(run, request.order, request.shielded)
            finally:
                run.arriving -= 1
            return None
        case Sleep():
            await sleep_async(request, run)
            return None
        case Drain():
            await drain_async(run, request.seconds)
            return None
        case InLine():
            await in_line_async(run, request)
            return None
        case Forever():
            assert run.sequencer is not None
            with run.sequencer.expect(request.order):
                await pause(run, request.seconds)
            run.check()
            return None
        case Child():
            assert run.family is not None
            return await run.family.execute_async(run, request.call)
        case Advance() | Unwind():
            await request.perform_async()
            return None


async def _write(request: Write, run: Run) -> Reply:
    if request.mode == "open" and run.bodies:
        await asyncio.to_thread(await_bodies, run)
    item = _item(request, run)
    try:
        visible = not request.durable and not request.deliver
        alone = run.store.idle and is_alone(run)
        order: int | None = None
        if request.at_once:
            order = run.store.write_now(item, durable=request.durable)
        elif visible and alone:
            # Nobody to commit with, and nothing that must be told of in its order.
            order = run.store.write_if_free(item, durable=False)
        elif alone and run.store.quick:
            # Nobody to be put in order with either, and a sync that takes less time than a trip
            # through the writer thread.
            order = run.store.write_if_free(item, durable=request.durable)
            if order is not None and not request.shielded:
                await asyncio.sleep(0)  # signals and the user's own tasks get their turn
        if order is None:
            order = await _commit(item, run, request)
    except STOPPING as problem:
        raise _stopped_by(problem, request, run) from None
    news_of(run)
    if request.deliver:
        await _in_order(run, order, request.shielded)
    return order


async def _commit(item: OwnerWrite, run: Run, request: Write) -> int:
    """A commit by the writer thread. A caller that is cancelled meanwhile learns so afterwards:
    whether an outcome is recorded must not depend on which of the two came first."""
    loop = asyncio.get_running_loop()
    results: list[int | Exception] = []
    news: asyncio.Future[None] = loop.create_future()
    cancelled: asyncio.CancelledError | None = None

    def done(result: int | Exception) -> None:
        results.append(result)
        if not news.done():
            news.set_result(None)

    run.store.submit(
        item,
        durable=request.durable,
        done=done,
        loop=loop,
        ordered=request.deliver,
        large=request.large,
    )
    while not results:
        try:
            await news
        except asyncio.CancelledError as cancel:
            cancelled, news = cancel, loop.create_future()
    order = results[0]
    if isinstance(order, Exception):
        if cancelled is not None and not isinstance(
            order, LostRun | RunMoved | StoreError | StoreStopped
        ):
            _cancel_again()
        raise order
    if cancelled is not None and not request.shielded:
        raise cancelled
    return order


def _cancel_again() -> None:
    """The flow first learns that its write was refused, then, at its next wait, that its caller was
    cancelled. It was once, so it counts once (`asyncio.Task.uncancel`)."""
    task = asyncio.current_task()
    assert task is not None
    if task.cancelling():
        task.uncancel()
    task.cancel()


async def _outlast(future: "asyncio.Future[T]") -> asyncio.CancelledError | None:
    """Wait for a future, however often this task is cancelled; returns the last cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as cancel:
            cancelled = cancel
    return cancelled


async def _in_order(run: Run, order: int, shielded: bool) -> None:
    assert run.sequencer is not None
    turn = run.sequencer.offer(order, alone=not run.tasks)
    if turn is None:
        return
    if shielded:
        await _outlast(turn)
    else:
        await turn


async def _await_body(request: Body) -> Ended:
    token = ATTEMPT.set(request.attempt)
    task = asyncio.current_task()
    assert task is not None
    try:
        return Returned(await call_body(request))
    except asyncio.CancelledError:
        if task.cancelling():
            raise
        return cancelled_from_within()
    except Exception as exc:
        return Raised(exc)
    except BaseExceptionGroup as group:
        return _raised(group)
    finally:
        ATTEMPT.reset(token)


# ---- both


def _raised(group: BaseExceptionGroup[BaseException]) -> Raised:
    failure = as_failure(group)
    if failure is None:
        raise group
    return Raised(failure)


def _item(request: Write, run: Run) -> OwnerWrite:
    return run.owner_write(
        request.entries,
        request.mode,
        request.becomes,
        release=request.release,
        along=request.along,
    )


def _stopped_by(
    problem: LostRun | RunMoved | StoreError | StoreStopped, request: Write, run: Run
) -> StopRun:
    """What a refused write means for the run; keeps a result that came too late."""
    if isinstance(problem, StoreStopped):
        run.request_stop(EMERGENCY)
        return StopRun(run.stop)
    if isinstance(problem, StoreError):
        run.request_stop(Broken(problem))
        return StopRun(run.stop)
    run.request_stop(Lost(problem) if isinstance(problem, LostRun) else Moved(problem.status))
    if request.late is not None:
        key = request.entries[-1].key
        evidence = Evidence(run.run_id, run.epoch, run.world.wall(), (Entry(request.late, key),))
        try:
            run.store.write_now(evidence, durable=True)
        except StoreError as lost_too:
            problem.add_note(f"the late result of {key} could not be kept either: {lost_too}")
    return StopRun(run.stop)


def sequence(run: Run) -> None:
    """Give a run its sequencer; called in the event loop that will execute it."""
    run.sequencer = Sequencer(run.history.orders())
