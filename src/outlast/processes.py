"""Processes that steps start: marked when they are started, found again, and ended.

Nothing is signalled on its pid alone. A process is known by its pid *and* its start time, which
are compared again right before every signal. This process and its ancestors never get one.
"""

import contextlib
import functools
import inspect
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from outlast.world import World, start_ticks

TAG = "OUTLAST_ATTEMPT"
"""The variable in the environment of a process that says for which attempt it was started:
`<uid of the run>:<key of the step>:<attempt>`."""

LAST = 5.0
"""Seconds to wait for the kernel to clear away what SIGKILL has hit."""

_PACE = 0.01
"""Seconds between two looks at what is to end."""

_LOOKS = 3
"""How often a process is looked at that has no environment yet."""

_REAL = World()

_PROC = Path("/proc/self/environ").exists()


class Found(Struct, frozen=True):
    """A process: `started` in the system's own ticks, see `world.start_ticks`."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it still runs; one that nobody has waited for yet does not."""
        return start_ticks(self.pid) == self.started


class Ended(Struct, frozen=True):
    """What has been ended, and what is alive all the same, in words."""

    ended: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()


# ---- marking


def mark_children(tag_of: Callable[[], str | None]) -> None:
    """From now on, put a tag into the environment of every process that is started here.

    That holds for what goes through `subprocess.Popen`: `subprocess.run`, `os.popen`, asyncio's
    own event loop. `os.fork`, `os.posix_spawn`, `os.system`, `multiprocessing` and uvloop start
    processes by other ways; those are found as descendants only.

    Args:
        tag_of: the tag for a process that is started by the running code; None for no tag.
    """
    global _tag_of
    _tag_of = tag_of
    if not isinstance(subprocess.Popen.__init__, _Marker):
        subprocess.Popen.__init__ = _Marker(subprocess.Popen.__init__)  # type: ignore[method-assign]


_tag_of: Callable[[], str | None] = lambda: None  # noqa: E731


class _Marker:
    """In the place of `Popen.__init__`."""

    def __init__(self, init: Callable[..., None]) -> None:
        functools.update_wrapper(self, init)
        self._init = init
        self._env = list(inspect.signature(init).parameters).index("env")

    def __get__(self, popen: object, owner: object = None) -> object:
        return self if popen is None else functools.partial(self, popen)

    def __call__(self, *args: object, **kwargs: object) -> None:
        tag = _tag_of()
        if tag is None:
            return self._init(*args, **kwargs)
        if len(args) > self._env:
            env = _marked(args[self._env], tag)
            return self._init(*args[: self._env], env, *args[self._env + 1 :], **kwargs)
        return self._init(*args, **{**kwargs, "env": _marked(kwargs.get("env"), tag)})


def _marked(env: object, tag: str) -> dict[object, object]:
    given = os.environ if env is None else env
    assert isinstance(given, Mapping)
    return {**{k: v for k, v in given.items() if k != TAG.encode()}, TAG: tag}


# ---- finding


def tagged(prefix: str) -> list[Found]:
    """This user's processes whose tag is `prefix`, or begins with it and a colon, as far as they
    can be seen from here.

    Raises:
        ValueError: `prefix` does not begin with the uid of a run: it would fit too much.
    """
    if not prefix.partition(":")[0].strip():
        raise ValueError(f"tag {prefix!r} names no run; nothing is looked for")
    mark = os.fsencode(prefix)
    marks = _look.at_all().items()
    return [one for one, tag in marks if tag == mark or tag.startswith(mark + b":")]


class _Look:
    """A look at all processes. Of a thousand runs that are killed at once each wants several: those
    that ask while one is under way share the next one, which begins after they have asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._done = 0
        self._last: dict[Found, bytes] = {}

    def at_all(self) -> dict[Found, bytes]:
        """The processes of this user that carry a tag, each with its tag."""
        asked = self._begun
        with self._lock:
            if self._done <= asked:
                self._begun += 1
                self._last = _all_tagged()
                self._done = self._begun
            return self._last


_look = _Look()


def _after_fork() -> None:
    global _look
    _look = _Look()  # a thread of the parent may have held the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _all_tagged() -> dict[Found, bytes]:
    spared = _spared()
    rest = [pid for pid in psutil.pids() if pid not in spared]
    found = {}
    for _ in range(_LOOKS):
        bare = []
        for pid in rest:
            data = _environ(pid)
            tag = _tag_in(data)
            started = start_ticks(pid) if not data or tag else None
            if started is None:
                continue
            if not data:
                bare.append(pid)
            elif _tag_in(_environ(pid)) == tag:  # still the one that was looked at
                found[Found(pid, started)] = tag
        rest = [pid for pid in bare if _may_be_starting(pid)]
        if not rest:
            break
        _REAL.pause(_PACE)
    return found


def tag_of(process: Found) -> str:
    """The tag of a process; empty if it has none or has ended."""
    tag = os.fsdecode(_tag_in(_environ(process.pid)))
    return tag if process.alive else ""


def family(roots: Iterable[Found]) -> list[Found]:
    """These processes, as far as they live, with their descendants and with whoever is in a process
    group or a session that one of them leads.

    To be taken before the first signal: an orphan does not tell whose child it was.
    """
    alive = [root for root in roots if root.alive]
    if not alive:
        return []
    spared = _spared()
    inside = {root.pid: root for root in alive if root.pid not in spared}
    rest = _all_others(spared | inside.keys())
    grown = True
    while grown:
        grown = False
        for process, ties in list(rest.items()):
            if not ties.isdisjoint(inside):
                inside[process.pid] = process
                del rest[process]
                grown = True
    return list(inside.values())


def _name(process: Found) -> str:
    try:
        return psutil.Process(process.pid).name()
    except psutil.Error:
        return "ended"


def _spared() -> set[int]:
    """Who is never looked at: this process and its ancestors, what is not a process of a user's."""
    return {0, 1, os.getpid(), *(parent.pid for parent in psutil.Process().parents())}


