"""Worker processes for the refund cases: `python -m outlast.demo.workers --store URL`.

They are what `outlast worker outlast.demo.case` starts, and they leave when standard input is
closed: whatever becomes of the show, a worker that hangs does not outlive it.
"""

import argparse
import os
import signal
import sys
import threading

from outlast.demo import case
from outlast.worker.crew import run_crew
from outlast.worker.order import Serve


def main() -> None:
    """Serve until this process is asked to stop, or the show is gone."""
    parser = argparse.ArgumentParser(description="The demo's workers")
    parser.add_argument("--store", required=True, help="URL of the store")
    parser.add_argument("--processes", type=int, required=True, help="worker processes")
    parser.add_argument("--concurrency", type=int, required=True, help="runs at once in each")
    options = parser.parse_args()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    order = Serve(options.store, (case.__name__,), options.concurrency, grace=1.0)
    sys.exit(run_crew(order, options.processes))


def _leave_with_parent() -> None:
    sys.stdin.read()  # returns when the parent is gone, however it went
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
