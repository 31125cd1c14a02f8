"""The supervisor: a small parent that keeps a worker process's leases, reaps and restarts it.

The worker executes the user's code in a process group of its own. Whatever that code does to its
process (holds the interpreter in C code, blocks signals, dies), the parent goes on.
"""

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import msgspec

from outlast.emergency import read_news
from outlast.engine.heart import BEATS_PER_LEASE
from outlast.engine.history import build
from outlast.engine.loading import load
from outlast.engine.spec import Settings
from outlast.errors import LostRun, StoreError
from outlast.events import RunReleased, StepInterrupted
from outlast.journal import ACTIVE, Becomes, Entry, OwnerWrite, RunMoved
from outlast.processes import Ended, Found, end
from outlast.records import FINAL, RunRow
from outlast.store.writer import Store
from outlast.views import read_run
from outlast.worker import order as codes
from outlast.worker.ending import Adopted, end_cut_short, end_worker
from outlast.worker.killed import (
    grace_left,
    hand_back,
    killed_in,
    note_ended,
    uids_in,
)
from outlast.worker.order import Order
from outlast.worker.saying import tell
from outlast.worker.spawning import hand_over, keep_leases, start_worker
from outlast.worker.stalling import ending_stalled
from outlast.worker.stores import get_store
from outlast.worker.work import work
from outlast.world import start_ticks

PR_SET_CHILD_SUBREAPER = 36

LOOK = 0.1
"""Seconds between two looks at what an operator has decided about the run."""

HURRY = 1.0
"""Seconds that a worker has to leave once it was told so for the second time."""


def run_supervised(order: Order) -> int:
    """Execute an order in a worker process and return its exit code (see order.py).

    A worker that dies with its run is followed by another. The run counts the deaths and is held
    after too many, so this ends by itself.

    Raises:
        StoreError, UsageError: the store cannot be opened.
    """
    if order.in_process:
        return work(order)
    store = get_store(order.store).store
    become_subreaper()
    adopted = Adopted()
    while True:
        worker = _Worker(order, store, adopted)
        code = worker.run()
        if worker.killed:
            return codes.KILLED
        if worker.asked is not None and (code < 0 or code in codes.STOPPED):
            return codes.INTERRUPTED if worker.asked == signal.SIGINT else codes.TERMINATED
        if worker.asked is not None and code != codes.STUCK:
            return code  # it came to its end before it could be stopped
        if code == codes.STUCK:
            _say(order, "was ended since a step outlived its timeout; starting another")
        elif code == codes.STORE:
            return code  # it could not even let go of the run; nothing is wrong with the program
        elif worker.overdue and code < 0:
            _say(order, f"was ended since run {worker.overdue} was killed; starting another")
        elif worker.left_run():
            _say(order, f"{_manner(code)}; starting another")
        elif code < 0:
            row = read_run(store, order.run_id)
            if row is not None and row.status == "killed":  # after it had died, which freed the run
                return codes.KILLED
            _say(order, f"{_manner(code)} before it had the run")
            return codes.FAILED
        else:
            return code
        # An operator's word to go on was used up by the worker that has ended.
        order = msgspec.structs.replace(order, resume=code == codes.STUCK, accept_from=None)


