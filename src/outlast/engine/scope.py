"""Where in a workflow a call stands.

Positions must be the same on every replay, whatever the timing. So each asyncio task that a run
creates is a scope of its own, numbered when it is *created*, and each call takes its number when
it is *made*; both happen in program order within one task.
"""

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from outlast.engine.sites import Site, call_site
from outlast.errors import UsageError

if TYPE_CHECKING:
    from outlast.engine.run import AttemptInfo, Run

T = TypeVar("T")

SCOPE: contextvars.ContextVar["Scope | None"] = contextvars.ContextVar(
    "outlast_scope", default=None
)
"""The scope of the running code; None outside a run."""

ATTEMPT: contextvars.ContextVar["AttemptInfo | None"] = contextvars.ContextVar(
    "outlast_attempt", default=None
)
"""The attempt whose body is running; None in workflow code."""


class _Frame:
    """Counters of one stretch of program text: a scope's own, or one turn of a loop in it."""

    __slots__ = ("calls", "children", "draws", "loop", "prefix")

    def __init__(self, prefix: str, loop: str | None) -> None:
        self.prefix = prefix
        self.loop = loop
        self.calls = count()
        self.children = count()
        self.draws = count()


class Scope:
    """One task of a run. Turn loops push a frame, so that numbers start anew in each turn.

    Attributes:
        coro: what the task runs; None in plain code.
        site: where the task was created; None for the workflow's own.
    """

    __slots__ = ("_frames", "coro", "run", "site")

    def __init__(self, run: "Run", prefix: str = "", site: Site | None = None) -> None:
        self.run = run
        self.site = site
        self.coro: object = None
        self._frames = [_Frame(prefix, None)]

    @property
    def prefix(self) -> str:
        """What every position taken now starts with."""
        return self._frames[-1].prefix

    @property
    def loop(self) -> str | None:
        """Position of the turn loop that this code is in."""
        return self._frames[-1].loop

    def take(self) -> str:
        """The position of a call that is made now."""
        frame = self._frames[-1]
        return f"{frame.prefix}{next(frame.calls)}"

    def draw(self) -> str:
        """The position of a random value. It shifts no call."""
        frame = self._frames[-1]
        return f"{frame.prefix}r{next(frame.draws)}"

    def child(self) -> "Scope":
        """The scope of a task that is created now."""
        frame = self._frames[-1]
        site = call_site(self, 2)
        prefix = f"{frame.prefix}s{next(frame.children)}."
        self.run.history.begins(prefix)
        return Scope(self.run, prefix, site)

    def enter_turn(self, loop: str, turn: int) -> None:
        """Start numbering for one turn of the loop at position `loop`."""
        self.leave_loop(loop)
        self._frames.append(_Frame(f"{loop}.t{turn}.", loop))

    def leave_loop(self, loop: str) -> None:
        """Go back to the numbering around a loop. No effect if it was left already."""
        for index, frame in enumerate(self._frames):
            if frame.loop == loop:
                del self._frames[index:]
                return


def create_unscoped_task(
    coro: Coroutine[object, object, T], name: str | None = None
) -> "asyncio.Task[T]":
    """A task of the library's own: it takes no number in a run whose code this may be."""
    context = contextvars.copy_context()
    context.run(SCOPE.set, None)
    return asyncio.create_task(coro, name=name, context=context)


def _refuse_any_order(
    coro: Coroutine[object, object, object] | Generator[object, object, object],
) -> None:
    """`asyncio.as_completed` makes tasks of coroutines in the order of a set, which is another one
    in every process, so that no replay could tell them apart. Calls of steps have their position
    already.

    Raises:
        UsageError: it is about to do so.
    """
    if getattr(coro, "__name__", "") in ("drive_async", "_wrap_awaitable"):
        return
    frame: FrameType | None = sys._getframe(2)
    for _ in range(4):  # create_task, ensure_future and a comprehension stand in between
        if frame is None:
            return
        code = frame.f_code
        if code.co_filename == asyncio.tasks.__file__ and code.co_qualname.startswith(
            ("as_completed", "_AsCompletedIterator")
        ):
            coro.close()
            raise UsageError(
                "asyncio.as_completed starts coroutines in any order; use outlast.as_completed"
            )
        frame = frame.f_back


_Factory = Callable[..., "asyncio.Future[object]"]


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Make tasks that runs create on this loop scopes. A factory set before is still called."""
    before = loop.get_task_factory()
    if isinstance(before, _ScopingFactory):
        return
    # The declared type wants a generic call, which is what a factory of ours passes through.
    loop.set_task_factory(_ScopingFactory(before))  # type: ignore[arg-type]


class _ScopingFactory:
    """An asyncio task factory that numbers the tasks of runs; others pass through."""

    def __init__(self, before: _Factory | None) -> None:
        self._before = before

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[object, object, object] | Generator[object, object, object],
        *,
        context: contextvars.Context | None = None,
        **options: object,
    ) -> "asyncio.Future[object]":
        here: contextvars.Context = contextvars.copy_context() if context is None else context
        scope = here.get(SCOPE)
        if scope is None or here.get(ATTEMPT) is not None:
            return self._make(loop, coro, context, options)
        _refuse_any_order(coro)
        child = scope.child()
        child.coro = coro
        here.run(SCOPE.set, child)
        task = self._make(loop, coro, here, options)
        scope.run.add_task(task, child.prefix)
        return task

    def _make(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[object, object, object] | Generator[object, object, object],
        context: contextvars.Context | None,
        options: dict[str, object],
    ) -> "asyncio.Future[object]":
        # A user's factory may predate the keyword, so it is passed only where there is one.
        extra = options if context is None else {**options, "context": context}
        if self._before is not None:
            return self._before(loop, coro, **extra)
        return asyncio.Task(coro, loop=loop, **extra)  # type: ignore[arg-type]
