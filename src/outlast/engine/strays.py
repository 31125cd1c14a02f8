"""Threads that the bodies of steps have started, and what they have handed to pools of threads.

A body that is interrupted leaves them behind. Nothing can end them but the end of the process, so
that nothing of a killed run is executed any more can be said only once they have ended.
"""

import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import thread as pools
from typing import ParamSpec, TypeVar

from outlast.engine.run import KILLED, Run
from outlast.engine.scope import ATTEMPT
from outlast.errors import StopRun

P = ParamSpec("P")
T = TypeVar("T")

OURS = "outlast-"
"""What the names of this library's own threads begin with."""

_strays: "weakref.WeakKeyDictionary[Run, set[_Stray]]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_local = threading.local()  # `run`: for whose step this thread works, if it has no context of that


def watch_threads() -> None:
    """From now on, know what bodies start in threads of this process, once for all.

    That holds for `threading.Thread` and `ThreadPoolExecutor`, so also for `asyncio.to_thread`;
    not for threads that C code or `_thread.start_new_thread` starts, nor for what anyio hands to a
    thread of its pool.
    """
    if getattr(threading.Thread.start, "_outlast", None) is None:
        start, submit = _starting(threading.Thread.start), _submitting(ThreadPoolExecutor.submit)
        threading.Thread.start = start  # type: ignore[method-assign, assignment]
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]


def has_strays(run: Run) -> bool:
    """Whether a thread does something still that a body of the run has started."""
    with _lock:
        return bool(_strays.get(run))


def _run_here() -> Run | None:
    attempt = ATTEMPT.get()
    return getattr(_local, "run", None) if attempt is None else attempt.run


def _starting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(start)
    def started(self: threading.Thread) -> None:
        run = _run_here()
        if run is None or _serves_others(self):
            return start(self)
        stray = _Stray(run)
        self.run = stray.around(self.run)  # type: ignore[method-assign]
        stray.begins()  # what runs is not to be missed while the thread comes up
        try:
            start(self)
        except BaseException:
            stray.ends()
            raise

    started._outlast = True  # type: ignore[attr-defined]
    return started


def _serves_others(thread: threading.Thread) -> bool:
    """Whether it is this library's own or a pool's, which waits for work as long as the process
    lives."""
    return (
        thread.name.startswith(OURS)
        or getattr(thread, "_target", None) is pools._worker
        or type(thread).__module__.partition(".")[0] == "anyio"
    )


def _submitting(submit: Callable[..., "Future[T]"]) -> Callable[..., "Future[T]"]:
    @functools.wraps(submit)
    def submitted(
        self: ThreadPoolExecutor, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[T]":
        run = _run_here()
        if run is None:
            return submit(self, fn, *args, **kwargs)
        return submit(self, _unless_killed(run, fn), *args, **kwargs)

    return submitted


def _unless_killed(run: Run, fn: Callable[P, T]) -> Callable[P, T]:
    """A function for a pool, which may come to it late."""

    @functools.wraps(fn)
    def begun(*args: P.args, **kwargs: P.kwargs) -> T:
        if run.stop == KILLED:
            raise StopRun(run.stop)
        stray = _Stray(run)
        stray.begins()
        return stray.around(fn)(*args, **kwargs)

    return begun


class _Stray:
    """Something that a body of a run has started in a thread."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def begins(self) -> None:
        with _lock:
            _strays.setdefault(self._run, set()).add(self)

    def ends(self) -> None:
        with _lock:
            _strays[self._run].discard(self)

    def around(self, fn: Callable[P, T]) -> Callable[P, T]:
        """The function, with whose end it ends."""

        @functools.wraps(fn)
        def followed(*args: P.args, **kwargs: P.kwargs) -> T:
            before, _local.run = getattr(_local, "run", None), self._run
            try:
                return fn(*args, **kwargs)
            finally:
                _local.run = before
                self.ends()

        return followed
