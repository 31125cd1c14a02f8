"""Starting worker processes, and keeping the leases of what they execute."""

import contextlib
import os
import signal
import subprocess
import sys

import msgspec

from outlast.leases import RenewForProcess, lease_from
from outlast.processes import Found
from outlast.store.writer import Store
from outlast.worker.killed import identity_of
from outlast.worker.order import Order, Serve


def start_worker(*pass_fds: int) -> "subprocess.Popen[bytes]":
    """Start a worker process, in a group of its own. It ends with the thread that calls this, so
    that is the main one. What it is to do is told by `hand_over`."""
    # Ctrl-C stays blocked in it until it can handle it, or its imports would end with a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "outlast.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            process_group=0,
            pass_fds=pass_fds,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hand_over(process: "subprocess.Popen[bytes]", order: Order | Serve) -> None:
    """Tell a worker process what to do."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # its exit code tells why it has ended
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.close()


def keep_leases(store: Store, worker: Found, seconds: float) -> None:
    """Renew the leases of a worker for so long: its own heart may be stopped by C code."""
    item = RenewForProcess(identity_of(store, worker), lease_from(store.world, seconds))
    store.write(item, durable=False)
