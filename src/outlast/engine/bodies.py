"""Plain bodies with a timeout: each in a thread of its own, so that the wait for it ends on time.

Such a body cannot be stopped. Until it has ended, its run opens nothing more.
"""

import contextvars
import threading

from msgspec import Raw

from outlast import codec, events
from outlast.engine.ended import Ended, Raised, Returned, TimedOut
from outlast.engine.holds import stuck
from outlast.engine.requests import Body
from outlast.engine.run import Run
from outlast.engine.scope import ATTEMPT
from outlast.engine.spec import return_hint
from outlast.errors import NotStorable, StopRun
from outlast.journal import Entry, Evidence


class BodyThread(threading.Thread):
    """One body under way. `ended` says how it came out, once it has."""

    def __init__(self, request: Body) -> None:
        super().__init__(name=f"outlast {request.attempt.key}", daemon=True)
        self.key = request.attempt.key
        self.ended: Ended | BaseException | None = None
        self._request = request
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._overdue = False

    def run(self) -> None:
        request, context = self._request, self._context
        context.run(ATTEMPT.set, request.attempt)
        ended: Ended | BaseException
        try:
            ended = Returned(context.run(request.fn, *request.args, **request.kwargs))
        except Exception as exc:
            ended = Raised(exc)
        except BaseException as exc:  # such as SystemExit: goes where it would without a timeout
            ended = exc
        with self._lock:
            self.ended = ended
            keep = self._overdue and request.attempt.run.stop is not None
        if keep:
            self._keep_evidence(ended)

    def wait(self, timeout: float) -> Ended:
        """How the body ended, if it does so in time."""
        self.join(timeout)
        with self._lock:
            if self.ended is None:
                self._overdue = True
                return TimedOut(timeout)
        if isinstance(self.ended, BaseException):
            raise self.ended
        return self.ended

    def _keep_evidence(self, ended: Ended | BaseException) -> None:
        """The run has stopped, so nobody will ask: what is known now goes into the journal."""
        attempt = self._request.attempt
        run = attempt.run
        hint = return_hint(self._request.fn)
        try:
            if isinstance(ended, Returned):
                value = run.encode(ended.value, f"late result of {self.key}", hint)
                event = events.StepLate(attempt.number, value=Raw(codec.pack(value)))
            elif isinstance(ended, Raised):
                error = codec.encode_error(ended.exc, "unknown-outcome")
                event = events.StepLate(attempt.number, error=error)
            else:
                return
        except NotStorable as problem:
            error = codec.encode_error(problem, "done-not-storable")
            event = events.StepLate(attempt.number, error=error)
        entry = Entry(event, self.key)
        run.store.write_now(
            Evidence(run.run_id, run.epoch, run.world.wall(), (entry,)), durable=True
        )


def call_with_timeout(request: Body, timeout: float) -> Ended:
    """Run a body in a thread and wait for it for so many seconds."""
    thread = BodyThread(request)
    thread.start()
    ended = thread.wait(timeout)
    if isinstance(ended, TimedOut):
        request.attempt.run.bodies.add(thread)
    return ended


def await_bodies(run: Run) -> None:
    """Let bodies that outlived their timeout end, within the grace period; else stop the run."""
    for body in tuple(run.bodies):
        body.join(run.settings.grace)
        if body.is_alive():
            run.request_stop(stuck(run, body.key))
            raise StopRun(run.stop)
        if body in run.bodies:  # several threads of a run may wait for one body
            run.bodies.discard(body)
            run.late[body.key] = body.ended


def late_result(run: Run, key: str) -> Ended | None:
    """How the body of step `key` ended after its timeout; None if it was not one of those."""
    await_bodies(run)
    ended = run.late.pop(key, None)
    return None if isinstance(ended, BaseException) else ended
