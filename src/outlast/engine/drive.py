"""The two drivers of a flow: one for plain code, one for asyncio. They do what a flow requests."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import nullcontext
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
from outlast.engine.ended import Ended, Raised, Returned, as_failure
from outlast.engine.order import PASSES, Sequencer
from outlast.engine.requests import (
    Body,
    Cancelled,
    Deliver,
    Drain,
    Forever,
    InLine,
    Late,
    Pack,
    Reply,
    Request,
    Sleep,
    Write,
)
from outlast.engine.run import Run, is_alone
from outlast.engine.scope import ATTEMPT
from outlast.engine.stop import Asleep, Broken, Lost, Moved
from outlast.engine.timers import Alarm
from outlast.errors import LostRun, StopRun, StoreError, UsageError
from outlast.journal import Entry, Evidence, OwnerWrite, RunMoved

T = TypeVar("T")


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
            _cut_off(request, run, leaving)
            raise


def _unless_the_bodys_own(
    request: Request, run: Run, problem: BaseException
) -> tuple[Reply, BaseException | None]:
    """What stops a run is thrown into its flows. A body that raises StopRun by itself, in a run
    that nobody stops, is one that failed."""
    own = isinstance(request, Body) and isinstance(problem, StopRun) and run.stop is None
    if own and run.dry is None:
        return Raised(UsageError("the body raised StopRun, which only outlast itself raises")), None
    return None, problem


def _cut_off(request: Request, run: Run, leaving: BaseException) -> None:
    """KeyboardInterrupt, SystemExit and their like leave the run, which must stop even if workflow
    code swallows them on their way."""
    if isinstance(request, Body):
        run.cut_off(request.attempt, type(leaving).__name__)


# ---- plain code


def _perform_sync(request: Request, run: Run) -> Reply:
    match request:
        case Write():
            if request.mode == "open":
                await_bodies(run)
            try:
                item = _item(request, run)
                return run.store.write(item, durable=request.durable)
            except (LostRun, RunMoved, StoreError) as problem:
                raise _stopped_by(problem, request, run) from None
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
            _sleep(request, run)
            return None
        case Drain():
            _drain(run)
            return None
        case InLine():
            _in_line(run, request)
            return None
        case Forever():
            return None  # only asynchronous code can be cancelled: the code has changed colour


def _call(request: Body) -> Ended:
    attempt = request.attempt
    if request.timeout is not None:
        return call_with_timeout(request, request.timeout)
    token = ATTEMPT.set(attempt)
    try:
        attempt.run.executing.add(attempt.key)
        return Returned(request.fn(*request.args, **request.kwargs))
    except Exception as exc:
        return Raised(exc)
    except BaseExceptionGroup as group:
        return _raised(group)
    finally:
        ATTEMPT.reset(token)
        attempt.run.body_ended(attempt.key)


def _sleep(request: Sleep, run: Run) -> None:
    if request.ends_early():
        return
    alarm = Alarm(request.due, run.world)
    if alarm.remaining() > run.longest_wait:
        _drain(run)
        run.request_stop(Asleep(request.due))
    wake = threading.Event()
    with run.watch(wake.set):
        while True:
            run.check()
            left = alarm.remaining()
            if left == 0 or request.ends_early():
                return
            wake.clear()
            run.world.pause(min(left, run.settings.max_sleep), wake)


def _drain(run: Run) -> None:
    if _in_loop():
        return  # what is open ends in this very loop, so waiting here would never end
    wake = threading.Event()
    with run.watch(wake.set, idle=True):
        while run.open and (left := run.patience()):
            wake.clear()
            run.world.pause(min(left, run.settings.max_sleep), wake)


def _in_line(run: Run, request: InLine) -> None:
    if _in_loop():
        return  # who is waited for ends in this very loop
    wake = threading.Event()
    with run.watch(wake.set), run.standing_in_line(request.key, wake.set):
        while run.stop is None and not request.over(run):
            wake.clear()
            run.world.pause(run.settings.max_sleep, wake)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# ---- asyncio


async def _perform_async(request: Request, run: Run) -> Reply:
    match request:
        case Write():
            run.arriving += 1
            try:
                return await _write(request, run)
            finally:
                run.arriving -= 1
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
            await _sleep_async(request, run)
            return None
        case Drain():
            await _drain_async(run)
            return None
        case InLine():
            while run.stop is None and not request.over(run):
                await _pause(run, run.settings.max_sleep, line=request)
            return None
        case Forever():
            assert run.sequencer is not None
            with run.sequencer.expect(request.order):
                await _pause(run, request.seconds)
            run.check()
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
    except (LostRun, RunMoved, StoreError) as problem:
        raise _stopped_by(problem, request, run) from None
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
        if cancelled is not None and not isinstance(order, LostRun | RunMoved | StoreError):
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


async def _sleep_async(request: Sleep, run: Run) -> None:
    alarm = Alarm(request.due, run.world)
    while True:
        run.check()
        left = alarm.remaining()
        if left == 0 or request.ends_early():
            return
        if left > run.longest_wait:
            await _stop_if_idle(run)
        await _pause(run, min(left, run.settings.max_sleep))


async def _stop_if_idle(run: Run) -> None:
    """Leave, once nothing but timers is left to wait for, and for too long."""
    quiet = 0
    while quiet < PASSES:
        await _drain_async(run)
        await asyncio.sleep(0.001 if run.arriving else 0)
        quiet = 0 if run.open or run.arriving else quiet + 1
    if run.dues and min(run.dues.values()) - run.world.wall() > run.longest_wait:
        run.request_stop(Asleep(min(run.dues.values())))
    run.check()


async def _pause(
    run: Run, seconds: float, *, idle: bool = False, line: InLine | None = None
) -> None:
    """Wait until the run must stop (with `idle`: or has nothing open; with `line`: or it is its
    turn), at most `seconds`."""
    loop = asyncio.get_running_loop()
    changed = loop.create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    def wake_from_elsewhere() -> None:
        loop.call_soon_threadsafe(wake)

    timer = loop.call_later(seconds, wake)
    standing = (
        nullcontext() if line is None else run.standing_in_line(line.key, wake_from_elsewhere)
    )
    try:
        with run.watch(wake_from_elsewhere, idle=idle), standing:
            if run.open if idle else run.stop is None and not (line and line.over(run)):
                await changed
    finally:
        timer.cancel()


async def _drain_async(run: Run) -> None:
    while run.open and (left := run.patience()):
        await _pause(run, min(left, run.settings.max_sleep), idle=True)


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


def _stopped_by(problem: LostRun | RunMoved | StoreError, request: Write, run: Run) -> StopRun:
    """What a refused write means for the run; keeps a result that came too late."""
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
