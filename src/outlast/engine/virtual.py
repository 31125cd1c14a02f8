"""An event loop in which no time passes: for a replay, which waits for nothing.

When nothing is ready, its clock jumps to the next timer. So `asyncio.timeout(60)` in workflow code
strikes at once if what it guards does not come, and not at all if it does. Only threads are
waited for really.
"""

import asyncio
import selectors
import threading
from asyncio import tasks
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

T = TypeVar("T")

THREADS = 16
"""Threads at once, as the pool of an ordinary loop has a bound too."""


class NothingLeft(Exception):
    """Nothing is ready, no timer is set and no thread runs, so that nothing will ever happen."""


class _Selector(selectors.DefaultSelector):
    """Asks somebody what to do where it would have to wait."""

    idle: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.idle(timeout)
            return super().select(0)
        return ready

    def wait(self) -> None:
        """Really wait for something to become ready."""
        super().select(None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps.

    Args:
        on_idle: asked when nothing is ready, with the seconds up to the next timer (None: there is
            none); returns by how many seconds the clock moves on. May raise `NothingLeft`.
        hangs: told what a task, or a function in a thread, has returned or raised. If it says yes,
            nobody gets to know that the task or the function has ended.
    """

    _ready: deque[asyncio.Handle]  # of asyncio's own loop, as is `_run_once`

    def __init__(
        self, on_idle: Callable[[float | None], float], hangs: Callable[[object], bool]
    ) -> None:
        self._now = 0.0
        self._on_idle = on_idle
        self._hangs = hangs
        self._outside = 0  # functions in threads whose end the loop has not heard of
        self._threads = 0
        self._jobs: deque[Callable[[], None]] = deque()
        self._selecting = _Selector()
        self._selecting.idle = self._idle
        super().__init__(self._selecting)
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # wants a generic call

    def time(self) -> float:
        return self._now

    def _idle(self, timeout: float | None) -> None:
        if self._outside:
            self._selecting.wait()
        else:
            self._now += self._on_idle(timeout)

    # ---- tasks

    def let_others_run(self, until: Callable[[], bool]) -> None:
        """Called within a step of a task: the task stands still, like one that blocks the loop,
        and all others go on, until `until` says so.

        asyncio has no such thing: the loop is run inside itself, as if no task were in a step.
        """
        task, due = tasks.current_task(self), len(self._ready)
        if task is not None:
            tasks._leave_task(self, task)
        try:
            while not until():
                self._run_once()  # type: ignore[attr-defined]
        finally:
            # The pass that we are called in has counted what was ready, and will take as many.
            taken = range(due - len(self._ready))
            self._ready.extend(asyncio.Handle(_nothing, (), self) for _ in taken)
            if task is not None:
                tasks._enter_task(self, task)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[object, object, T] | Generator[object, object, T],
        **options: object,
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(self._to_its_end(coro), loop=loop, **options)  # type: ignore[arg-type]
        # A task that is cancelled before it begins leaves the inner coroutine untouched.
        task.add_done_callback(lambda _: coro.close())
        return task

    async def _to_its_end(
        self, coro: Coroutine[object, object, T] | Generator[object, object, T]
    ) -> T:
        try:
            result: T = await coro  # type: ignore[misc]  # a generator-based coroutine is one too
        except BaseException as exc:
            if not self._hangs(exc):
                raise
        else:
            if not self._hangs(result):
                return result
        await self.create_future()
        raise AssertionError("nothing sets this future")

    # ---- threads

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        self._outside += 1
        if executor is not None:  # a pool of the user's
            future = asyncio.wrap_future(executor.submit(func, *args), loop=self)
            future.add_done_callback(lambda _: self._came_back())
            return future
        future = self.create_future()
        self._jobs.append(partial(self._work, future, partial(func, *args)))
        self._start_threads()
        return future

    def _start_threads(self) -> None:
        # Daemons, unlike those of a pool: one that never ends must not keep the process.
        while self._jobs and self._threads < THREADS:
            self._threads += 1
            threading.Thread(target=self._jobs.popleft(), daemon=True).start()

    def _work(self, future: "asyncio.Future[T]", job: Callable[[], T]) -> None:
        outcome: object
        try:
            result = job()
            tell, outcome = partial(future.set_result, result), result
        except BaseException as exc:
            tell, outcome = partial(future.set_exception, exc), exc

        def back() -> None:
            self._came_back()
            self._threads -= 1
            self._start_threads()
            if not future.done() and not self._hangs(outcome):
                tell()

        if not self.is_closed():
            self.call_soon_threadsafe(back)

    def _came_back(self) -> None:
        self._outside -= 1


def _nothing() -> None:
    pass
