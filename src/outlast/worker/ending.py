"""Ending processes that execute runs, from outside, with all that they have started."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator

import psutil

from outlast.engine.started import GRACE, tag
from outlast.processes import Ended, Found, end, end_tagged, family, tag_of, tagged
from outlast.records import Identity, RunRow
from outlast.store.writer import Store
from outlast.views import read_events, steps_of
from outlast.world import World, start_ticks

Orphans = Callable[[], Iterable[Found]]
"""What else is to be ended: asked again and again, since children of who ends become orphans."""

_REAL = World()


def no_orphans() -> tuple[Found, ...]:
    """None are known."""
    return ()


def end_worker(
    worker: Found,
    uids: Iterable[str] = (),
    orphans: Orphans = no_orphans,
    grace: float = GRACE,
    world: World = _REAL,
    told: bool = False,
) -> Ended:
    """End a process with its descendants, its group, and what is tagged with the runs that it
    executes. It may have ended already, and left something.

    Args:
        uids: of the runs.
        orphans: what else may hang together with it.
        grace: seconds that they get to end by themselves.
        told: the process itself has been asked before, and is killed at once. Others wait for it.
    """
    runs, known = tuple(uids), {worker}

    def find() -> list[Found]:
        marked = [one for uid in runs for one in tagged(uid)]
        # Those of before too: who is theirs can be told only as long as they live.
        known.update(family([*known, *marked, *orphans()]))
        return list(known)

    if not told:
        return end(find, grace, world)
    find()  # whose children the others are can be told only as long as it lives
    first = end(lambda: [worker], 0.0, world)
    rest = end(find, grace, world)
    survivors = [words for words in first.survivors if words not in rest.survivors]
    return Ended(first.ended + rest.ended, (*survivors, *rest.survivors))


def end_owner(owner: Identity, grace: float, world: World = _REAL) -> Ended:
    """End the process behind a claim, if it is still that one, with its descendants.

    Args:
        grace: seconds that they get to end by themselves.

    Returns:
        As a survivor also a process that could not be ended from here, and why.
    """
    who = f"process {owner.pid} on {owner.host}"
    match world.liveness(owner):
        case "dead":
            return Ended()
        case "foreign":
            return Ended(survivors=(f"{who} (it can be ended only from there)",))
        case "alive":
            process = Found(owner.pid, owner.started)
            if not family([process]):  # which spares this process and its ancestors
                return Ended(
                    survivors=(f"{who} (it is the one that was to end it, or its parent)",)
                )
            return end_worker(process, grace=grace, world=world)


def end_cut_short(store: Store, row: RunRow) -> Ended:
    """End what attempts of a run have started that came to no end of their own. What a step that
    has ended left running on purpose is none of it."""
    if not tagged(row.uid):
        return Ended()
    steps = steps_of(read_events(store, row.run_id), row.uid, alive=False)
    ended = {tag(row.uid, s.key, s.attempts) for s in steps if s.status in ("completed", "failed")}
    wanted = {tag_of(one) for one in tagged(row.uid)} - ended
    parts = [end_tagged(one, GRACE, store.world) for one in sorted(wanted)]
    return Ended(
        tuple(words for part in parts for words in part.ended),
        tuple(words for part in parts for words in part.survivors),
    )


class Adopted:
    """What comes to this process, the subreaper of one worker, as the worker and its descendants
    die.

    If it had children before, or is the first process of a container, others may come to it as
    well; then only those count that are in the worker's process group.

    Args:
        alone: the worker is the only one of this process.
    """

    def __init__(self, alone: bool = True) -> None:
        self._all = alone and os.getpid() != 1 and not psutil.Process().children()

    def of_group(self, worker: Found) -> list[Found]:
        """Descendants in the worker's process group."""
        return [one for one, group in self._descendants(worker) if group == worker.pid]

    def of(self, worker: Found) -> list[Found]:
        """All descendants that are known to be the worker's."""
        if not self._all:
            return self.of_group(worker)
        return [one for one, _ in self._descendants(worker)]

    def reap(self, worker: Found) -> None:
        """Take leave of those that have ended; nobody else can."""
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                ours = self._all or os.getpgid(child.pid) == worker.pid
                if ours and child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)

    def _descendants(self, worker: Found) -> Iterator[tuple[Found, int]]:
        for child in psutil.Process().children(recursive=True):
            started = start_ticks(child.pid)
            if started is not None and child.pid != worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    yield Found(child.pid, started), os.getpgid(child.pid)
