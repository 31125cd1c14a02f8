"""Bodies of steps. One with a timeout has a thread or a task of its own, so that the wait for it
ends, whatever it does.

A plain body cannot be stopped, and an asynchronous one may swallow its cancellation. Until it has
ended, its run opens nothing more.
"""

import asyncio
import contextvars
import inspect
import threading
from asyncio import tasks
from typing import TypeVar

from msgspec import Raw

from outlast import codec, events
from outlast.engine.ended import Ended, Exiting, Raised, Returned, TimedOut, as_failure
from outlast.engine.holds import stuck
from outlast.engine.interrupts import call
from outlast.engine.requests import Body
from outlast.engine.run import KILLED, Run
from outlast.engine.scope import ATTEMPT
from outlast.engine.spec import return_hint
from outlast.engine.started import end_started, has_left
from outlast.errors import BodyCancelled, NotStorable, StopRun
from outlast.journal import Entry, Evidence

T = TypeVar("T")


async def call_body(request: Body) -> object:
    """Call an asynchronous body, or a plain one of an asynchronous workflow."""
    try:
        try:
            result = call(request)
        finally:
            request.attempt.run.body_ended(request.attempt.key)
        return await result if inspect.isawaitable(result) else result
    except SystemExit as leaving:
        raise Exiting(leaving) from None


def cancelled_from_within() -> Raised:
    """The end of a body that nobody cancelled, though it raised CancelledError."""
    return Raised(BodyCancelled("something that the step awaited was cancelled"))


class BodyThread(threading.Thread):
    """A plain body under way. `ended` says how it came out, once it has."""

    def __init__(self, request: Body) -> None:
        super().__init__(name=f"outlast {request.attempt.key}", daemon=True)
        self.attempt = request.attempt
        self.key = request.attempt.key
        self.asks = request.asks
        self.ended: Ended | BaseException | None = None
        self._request = request
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._news = threading.Event()  # it has ended, or its run must stop
        self._overdue = False

    def run(self) -> None:
        run = self._request.attempt.run
        try:
            self._run()
        finally:
            run.body_ended(self.key)

    def _run(self) -> None:
        request, context = self._request, self._context
        context.run(ATTEMPT.set, request.attempt)
        ended: Ended | BaseException
        try:
            ended = Returned(context.run(call, request))
        except Exception as exc:
            ended = Raised(exc)
        except BaseException as exc:  # such as SystemExit: goes where it would without a timeout
            failure = as_failure(exc)
            ended = exc if failure is None else Raised(failure)
        with self._lock:
            self.ended = ended
            keep = self._overdue and request.attempt.run.stop is not None
        self._news.set()
        if keep:
            _keep_evidence(request, ended)

    def disregard(self) -> None:
        """What it started is ended under it, so how it comes out from now on tells nothing."""
        self.asks = True

    def wait(self, timeout: float) -> Ended:
        """How the body ended, if it does so in time.

        Raises:
            StopRun: the run was killed, and the body did not end within the grace period.
        """
        run = self._request.attempt.run
        killed = False
        end = run.world.boot() + timeout
        with run.watch(self._news.set):
            while self.ended is None and (left := end - run.world.boot()) > 0:
                if run.stop == KILLED and not killed:
                    killed, left = True, min(left, run.settings.grace)
                    end = run.world.boot() + left
                if not self._news.wait(left):
                    break
                self._news.clear()
        with self._lock:
            if self.ended is None:
                self._overdue = True
                if killed:
                    raise StopRun(run.stop)
                return TimedOut(timeout)
        self.join()
        if isinstance(self.ended, BaseException):
            raise self.ended
        return self.ended


class BodyTask:
    """An asynchronous body under way. `ended` says how it came out, once it has."""

    def __init__(self, request: Body) -> None:
        self.attempt = request.attempt
        self.key = request.attempt.key
        self.asks = request.asks
        self.ended: Ended | BaseException | None = None
        self.overdue = False
        self._request = request
        self._over = threading.Event()
        # A copy: should the body outlive the wait for it, its context must still be that of a body.
        self._context = contextvars.copy_context()
        self._context.run(ATTEMPT.set, request.attempt)
        # Past the loop's task factory: this task is a part of the one that waits for it.
        self.task = asyncio.Task(
            call_body(request), name=f"outlast {self.key}", context=self._context
        )
        self.task.add_done_callback(self._note)

    def _note(self, task: "asyncio.Task[object]") -> None:
        if task.cancelled():
            self.ended = cancelled_from_within()
        elif (exc := task.exception()) is not None:
            failure = as_failure(exc)
            self.ended = exc if failure is None else Raised(failure)
        else:
            self.ended = Returned(task.result())
        self._over.set()
        if self.overdue and self._request.attempt.run.stop is not None:
            _keep_evidence(self._request, self.ended)

    def disregard(self) -> None:
        """What it started is ended under it, so how it comes out from now on tells nothing."""
        self.asks = True

    def adopt_context(self) -> None:
        """What the body set in context variables is seen by its caller, as without a timeout."""
        for variable, value in self._context.items():
            if variable is not ATTEMPT and variable.get(_MISSING) is not value:
                variable.set(value)

    def join(self, timeout: float | None = None) -> None:
        """Block until it has ended. Not in its event loop."""
        self._over.wait(timeout)

    def is_alive(self) -> bool:
        return not self._over.is_set()


