"""Ending a worker that keeps everybody from writing to the store.

Code of a step that holds the interpreter in C, or a SIGSTOP, may catch another thread of its
process in the middle of a transaction. It would stand there as long as that lasts, and nobody could
write: no heartbeat, no other worker, not even an operator's kill.
"""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator

from outlast.store.locks import StalledWriter
from outlast.store.writer import Store
from outlast.worker.saying import tell

STALLED = 10.0
"""Seconds without a word in the file after which a transaction is taken for one that will not end:
more than a busy disk needs, and less than what others wait for it."""

PACE = 1.0
"""Seconds between two looks."""


@contextlib.contextmanager
def ending_stalled(
    store: Store, workers: "Callable[[], Iterable[subprocess.Popen[bytes]]]"
) -> Iterator[None]:
    """Until the block ends, end by SIGKILL whichever of these workers stands in a transaction and
    does not go on. It counts as a crash of what it executed."""
    over = threading.Event()

    def watch() -> None:
        stalled = StalledWriter(store.path, STALLED)
        while not over.wait(PACE):
            pid = stalled.look(store.world.boot())
            # Popen signals only a process that it has not reaped yet, so never another one.
            for worker in [one for one in workers() if pid is not None and one.pid == pid]:
                tell(
                    f"worker {pid} has kept {store.path} locked for {STALLED:g} s and does not go "
                    "on; it is ended"
                )
                worker.kill()

    thread = threading.Thread(target=watch, name="outlast-stalling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
