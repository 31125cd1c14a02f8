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
    if alarm.remaining() > run.longest_wait:
        drain(run)
        run.request_stop(Asleep(request.due))
    wake = threading.Event()
    with run.watch(wake.set):
        while True:
            wake.clear()  # before anything is looked at, or a call in between would be lost
            run.check()
            left = alarm.remaining()
            if left == 0 or request.ends_early():
                return
            run.world.pause(min(left, run.settings.max_sleep), wake)


def drain(run: Run) -> None:
    """Wait until nothing is open, in plain code."""
    if _in_loop():
        return  # what is open ends in this very loop, so waiting here would never end
    wake = threading.Event()
    with run.watch(wake.set, idle=True):
        while True:
            wake.clear()
            if not run.open or not (left := run.patience()):
                return
            run.world.pause(min(left, run.settings.max_sleep), wake)


def in_line(run: Run, request: InLine) -> None:
    """Wait for one's turn in plain code."""
    if _in_loop():
        return  # who is waited for ends in this very loop
    wake = threading.Event()
    with run.watch(wake.set), run.purse.standing_in_line(request.key, wake.set):
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
    while True:
        run.check()
        left = alarm.remaining()
        if left == 0 or request.ends_early():
            return
        if left > run.longest_wait:
            await _stop_if_idle(run)
        await pause(run, min(left, run.settings.max_sleep))


async def _stop_if_idle(run: Run) -> None:
    """Leave, once nothing but timers is left to wait for, and for too long."""
    quiet = 0
    while quiet < PASSES:
        await drain_async(run)
        await asyncio.sleep(0.001 if run.arriving else 0)
        quiet = 0 if run.open or run.arriving else quiet + 1
    if run.dues and min(run.dues.values()) - run.world.wall() > run.longest_wait:
        run.request_stop(Asleep(min(run.dues.values())))
    run.check()


async def drain_async(run: Run) -> None:
    """`drain` for asynchronous code."""
    while run.open and (left := run.patience()):
        await pause(run, min(left, run.settings.max_sleep), idle=True)


async def pause(
    run: Run, seconds: float, *, idle: bool = False, line: InLine | None = None
) -> None:
    """Wait until the run must stop (with `idle`: or has nothing open; with `line`: or it is its
    turn), at most `seconds`."""
    loop = asyncio.get_running_loop()
    changed = loop.create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    def wake_from_elsewhere() -> None:
        loop.call_soon_threadsafe(wake)

    timer = loop.call_later(seconds, wake)
    standing = (
        nullcontext() if line is None else run.purse.standing_in_line(line.key, wake_from_elsewhere)
    )
    try:
        with run.watch(wake_from_elsewhere, idle=idle), standing:
            if run.open if idle else run.stop is None and not (line and line.over(run)):
                await changed
    finally:
        timer.cancel()


async def in_line_async(run: Run, request: InLine) -> None:
    """`in_line` for asynchronous code."""
    while run.stop is None and not request.over(run):
        await pause(run, run.settings.max_sleep, line=request)
