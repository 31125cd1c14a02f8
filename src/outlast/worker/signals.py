"""SIGTERM: let open attempts end, give the run back, then go."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from outlast.engine.run import active_runs
from outlast.engine.stop import Release

EXIT_CODE = 128 + signal.SIGTERM
"""What a shell reports for a process that SIGTERM ended."""


_installed = False


def _after_fork() -> None:
    """A forked child has no run to release. A handler in Python would only run once the child's
    main thread comes back from what it waits for, so the system's own way is put back."""
    if _installed:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def release_on_sigterm() -> Iterator[None]:
    """While the block runs, SIGTERM releases this process's runs instead of killing it.

    Nothing new begins in them; what is open may end within the grace period. Then SystemExit(143)
    is raised. Only in the main thread, and only if the program has no handler of its own.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    main_thread = threading.get_ident()
    asked = False
    timer: threading.Timer | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked, timer
        if asked:
            raise SystemExit(EXIT_CODE)
        asked = True
        runs = active_runs()
        grace = max((run.settings.grace for run in runs), default=0.0)
        # A plain workflow may be inside a long step: after the grace period it is interrupted. The
        # signal must reach the thread that sleeps there, or nothing would end its system call.
        again = (main_thread, signal.SIGTERM)
        timer = threading.Timer(grace, signal.pthread_kill, again)
        timer.daemon = True
        timer.start()
        for run in runs:
            run.request_stop(Release("SIGTERM"))

    global _installed
    signal.signal(signal.SIGTERM, handle)
    _installed = True
    try:
        yield
    finally:
        _installed = False
        signal.signal(signal.SIGTERM, signal.SIG_IGN if asked else signal.SIG_DFL)
        if timer is not None:
            timer.cancel()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if asked:
            raise SystemExit(EXIT_CODE)