_MISSING = object()


def leave_behind(task: "asyncio.Task[T]") -> None:
    """Whoever closes the event loop waits for all tasks; for this one it would be for ever. Nor
    may it be collected as garbage: code that swallows everything swallows that, in an endless loop.
    """
    tasks._unregister_task(task)
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)


_left_behind: set[object] = set()


async def await_with_timeout(request: Body, seconds: float) -> Ended:
    """Run a body in a task and wait for it for so many seconds. Once cancelled, for this reason or
    since its caller is, it has the grace period to unwind."""
    run, loop = request.attempt.run, asyncio.get_running_loop()
    body = BodyTask(request)
    deadline = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    asked = timed_out = False
    while not body.task.done():
        again = False
        try:
            await asyncio.wait({body.task}, timeout=max(0.0, deadline - loop.time()))
        except asyncio.CancelledError as cancel:
            cancelled, again = cancel, True
        late = loop.time() >= deadline
        if body.task.done() or not (late or again):
            continue
        if late and asked:
            body.overdue = True
            run.bodies.add(body)
            leave_behind(body.task)
            break
        timed_out = timed_out or late
        if not asked:
            asked, deadline = True, loop.time() + run.settings.grace
        body.task.cancel()
    if timed_out and request.attempt.started:
        await asyncio.to_thread(_end_started, body)
    if not body.overdue:
        body.adopt_context()
    return _how_it_ended(body, seconds if timed_out else None, cancelled)


def _how_it_ended(
    body: BodyTask, timed_out: float | None, cancelled: asyncio.CancelledError | None
) -> Ended:
    """
    Args:
        timed_out: the timeout that struck.
        cancelled: how the caller was cancelled.
    """
    if not body.overdue and not body.task.cancelled():
        exc = body.task.exception()
        if exc is None:
            return Returned(body.task.result())
        failure = as_failure(exc)
        if failure is None and cancelled is None:
            raise exc
        if failure is not None and (timed_out is None or not isinstance(failure, TimeoutError)):
            return Raised(failure)
    if cancelled is not None:
        raise cancelled
    return cancelled_from_within() if timed_out is None else TimedOut(timed_out)


def call_with_timeout(request: Body, timeout: float) -> Ended:
    """Run a body in a thread and wait for it for so many seconds."""
    thread = BodyThread(request)
    thread.start()
    ended = thread.wait(timeout)
    if isinstance(ended, TimedOut):
        request.attempt.run.bodies.add(thread)
        _end_started(thread)
    return ended


def _end_started(body: BodyThread | BodyTask) -> None:
    """The attempt has timed out: processes that it has started do not work on beside what
    follows."""
    if has_left(body.attempt):
        body.disregard()
        end_started(body.attempt)


def await_bodies(run: Run) -> None:
    """Let bodies that outlived their timeout end, within the grace period; else stop the run."""
    for body in tuple(run.bodies):
        body.join(run.settings.grace)
        if body.is_alive():
            run.request_stop(stuck(run, body.key))
            raise StopRun(run.stop)
        if body in run.bodies:  # several threads of a run may wait for one body
            run.bodies.discard(body)
            if not body.asks:
                run.late[body.key] = body.ended


def late_result(run: Run, key: str) -> Ended | None:
    """How the body of step `key` ended after its timeout; None if it was not one of those."""
    await_bodies(run)
    ended = run.late.pop(key, None)
    return None if isinstance(ended, BaseException) else ended


def _keep_evidence(request: Body, ended: Ended | BaseException) -> None:
    """The run has stopped, so nobody will ask: what is known now goes into the journal."""
    attempt = request.attempt
    run = attempt.run
    if request.asks:
        return
    try:
        if isinstance(ended, Returned):
            where, hint = f"late result of {attempt.key}", return_hint(request.fn)
            value = run.encode(ended.value, where, hint)
            event = events.StepLate(attempt.number, value=Raw(codec.pack(value)))
        elif isinstance(ended, Raised):
            error = codec.encode_error(ended.exc, "unknown-outcome")
            event = events.StepLate(attempt.number, error=error)
        else:
            return
    except NotStorable as problem:
        error = codec.encode_error(problem, "done-not-storable")
        event = events.StepLate(attempt.number, error=error)
    item = Evidence(run.run_id, run.epoch, run.world.wall(), (Entry(event, attempt.key),))
    run.store.write_now(item, durable=True)
