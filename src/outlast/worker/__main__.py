"""The worker process: `python -m outlast.worker`, started by a supervisor with an order on stdin.

It ends with its parent, however that ends.
"""

import ctypes
import os
import signal
import sys

import msgspec

from outlast.worker.order import INTERRUPTED, KILLED, STUCK, Order, Serve
from outlast.worker.served import serve
from outlast.worker.work import work

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent's main thread ends (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request took hold
        sys.exit(1)


def main() -> None:
    """Carry out the order that stands on stdin."""
    end_with_parent(int(sys.argv[1]))
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order | Serve)
    sys.path[0] = ""  # as for any program that is started in this folder
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see supervisor.py
        code = serve(order) if isinstance(order, Serve) else work(order)
    except KeyboardInterrupt:  # nothing was begun
        code = INTERRUPTED
    sys.stdout.flush()
    sys.stderr.flush()
    if code in (STUCK, KILLED):
        os._exit(code)  # the interpreter would wait for the code that does not end
    sys.exit(code)


if __name__ == "__main__":
    main()
