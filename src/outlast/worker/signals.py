"""SIGTERM and Ctrl-C: let open attempts end, give the run back, then go."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from outlast.engine.interrupts import hearing_nudges
from outlast.engine.run import Run, active_runs
from outlast.engine.stop import Release

EXIT_CODE = 128 + signal.SIGTERM
"""What a shell reports for a process that SIGTERM ended."""

Handler = Callable[[int, FrameType | None], object] | int | None

_NATURAL: dict[signal.Signals, Handler] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""How the signals are handled in a program that has no wishes of its own."""

_STARTING = 0.5
"""Seconds that a run which is just being claimed gets to appear, so that it can be released."""

_installed: set[signal.Signals] = set()

_MARGIN = 0.5
"""Seconds beyond the grace period before the main thread is interrupted: at its end an asynchronous
workflow is cancelled, and should not be interrupted while it writes how it ended."""

_LAST_WORDS = 2.0
"""Seconds that it may take to write how the runs ended."""


def _after_fork() -> None:
    """A forked child has no run to release. A handler in Python would only run once the child's
    main thread comes back from what it waits for, so the natural way is put back."""
    for number in _installed:
        signal.signal(number, _NATURAL[number])


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def release_on_signals() -> Iterator[None]:
    """While the block runs, SIGTERM and Ctrl-C release this process's runs.

    Nothing new begins in them; what is open may end within the grace period. Then SystemExit(143)
    or KeyboardInterrupt is raised; a second signal does not wait for that. Only in the main
    thread, and only for signals that the program does not handle itself.
    """
    with hearing_nudges(), _releasing():
        yield


@contextmanager
def _releasing() -> Iterator[None]:
    ours = [n for n, natural in _NATURAL.items() if signal.getsignal(n) is natural]
    if threading.current_thread() is not threading.main_thread() or not ours:
        yield
        return
    news: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
    asked: list[signal.Signals] = []

    def handle(number: int, frame: FrameType | None) -> None:
        # It interrupts any code of this thread, whatever locks that holds. So it only puts into a
        # queue that is made for this, and a thread does the rest.
        if asked:
            raise _leave(asked[0])
        asked.append(signal.Signals(number))
        news.put(asked[0])

    releaser = threading.Thread(
        target=_release, args=(news, threading.get_ident()), name="outlast-signals", daemon=True
    )
    releaser.start()
    for number in ours:
        signal.signal(number, handle)
    _installed.update(ours)
    try:
        yield
    finally:
        _installed.difference_update(ours)
        for number in ours:
            signal.signal(number, signal.SIG_IGN if asked else _NATURAL[number])
        news.put(None)
        releaser.join()  # after this no signal of its own is under way
        for number in ours:
            signal.signal(number, _NATURAL[number])
        if asked:
            raise _leave(asked[0]) from None


def _leave(number: signal.Signals) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(EXIT_CODE)


def _release(news: "queue.SimpleQueue[signal.Signals | None]", main_thread: int) -> None:
    """Body of the thread that does what a signal asks for."""
    number = news.get()
    if number is None:
        return
    runs = _appearing_runs(news)
    for run in runs:
        run.request_stop(Release(number.name))
    grace = max((run.settings.grace for run in runs), default=0.0)
    try:
        news.get(timeout=grace + _MARGIN)
    except queue.Empty:
        # A plain workflow may be inside a long step. The signal must reach the thread that sleeps
        # there, or nothing would end its system call.
        signal.pthread_kill(main_thread, number)
        try:
            news.get(timeout=grace + _LAST_WORDS)
        except queue.Empty:
            # Code of the user swallows whatever is raised in it, or a thread that the interpreter
            # waits for hangs. How the runs ended is written by now.
            os._exit(128 + number)


def _appearing_runs(news: "queue.SimpleQueue[signal.Signals | None]") -> frozenset[Run]:
    for _ in range(int(_STARTING / 0.02)):
        if active_runs():
            break
        try:
            news.put(news.get(timeout=0.02))  # the block has ended
            break
        except queue.Empty:
            continue
    return active_runs()
