"""The waits that a driver performs: for a time, for open attempts, for one's turn.

None of them is one long sleep, so that a clock that steps, or a stop, is noticed.
"""

import asyncio
import threading
from contextlib import nullcontext

from outlast.engine.order import PASSES
from outlast.engine.requests import InLine, Sleep
from outlast.engine.run import Run
from outlast.engine.stop import Asleep
from outlast.engine.timers import Alarm


def sleep(request: Sleep, run: Run) -> None:
    """Wait for a time in plain code."""
    if request.ends_early():
        return
    alarm = Alarm(request.due, run.world)
    wake = threading.Event()
    news = run.watch(wake.set, news=True) if request.news else nullcontext()
    with run.watch(wake.set, idle=True), news:
        while True:
            wake.clear()  # before anything is looked at, or a call in between would be lost
            run.check()
            left = alarm.remaining()
            if left == 0 or request.ends_early():
                return
            if left > run.longest_wait and (run.is_quiet or _in_loop()):
                run.request_stop(Asleep(min(run.dues.values(), default=request.due)))
                continue
            run.world.pause(min(left, run.settings.max_sleep), wake)


def drain(run: Run, seconds: float | None = None) -> None:
    """Wait until nothing is open, in plain code. With `seconds`: nor any thread of it runs, for so
    long at most."""
    if _in_loop():
        return  # what is open ends in this very loop, so waiting here would never end
    wake = threading.Event()
    limit = _Limit(run, seconds)
    with run.watch(wake.set, idle=True):
        while True:
            wake.clear()
            if not limit.is_busy() or not (left := limit.left()):
                return
            run.world.pause(min(left, run.settings.max_sleep), wake)


def in_line(run: Run, request: InLine) -> None:
    """Wait for one's turn in plain code."""
    if _in_loop():
        return  # who is waited for ends in this very loop
    wake = threading.Event()
    with run.watch(wake.set), run.purse.standing_in_line(request.mark, wake.set):
        while True:
            wake.clear()
            if run.stop is not None or request.over(run):
                return
            run.world.pause(run.settings.max_sleep, wake)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def sleep_async(request: Sleep, run: Run) -> None:
    """`sleep` for asynchronous code."""
    alarm = Alarm(request.due, run.world)
    news = request if request.news else None
    while True:
        run.check()
        left = alarm.remaining()
        if left == 0 or request.ends_early():
            return
        if left > run.longest_wait:
            await _stop_if_idle(run, news)
        await pause(run, min(left, run.settings.max_sleep), news=news)


async def _stop_if_idle(run: Run, news: Sleep | None) -> None:
    """Leave, once nothing but timers is left to wait for, and for too long. With `news`: unless
    what it waits for comes while something else still goes on."""
    quiet = 0
    while quiet < PASSES:
        await drain_async(run, news=news)
        if news is not None and run.is_busy and news.ends_early():
            return
        await asyncio.sleep(0.001 if run.arriving else 0)
        quiet = 0 if run.is_busy or run.arriving else quiet + 1
    if run.dues and min(run.dues.values()) - run.world.wall() > run.longest_wait:
        run.request_stop(Asleep(min(run.dues.values())))
    run.check()


async def drain_async(run: Run, seconds: float | None = None, *, news: Sleep | None = None) -> None:
    """`drain` for asynchronous code. With `news`: until that ends early, at most."""
    limit = _Limit(run, seconds)
    while limit.is_busy() and (left := limit.left()):
        await pause(run, min(left, run.settings.max_sleep), idle=True, news=news)
        if news is not None and news.ends_early():
            return


class _Limit:
    """For how long a run is drained, and of what."""

    def __init__(self, run: Run, seconds: float | None) -> None:
        self._run = run
        self._end = None if seconds is None else run.world.boot() + seconds

    def is_busy(self) -> bool:
        return self._run.is_busy or (self._end is not None and bool(self._run.kin.strands))

    def left(self) -> float:
        left = self._run.patience()
        return (
            left if self._end is None else max(0.0, min(left, self._end - self._run.world.boot()))
        )


async def pause(
    run: Run,
    seconds: float,
    *,
    idle: bool = False,
    line: InLine | None = None,
    news: Sleep | None = None,
) -> None:
    """Wait until the run must stop (with `idle`: or has nothing open; with `line`: or it is its
    turn; with `news`: or something has come from outside), at most `seconds`."""
    loop = asyncio.get_running_loop()
    changed = loop.create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    def wake_from_elsewhere() -> None:
        loop.call_soon_threadsafe(wake)

    timer = loop.call_later(seconds, wake)
    standing = (
        nullcontext()
        if line is None
        else run.purse.standing_in_line(line.mark, wake_from_elsewhere)
    )
    hearing = nullcontext() if news is None else run.watch(wake_from_elsewhere, news=True)
    try:
        with run.watch(wake_from_elsewhere, idle=idle), standing, hearing:
            # Asked again, now that nothing that comes is missed.
            over = (line and line.over(run)) or (news and news.ends_early())
            waits = run.is_busy if idle else run.stop is None
            if waits and not over:
                await changed
    finally:
        timer.cancel()


async def in_line_async(run: Run, request: InLine) -> None:
    """`in_line` for asynchronous code."""
    while run.stop is None and not request.over(run):
        await pause(run, run.settings.max_sleep, line=request)
