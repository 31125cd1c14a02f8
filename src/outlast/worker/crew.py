"""The supervisor of several worker processes that take runs up, all on one store.

As that of a single run (supervisor.py) it keeps their leases, starts another for one that dies, and
ends one in which a killed run does not end. It executes nothing and imports nothing of the user's.
"""

import contextlib
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import psutil
from msgspec.structs import replace

from outlast.control import Resume
from outlast.emergency import read_news
from outlast.engine.heart import BEATS_PER_LEASE
from outlast.engine.spec import Settings
from outlast.errors import StoreError
from outlast.processes import Ended, Found, end
from outlast.views import read_run
from outlast.worker import order as codes
from outlast.worker.ending import Adopted, end_worker
from outlast.worker.killed import (
    grace_left,
    hand_back,
    identity_of,
    killed_in,
    note_ended,
    uids_in,
)
from outlast.worker.order import Serve
from outlast.worker.saying import tell
from outlast.worker.spawning import hand_over, keep_leases, start_worker
from outlast.worker.stalling import ending_stalled
from outlast.worker.stores import OpenStore, get_store, in_place_of
from outlast.worker.supervisor import become_subreaper
from outlast.world import start_ticks

LOOK = 0.1
"""Seconds between two looks at the workers, and at what operators have decided."""

PAUSES = (0.5, 30.0)
"""Shortest and longest pause, in seconds, before another worker is started for one that died."""

YOUNG = 30.0
"""A worker that dies sooner makes the pause longer, in seconds."""

LAST_WORDS = 0.5
"""Seconds that a worker which is to be ended gets to let go of its other runs. They wait for its
end."""

LOST = frozenset({"gone", "not-a-store", "damaged"})
PATIENCE = 10.0
"""Troubles of a store that do not end by themselves, and for how many seconds somebody may still
put the file back. Then the workers end: whoever started them is to know."""

MARGIN = 2.0
"""Seconds beyond the grace periods that a worker gets to leave."""


def run_crew(order: Serve, processes: int) -> int:
    """Serve runs with so many worker processes until this process is asked to stop.

    Returns:
        The exit code: that of the signal, of workers that cannot begin at all, or of a store that
        is lost.

    Raises:
        StoreError, UsageError: the store cannot be opened.
    """
    crew = _Crew(order, processes, get_store(order.store))
    become_subreaper()
    with crew.heeding_signals():
        try:
            return crew.run()
        finally:
            crew.end_all()