def _all_others(known: set[int]) -> dict[Found, set[int]]:
    """All other processes that can be seen, with the pids that they hang together with: of their
    parent and of the leaders of their group and session."""
    others: dict[Found, set[int]] = {}
    for pid in psutil.pids():
        if pid in known:
            continue
        started = start_ticks(pid)  # first: if the pid changes hands after it, no signal fits
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if started is not None:
                ties = {psutil.Process(pid).ppid(), os.getpgid(pid), os.getsid(pid)}
                others[Found(pid, started)] = ties
    return others


def _tag_in(data: bytes) -> bytes:
    """The tag in an environment; empty if there is none."""
    mark = f"{TAG}=".encode()
    if mark not in data:
        return b""
    lines = (line for line in data.split(b"\0") if line.startswith(mark))
    return next(lines, mark).removeprefix(mark)


def _may_be_starting(pid: int) -> bool:
    """Whether a process without an environment may be one that is about to get it: a thread of the
    kernel, or somebody else's, will not."""
    try:
        return _PROC and os.getpgid(pid) != 0 and _is_ours(pid)
    except OSError:
        return False


def _is_ours(pid: int) -> bool:
    return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()


def _environ(pid: int) -> bytes:
    """The environment with which a process of this user was started; empty if it is not to be
    had."""
    try:
        if _PROC:  # a tenth of the time that psutil takes
            return Path(f"/proc/{pid}/environ").read_bytes() if _is_ours(pid) else b""
        process = psutil.Process(pid)
        if process.uids().real != os.getuid():
            return b""
        lines = (f"{name}={value}" for name, value in process.environ().items())
        return os.fsencode("\0".join(lines))
    except (OSError, psutil.Error):
        return b""


def ancestors() -> list[Found]:
    """The processes above this one, the nearest first."""
    above = ((parent.pid, start_ticks(parent.pid)) for parent in psutil.Process().parents())
    return [Found(pid, started) for pid, started in above if started is not None]


# ---- ending


def terminate(processes: Iterable[Found]) -> None:
    """Ask processes to end. One that is stopped is let go on, or it would not hear of it."""
    for process in processes:
        _send(process, signal.SIGTERM)
        _send(process, signal.SIGCONT)


def end(find: Callable[[], Sequence[Found]], grace: float, world: World = _REAL) -> Ended:
    """End what `find` finds, until it finds nothing more: what is about to end may still start
    something. They are asked to; what still runs after `grace` seconds is killed."""
    known: dict[Found, str] = {}
    survivors: list[Found] = []
    for _ in range(_ROUNDS):
        found = [one for one in find() if one not in survivors and one.alive]
        if not found:
            break
        known.update((one, f"process {one.pid} ({_name(one)})") for one in found)
        if grace > 0:
            terminate(found)
        left = _outlasting(found, grace, world)
        for process in left:
            _send(process, signal.SIGKILL)
        survivors += _outlasting(left, LAST, world)
        grace = 0.0
    ended = tuple(words for one, words in known.items() if one not in survivors)
    return Ended(ended, tuple(known[one] for one in survivors))


def end_tagged(prefix: str, grace: float, world: World = _REAL) -> Ended:
    """End what `tagged` finds, with what hangs together with it. Raises as `tagged` does."""
    return end(lambda: family(tagged(prefix)), grace, world)


_ROUNDS = 5


def _outlasting(processes: Sequence[Found], seconds: float, world: World) -> list[Found]:
    """Wait for the end of processes; those that are alive at the end of the wait."""
    end = world.boot() + seconds
    while (left := [one for one in processes if one.alive]) and world.boot() < end:
        world.pause(_PACE)
    return left


def _send(process: Found, number: signal.Signals) -> None:
    """Send a signal to a process if it is still the one that was found."""
    assert process.pid > 1
    assert process.pid != os.getpid()
    handle = _handle(process.pid)
    try:
        if not process.alive:
            return
        # A process that may not be signalled counts as one that has outlived it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if handle is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """A hold on a process (Linux): a signal sent by it cannot reach another one, even if the pid
    changes hands."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
