"""The supervisor: a small parent that keeps a worker process's leases, reaps and restarts it.

The worker executes the user's code in a process group of its own. Whatever that code does to its
process (holds the interpreter in C code, blocks signals, dies), the parent goes on.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import msgspec
import psutil

from outlast.engine.heart import BEATS_PER_LEASE
from outlast.engine.spec import Settings
from outlast.errors import StoreError
from outlast.leases import RenewForProcess, lease_from
from outlast.store.writer import Store
from outlast.views import read_run
from outlast.worker import order as codes
from outlast.worker.order import Order
from outlast.worker.stores import get_store
from outlast.worker.work import work
from outlast.world import start_ticks

PR_SET_CHILD_SUBREAPER = 36


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
    _become_subreaper()
    while True:
        worker = _Worker(order, store)
        code = worker.run()
        if worker.asked is not None and (code < 0 or code in codes.STOPPED):
            return codes.INTERRUPTED if worker.asked == signal.SIGINT else codes.TERMINATED
        if worker.asked is not None and code != codes.STUCK:
            return code  # it came to its end before it could be stopped
        if code == codes.STUCK:
            _say(order, "was ended since a step outlived its timeout; starting another")
        elif code == codes.STORE:
            return code  # it could not even let go of the run; nothing is wrong with the program
        elif worker.left_run():
            _say(order, f"{_manner(code)}; starting another")
        elif code < 0:
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
    sys.stderr.write(f"outlast: the worker of run {order.run_id} {what}\n")
    sys.stderr.flush()


class _Worker:
    """One worker process, from its start to its end."""

    def __init__(self, order: Order, store: Store) -> None:
        self._order = msgspec.structs.replace(order, supervised=True)
        self._store = store
        self._pid = 0
        self._started: int | None = None
        self.asked: int | None = None
        """The signal by which this process was asked to stop, if it was."""

    def left_run(self) -> bool:
        """Whether it ended without letting go of its run: it died."""
        row = read_run(self._store, self._order.run_id)
        owner = None if row is None else row.owner
        return owner is not None and (owner.pid, owner.started) == (self._pid, self._started)

    def run(self) -> int:
        """Start it, keep its leases, wait for its end. Negative: the signal that killed it."""
        # Started from the main thread: the worker ends with the thread that started it. Ctrl-C
        # stays blocked in it until it can handle it, or its imports would end with a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "outlast.worker", str(os.getpid())],
                stdin=subprocess.PIPE,
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._pid, self._started = process.pid, start_ticks(process.pid)
        ended = threading.Event()
        heart = threading.Thread(
            target=self._beat, args=(ended,), name="outlast-heart", daemon=True
        )
        with self._forwarding(process):
            try:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # its exit code tells why it has ended
                    process.stdin.write(msgspec.json.encode(self._order) + b"\n")
                    process.stdin.close()
                heart.start()
                code = process.wait()
            finally:
                ended.set()
                if process.poll() is None:  # we leave by an exception of our own
                    process.kill()
                    process.wait()
                _end_orphans(process.pid)
        return code

    def _beat(self, ended: threading.Event) -> None:
        """Renew the worker's leases until it ends; its own heart may be stopped by C code."""
        lease = Settings().lease
        here = self._store.world.identity()
        while not ended.wait(lease / BEATS_PER_LEASE):
            if self._started is None or start_ticks(self._pid) != self._started:
                return
            until = lease_from(self._store.world, lease)
            item = RenewForProcess(
                here.host, here.boot, here.namespace, self._pid, self._started, until
            )
            with contextlib.suppress(StoreError):  # the worker meets the same trouble, and says so
                self._store.write(item, durable=False)

    @contextlib.contextmanager
    def _forwarding(self, process: "subprocess.Popen[bytes]") -> Iterator[None]:
        """Ctrl-C and SIGTERM ask the worker to release its run: what is open may end within the
        grace period. The second one does not wait for that, the third one kills.

        Popen signals only a process that it has not reaped yet, so never another one.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        times = 0

        def forward(number: int, frame: FrameType | None) -> None:
            nonlocal times
            times += 1
            self.asked = self.asked or number
            if number == signal.SIGINT and times == 1:
                grace = f"{self._order.grace:g}".encode()
                said = b"outlast: finishing what is open (at most %b s); Ctrl-C again cuts it off\n"
                # Past Python's buffers, which the code that this interrupts may be writing to; a
                # terminal that is gone must not keep the signal from the worker.
                with contextlib.suppress(OSError):
                    os.write(2, said % grace)
            if times <= 2:
                process.send_signal(number)
            else:
                process.kill()

        # Whoever starts us in the background may have Ctrl-C ignored; that stays so.
        before = {
            number: signal.signal(number, forward)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _become_subreaper() -> None:
    """Children of a dead worker become ours, not init's, so that they can be ended (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _end_orphans(group: int) -> None:
    """End what a dead worker left running: a tool's process must not work on beside its repeat.

    Only what is in the worker's process group is known to be its own. This process may well have
    other children: jobs that a shell began before it became us, or, as a container's first
    process, whatever lost its parent there. A tool that left the group is left alone, too.
    psutil signals a process only if its start time is still the one it was found with.
    """
    orphans = [p for p in psutil.Process().children(recursive=True) if _group_of(p.pid) == group]
    for orphan in orphans:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()
    psutil.wait_procs(orphans, timeout=5)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