@dataclass
class _Member:
    """A worker process.

    Attributes:
        born: by the boot clock.
        pipe: where it says that it takes runs up; None once it has.
    """

    process: "subprocess.Popen[bytes]"
    found: Found
    born: float
    pipe: int | None

    def is_ready(self) -> bool:
        """Whether it takes runs up."""
        if self.pipe is not None:
            with contextlib.suppress(BlockingIOError):
                if os.read(self.pipe, 1):
                    self.close()
        return self.pipe is None

    def close(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


@dataclass(eq=False)
class _Place:
    """Where a worker is, or will be from `begins` on, by the boot clock."""

    member: _Member | None = None
    begins: float = 0.0
    pause: float = PAUSES[0]


class _Crew:
    def __init__(self, order: Serve, processes: int, opened: OpenStore) -> None:
        self._order = order
        self._opened = opened
        self._store = opened.store
        self._world = opened.store.world
        self._places = [_Place() for _ in range(processes)]
        self._adopted = Adopted(alone=False)
        self._proven = False  # a worker has come to take up runs, so its successors will
        self._next_beat = 0.0
        self._heard = -1
        self._ending = False  # a killed run is not over yet
        self._lost_at = math.inf  # since when the store is lost, by the boot clock
        self._asked: signal.Signals | None = None
        self._times = 0

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Within the block, SIGTERM, Ctrl-C and the end of the terminal ask the crew to stop.
        Whoever starts us in the background may have them ignored; that stays so."""

        def heed(number: int, frame: FrameType | None) -> None:
            self._asked = self._asked or signal.Signals(number)
            self._times += 1  # nothing else: this interrupts any code of this thread

        before = {
            number: signal.signal(number, heed)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self) -> int:
        """Keep the workers going. Returns the exit code."""
        with ending_stalled(self._store, lambda: [one.process for one in self._members()]):
            return self._run()

    def _run(self) -> int:
        while self._asked is None:
            for place in self._places:
                code = self._tend(place)
                if code is not None:
                    return code
            try:
                self._keep()
                self._listen()
                self._lost_at = math.inf
            except StoreError as problem:  # the workers meet the same trouble, and say so
                self._opened = in_place_of(self._opened, problem)
                self._store = self._opened.store
                if self._is_lost(problem):
                    return self._give_up(problem)
            self._world.pause(LOOK)
        return self._leave(self._asked)

    def _is_lost(self, problem: StoreError) -> bool:
        now = self._world.boot()
        self._lost_at = min(self._lost_at, now) if problem.problem in LOST else math.inf
        return now - self._lost_at >= PATIENCE

    def _give_up(self, problem: StoreError) -> int:
        """Nothing can be recorded any more. What the workers have open may end all the same."""
        tell(f"the workers end: {problem}")
        for member in self._members():
            member.process.send_signal(signal.SIGTERM)
        self._await(self._members(), self._world.boot() + self._order.grace + MARGIN, hurry=True)
        return codes.STORE

    # ---- workers

    def _tend(self, place: _Place) -> int | None:
        """See to one worker. A code is the end of all: its like cannot begin."""
        member, now = place.member, self._world.boot()
        if member is None:
            # The first one shows whether the modules can be imported; it says so if not.
            if now >= place.begins and (self._proven or place is self._places[0]):
                place.member = self._start()
            return None
        self._proven = member.is_ready() or self._proven
        code = member.process.poll()
        if code is None:
            return None
        self._conclude(place, Ended(), resume=code == codes.STUCK)
        if not self._proven and code in (codes.USAGE, codes.STORE):
            return code
        if code == codes.STUCK:
            tell(f"worker {member.found.pid} ended since a step outlived its timeout")
            return None
        long = now - member.born > YOUNG
        place.pause = PAUSES[0] if long else min(PAUSES[1], place.pause * 2)
        place.begins = now + place.pause
        manner = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended ({code})"
        tell(f"worker {member.found.pid} {manner}; another one starts in {place.pause:g} s")
        return None

    def _start(self) -> _Member:
        pipe, ready = os.pipe()
        os.set_blocking(pipe, False)
        try:
            process = start_worker(ready)
        finally:
            os.close(ready)
        hand_over(process, replace(self._order, ready=ready))
        found = Found(process.pid, start_ticks(process.pid) or 0)
        return _Member(process, found, self._world.boot(), pipe)

    def _members(self) -> list[_Member]:
        return [place.member for place in self._places if place.member is not None]

    # ---- what a worker may not be able to do itself

    def _keep(self) -> None:
        """Renew the leases of all workers: their own hearts may be stopped by C code."""
        now, lease = self._world.boot(), Settings().lease
        if now < self._next_beat:
            return
        self._next_beat = now + lease / BEATS_PER_LEASE
        for member in self._members():
            if member.found.alive:
                keep_leases(self._store, member.found, lease)

    def _listen(self) -> None:
        """End workers in which killed runs do not end within the grace of their kill."""
        version = read_news(self._store, self._heard).version
        if version == self._heard and not self._ending:
            return
        self._heard = version
        self._ending = False
        overdue: dict[_Place, str] = {}
        for place in self._places:
            if place.member is None:
                continue
            for run_id, _ in killed_in(self._store, place.member.found):
                self._ending = True
                if grace_left(self._store, run_id) == 0:
                    overdue[place] = f"run {run_id} was killed and did not end"
        if overdue:
            self._end(overdue)

    def _end(self, whys: dict[_Place, str]) -> None:
        """End workers. They get a moment to let go of their other runs; those that they keep are
        handed back for them, so that they go on elsewhere, and it counts as no crash of theirs."""
        members = []
        for place, why in whys.items():
            assert place.member is not None
            members.append(place.member)
            tell(f"worker {place.member.found.pid} is ended: {why}")
            place.member.process.send_signal(signal.SIGTERM)
        self._await(members, self._world.boot() + LAST_WORDS)
        for place, member in zip(whys, members, strict=True):
            ended = self._finish(member, "its worker had to be ended")
            self._conclude(place, ended, resume=True)

    def _finish(self, member: _Member, why: str) -> Ended:
        """End what is left of a worker, and of what it has started."""
        worker = member.found
        hand_back(self._store, worker, why)
        return end_worker(
            worker,
            uids_in(self._store, worker),
            lambda: self._adopted.of_group(worker),
            world=self._world,
            told=True,
        )

    def _conclude(self, place: _Place, ended: Ended, *, resume: bool) -> None:
        """A worker has ended: end what it has left running, note what only this process knows."""
        member = place.member
        assert member is not None
        member.process.wait()
        member.close()
        place.member, place.begins = None, self._world.boot()
        end(lambda: self._adopted.of_group(member.found), 0.0, self._world)
        self._reap()
        with contextlib.suppress(StoreError):
            note_ended(self._store, member.found, ended)
            if resume:
                self._resume_stuck(member)

    def _resume_stuck(self, member: _Member) -> None:
        """Runs that were held since a body of theirs did not end in that process go on."""
        who = identity_of(self._store, member.found)
        rows = self._store.read(
            "runs_of_process",
            host=who.host,
            boot=who.boot,
            namespace=who.namespace,
            pid=who.pid,
            started=who.started,
        )
        for run_id, _, status in rows:
            row = read_run(self._store, str(run_id)) if status == "held" else None
            if row is not None and row.reason == "stuck":
                item = Resume(row.run_id, self._world.wall(), self._world, "its supervisor")
                self._store.write(item, durable=True)

    def _reap(self) -> None:
        """Take leave of orphans that came to this process and have ended; nobody else can."""
        ours = {member.found.pid for member in self._members()}
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                if child.pid not in ours and child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)

    # ---- the end

    def _leave(self, asked: signal.Signals) -> int:
        """Let the workers come to their end within the grace; a second signal does not wait."""
        members = self._members()
        for member in members:
            member.process.send_signal(signal.SIGTERM)
        again = "; Ctrl-C again cuts it off" if asked == signal.SIGINT else ""
        tell(f"finishing what is open (at most {self._order.grace:g} s){again}")
        self._await(members, self._world.boot() + 2 * self._order.grace + MARGIN, hurry=True)
        for place in self._places:
            if place.member is not None:
                ended = Ended()
                if place.member.process.poll() is None:
                    ended = self._finish(place.member, asked.name)
                self._conclude(place, ended, resume=True)
        return codes.INTERRUPTED if asked == signal.SIGINT else codes.TERMINATED

    def _await(self, members: list[_Member], until: float, *, hurry: bool = False) -> None:
        """Wait until workers have ended; with `hurry`, no longer once a second signal has come."""
        while any(member.process.poll() is None for member in members):
            if self._world.boot() >= until or (hurry and self._times > 1):
                return
            with contextlib.suppress(StoreError):
                self._keep()
            self._world.pause(LOOK / 2)

    def end_all(self) -> None:
        """Leave no worker behind, however this process comes to its end."""
        for member in self._members():
            if member.process.poll() is None:
                member.process.kill()
            member.process.wait()
            member.close()