def _manner(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended by itself with code {code}"


def _say(order: Order, what: str) -> None:
    tell(f"the worker of run {order.run_id} {what}")


class _Worker:
    """One worker process, from its start to its end."""

    def __init__(self, order: Order, store: Store, adopted: Adopted) -> None:
        self._order = msgspec.structs.replace(order, supervised=True)
        self._store = store
        self._world = store.world
        self._adopted = adopted
        self._process = Found(0, 0)
        self._ended: list[Ended] = []
        self._heard = -1  # the number of the last command that was looked at
        self._end_at = math.inf  # when the grace of a killed run in it is over, by the boot clock
        self._hurried_at = math.inf  # when it was told for the second time to leave
        self.asked: int | None = None
        """The signal by which this process was asked to stop, if it was."""
        self.killed = False
        """Its run was killed, and nothing of it runs any more."""
        self.overdue = ""
        """The run below its own that was killed and did not end in it, so that it was ended."""

    def left_run(self) -> bool:
        """Whether it ended without letting go of its run: it died."""
        row = read_run(self._store, self._order.run_id)
        return row is not None and self._owns(row)

    def _owns(self, row: RunRow) -> bool:
        owner = row.owner
        return owner is not None and Found(owner.pid, owner.started) == self._process

    def run(self) -> int:
        """Start it, keep its leases, wait for its end. Negative: the signal that killed it."""
        process = start_worker()
        self._process = Found(process.pid, start_ticks(process.pid) or 0)
        ended = threading.Event()
        keeper = threading.Thread(
            target=self._keep, args=(ended,), name="outlast-heart", daemon=True
        )
        with self._forwarding(process), ending_stalled(self._store, lambda: [process]):
            try:
                hand_over(process, self._order)
                keeper.start()
                code = process.wait()
                ended.set()
                keeper.join()
                self._conclude()
            finally:
                ended.set()
                if process.poll() is None:  # we leave by an exception of our own
                    process.kill()
                    process.wait()
                end(lambda: self._adopted.of_group(self._process), 0.0, self._world)
                self._adopted.reap(self._process)
        return code

    # ---- while it lives

    def _keep(self, ended: threading.Event) -> None:
        """Until the worker ends, renew its leases: its own heart may be stopped by C code. See
        whether it is to be ended from here."""
        lease = Settings().lease
        beat = self._world.boot() + lease / BEATS_PER_LEASE
        while not ended.wait(LOOK):
            if not self._process.alive:
                return
            with contextlib.suppress(StoreError):  # the worker meets the same trouble, and says so
                if self._world.boot() >= beat:
                    beat = self._world.boot() + lease / BEATS_PER_LEASE
                    keep_leases(self._store, self._process, lease)
                self._listen()
            if self._world.boot() >= min(self._end_at, self._hurried_at + HURRY):
                self._end()
                return

    def _listen(self) -> None:
        """Look whether the run has been killed: the worker has the grace of that to end itself."""
        news = read_news(self._store, self._heard)
        if news.version == self._heard and self._end_at == math.inf:
            return
        own = self._order.run_id
        killed = [run_id for run_id, _ in killed_in(self._store, self._process)]
        row = read_run(self._store, own)
        if row is not None and row.status == "killed":  # perhaps before the worker had it
            killed.append(own)
        lefts = {run_id: grace_left(self._store, run_id) for run_id in killed}
        self._end_at = self._world.boot() + min(lefts.values(), default=math.inf)
        self.overdue = min(lefts, key=lefts.__getitem__) if lefts and own not in lefts else ""
        self._heard = news.version

    def _end(self) -> None:
        """End the worker, with all that it has started. What else it has goes on in another one."""
        if self.asked is None:
            hand_back(self._store, self._process, "its worker had to be ended")
        else:
            why = signal.Signals(self.asked).name
            hand_back(self._store, self._process, why, besides=self._order.run_id)
        self._ended.append(self._end_all())

    def _end_all(self) -> Ended:
        worker, orphans = self._process, lambda: self._adopted.of(self._process)
        uids = {*uids_in(self._store, worker)}
        with contextlib.suppress(StoreError):
            row = read_run(self._store, self._order.run_id)
            uids.update(() if row is None else (row.uid,))
        return end_worker(worker, uids, orphans, world=self._world)

    # ---- once it has ended

    def _conclude(self) -> None:
        """See to it that nothing is left that must not be, and note what only this process knows.

        Raises:
            StoreError: the store is in trouble.
        """
        row = read_run(self._store, self._order.run_id)
        if row is None:
            return
        self.killed = row.status == "killed"
        if self.killed or killed_in(self._store, self._process):
            self._ended.append(self._end_all())
            ended = [words for part in self._ended for words in part.ended]
            alive = [words for part in self._ended for words in part.survivors]
            note_ended(self._store, self._process, Ended((*dict.fromkeys(ended),), (*alive,)))
        if row.status not in FINAL:
            end_cut_short(self._store, row)
        if self.asked is not None and self._ended and self._owns(row) and row.status in ACTIVE:
            self._release(row)

    def _release(self, row: RunRow) -> None:
        """It was asked to leave, and had to be ended: it did not die of what it executed."""
        assert self.asked is not None
        why = signal.Signals(self.asked).name
        rows, damaged = load(self._store, row.run_id)
        if damaged is not None:
            return  # whoever claims it says so
        history = build(rows)
        calls = (*history.calls.values(), *history.undoes.values())
        # What they cost is settled by whoever claims the run: their tickets are open.
        cut = [
            Entry(StepInterrupted(past.attempts, crash=False), past.key)
            for past in calls
            if past.open
        ]
        write = OwnerWrite(
            run_id=row.run_id,
            epoch=row.epoch,
            at=self._world.wall(),
            entries=(*cut, Entry(RunReleased(why))),
            mode="record",
            becomes=Becomes("queued", f"released: {why}"),
            release=True,
        )
        with contextlib.suppress(LostRun, RunMoved):  # somebody has taken it over, or decided
            self._store.write(write, durable=True)

    @contextlib.contextmanager
    def _forwarding(self, process: "subprocess.Popen[bytes]") -> Iterator[None]:
        """Ctrl-C, SIGTERM and the end of the terminal ask the worker to release its run: what is
        open may end within the grace period. The second one does not wait for that: a worker that
        has not gone soon after it is ended. The third one kills.

        Popen signals only a process that it has not reaped yet, so never another one.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        times = 0

        def forward(number: int, frame: FrameType | None) -> None:
            nonlocal times
            times += 1
            if times == 2:
                self._hurried_at = self._world.boot()
            self.asked = self.asked or number
            if number == signal.SIGINT and times == 1:
                grace = f"{self._order.grace:g}".encode()
                said = b"outlast: finishing what is open (at most %b s); Ctrl-C again cuts it off\n"
                # Past Python's buffers, which the code that this interrupts may be writing to; a
                # terminal that is gone must not keep the signal from the worker.
                with contextlib.suppress(OSError):
                    os.write(2, said % grace)
            if times <= 2:
                process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
            else:
                process.kill()

        # Whoever starts us in the background may have Ctrl-C ignored, or SIGHUP; that stays so.
        before = {
            number: signal.signal(number, forward)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def become_subreaper() -> None:
    """Children of a dead worker become ours, not init's, so that they can be ended (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
