"""The processes that the bodies of steps have started: their tags, and their end."""

from collections.abc import Iterable
from urllib.parse import quote

from outlast import processes
from outlast.engine.run import AttemptInfo
from outlast.engine.scope import ATTEMPT
from outlast.processes import Ended, Found
from outlast.world import World

GRACE = 1.0
"""Seconds that a process gets to end by itself once its attempt is over."""


def mark_processes() -> None:
    """From now on, processes that bodies start carry the tag of their attempt."""
    processes.mark_children(_tag_here)


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
