"""Interrupting the plain bodies of a killed run, as far as Python allows.

An exception is put into the thread of a body from outside. It must come out in the body, not in
the code around it. So it is sent under a lock, and only as long as the body's flag is up; whoever
leaves a body takes the flag down and sees to it, under the same lock, that nothing is on its way.
"""

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from outlast.errors import StopRun

if TYPE_CHECKING:
    from outlast.engine.requests import Body
    from outlast.engine.run import Run

NUDGE = signal.SIGURG
"""Ends the system call that the main thread waits in. Where nobody handles it, it does nothing."""

# Not the shared function of ctypes, whose argument types others may set; the second one is the
# address of an exception class, or none to take back what is on its way.
_send = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
_striking = threading.Lock()


class StepInterrupted(StopRun):
    """Comes out in the body of a step whose run was killed."""

    def __init__(self, text: str = "the run of this step was killed") -> None:
        super().__init__(text)


class InBody:
    """A plain body under way in some thread.

    Attributes:
        leaving: it has come to its end: nothing is sent any more.
        lock: held while something is sent; None as long as nothing was.
    """

    __slots__ = ("leaving", "lock", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.leaving = False
        self.lock: threading.RLock | None = None

    def strike(self) -> None:
        """Interrupt the body, unless it is about to end. One that swallows that goes on."""
        with _striking:
            if self.lock is None:
                self.lock = threading.RLock()  # before the look at `leaving`, see `call`
            if not self.lock.acquire(blocking=False):
                return  # it is leaving
            try:
                if self.leaving:
                    return
                _send(self.thread, id(StepInterrupted))
            finally:
                self.lock.release()
        if self.thread == threading.main_thread().ident and _hears_nudges():
            signal.pthread_kill(self.thread, NUDGE)

    def clear(self) -> None:
        """Take back what is on its way."""
        assert self.lock is not None
        with self.lock:
            _send(self.thread, None)


def call(request: "Body") -> object:
    """Call a plain body so that it can be interrupted. Its key is to be taken out of
    `run.executing` afterwards.

    Raises:
        StepInterrupted: the run was killed.
        BaseException: what the body raised.
    """
    body = InBody(threading.get_ident())
    request.attempt.run.executing[request.attempt.key] = body
    try:
        try:
            return request.fn(*request.args, **request.kwargs)
        finally:
            # Python looks for what was sent at calls and at jumps, so not before this line is done.
            body.leaving = True
            # From here on at most two come: one that was on its way, and one from a striker that
            # has looked at `leaving` before. So one of three goes through, the last at the latest.
            if body.lock is not None:
                try:
                    try:
                        body.clear()
                    finally:
                        body.clear()
                finally:
                    body.clear()
    except BaseExceptionGroup as group:  # a task group in the body has wrapped it
        # Nothing was sent, in most cases; and who looks into a group that is too deep gets lost.
        if body.lock is None or group.subgroup(StepInterrupted) is None:
            raise
        raise StepInterrupted() from group


def interrupt(run: "Run") -> None:
    """Interrupt all plain bodies of a killed run, once. To be repeated: a body may swallow it."""
    for body in list(run.executing.values()):
        body.strike()


# ---- the main thread in a system call


@contextlib.contextmanager
def hearing_nudges() -> Iterator[None]:
    """Until the block ends, a body in the main thread can also be interrupted in a system call such
    as `time.sleep`: the handler of any signal is where an exception that was sent comes out.

    Only in the main thread, and only if the program has no use of its own for the signal."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(NUDGE) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(NUDGE, _nudged)
    try:
        yield
    finally:
        signal.signal(NUDGE, signal.SIG_DFL)


def _nudged(number: int, frame: FrameType | None) -> None:
    """That it is called is enough."""


def _hears_nudges() -> bool:
    return signal.getsignal(NUDGE) is _nudged
