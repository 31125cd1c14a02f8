"""What the code of a run has started: processes, their tags and their end; and threads."""

import contextvars
import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from urllib.parse import quote

from outlast import processes
from outlast.engine.run import AttemptInfo, Run, active_runs
from outlast.engine.scope import ATTEMPT, SCOPE
from outlast.processes import Ended, Found
from outlast.world import World

GRACE = 1.0
"""Seconds that a process gets to end by itself once its attempt is over."""


def mark_started() -> None:
    """From now on, processes that bodies start carry the tag of their attempt, and threads that
    workflows and bodies start know of which run they are."""
    processes.mark_children(_tag_here)
    if not _threads_are_marked:
        _threads_are_marked.append(True)
        threading.Thread.start = _marking(  # type: ignore[assignment, method-assign]
            threading.Thread.start
        )


_threads_are_marked: list[bool] = []

_BEHIND: contextvars.ContextVar["weakref.ref[Run] | None"] = contextvars.ContextVar(
    "outlast_behind", default=None
)
"""The run whose code has started the running thread. It stands in the thread's own context: what
comes to a pool of threads with a context of its own is not taken for part of the run."""


def run_behind() -> Run | None:
    """The run that the running code is part of, also in a bare thread that the run has started, as
    long as this process executes it."""
    scope, behind = SCOPE.get(), _BEHIND.get()
    if scope is not None:
        return scope.run
    run = None if behind is None else behind()
    return run if run in active_runs() else None


def _marking(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(start)
    def start_marked(thread: threading.Thread) -> None:
        scope, behind = SCOPE.get(), _BEHIND.get()
        if scope is not None:
            behind = weakref.ref(scope.run)  # a thread of the library's own may outlive it
        if behind is not None:
            run = thread.run

            def run_marked() -> None:
                _BEHIND.set(behind)
                run()

            thread.run = run_marked  # type: ignore[method-assign]
        start(thread)

    return start_marked


def tag(uid: str, key: str, number: int) -> str:
    """What the processes of an attempt are known by. It names the step as it is called: letters of
    other alphabets and control characters could not stand in an environment everywhere."""
    assert uid
    return f"{uid}:{quote(key, safe='#.', errors='backslashreplace')}:{number}"


def _tag_here() -> str | None:
    attempt = ATTEMPT.get()
    if attempt is None:
        return None
    attempt.started.append(True)
    return _tag_of(attempt)


def _tag_of(attempt: AttemptInfo) -> str:
    return tag(attempt.run.row.uid, attempt.key, attempt.number)


def has_left(attempt: AttemptInfo) -> bool:
    """Whether a process that the attempt has started is alive."""
    return bool(attempt.started) and bool(processes.tagged(_tag_of(attempt)))


def end_started(attempt: AttemptInfo) -> Ended:
    """End what an attempt has started."""
    return processes.end_tagged(_tag_of(attempt), GRACE, attempt.run.world)


def end_of_attempts(uid: str, tags: Iterable[str], world: World) -> Ended:
    """End what some attempts of a run have started, in whichever process."""
    wanted = frozenset(tags)

    def find() -> list[Found]:
        found = processes.tagged(uid)
        return processes.family(one for one in found if processes.tag_of(one) in wanted)

    return processes.end(find, GRACE, world)
