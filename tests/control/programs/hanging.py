"""A workflow of one step that hangs in the way that its argument says, with a process of its own
beside it. Each pid is written to a file once it is there."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import outlast
from outlast.world import start_ticks

TOOL = """
import os, signal, sys, time
from pathlib import Path
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
part = Path(sys.argv[1] + ".part")
part.write_text(str(os.getpid()))
part.rename(sys.argv[1])
time.sleep(300)
"""


def note(name: str, pid: int) -> None:
    part = Path(f"{name}.part")
    part.write_text(str(pid))
    part.rename(name)


def tool(kind: str) -> "subprocess.Popen[bytes]":
    """A process that goes on for minutes: `child`, `deaf` (to SIGTERM), `session` (its own)."""
    command = [sys.executable, "-c", TOOL, "tool.pid", kind]
    process = subprocess.Popen(command, start_new_session=kind == "session")
    while not Path("tool.pid").exists():
        time.sleep(0.005)
    return process


def fork_twice() -> None:
    """Leave a process behind that is no child of anybody and carries no mark."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note("tool.pid", os.getpid())
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    while not Path("tool.pid").exists():
        time.sleep(0.005)


def hang(kind: str) -> None:
    if kind == "twice":
        fork_twice()
    else:
        tool(kind)
    note("worker.pid", os.getpid())
    sum(range(10**12))  # holds the interpreter for hours, and hears of no signal


@outlast.step
def act(kind: str) -> None:
    hang(kind)


@outlast.workflow
def hangs(kind: str) -> None:
    act(kind)


@outlast.workflow
def above(kind: str) -> str:
    try:
        hangs(kind)
    except outlast.ChildKilled:
        return "went on without it"
    return "never"


@outlast.step
async def act_async(kind: str) -> None:
    hang(kind)


@outlast.workflow
async def hangs_async(kind: str) -> None:
    await act_async(kind)


def earlier_tool() -> str:
    """Whether the tool of an earlier attempt is still there; empty if there was none."""
    if not Path("tool.pid").exists():
        return ""
    gone = start_ticks(int(Path("tool.pid").read_text())) is None
    return "the tool is gone" if gone else "the tool works beside its repeat"


@outlast.step
def act_and_wait(kind: str) -> None:
    tool(kind)
    note("worker.pid", os.getpid())
    time.sleep(300)


@outlast.workflow
def waits(kind: str) -> None:
    act_and_wait(kind)


@outlast.step
async def act_and_wait_async(kind: str) -> None:
    tool(kind)
    note("worker.pid", os.getpid())
    await asyncio.sleep(300)


@outlast.workflow
async def waits_async(kind: str) -> None:
    await act_and_wait_async(kind)


@outlast.step(effect="read", timeout=1, retry=outlast.Retry(attempts=2, initial=0.01))
def impatient(kind: str) -> str:
    if not earlier_tool():
        tool(kind).wait()
    return earlier_tool()


@outlast.workflow
def times_out(kind: str) -> str:
    return impatient(kind)


@outlast.step(effect="read", timeout=1, retry=outlast.Retry(attempts=2, initial=0.01))
async def impatient_async(kind: str) -> str:
    if not earlier_tool():
        tool(kind)
        await asyncio.sleep(300)
    return earlier_tool()


@outlast.workflow
async def times_out_async(kind: str) -> str:
    return await impatient_async(kind)


@outlast.step(effect="once", timeout=1)
def pay(kind: str) -> int:
    return tool(kind).wait()


@outlast.workflow
def pays(kind: str) -> int:
    return pay(kind)


def die_beside(kind: str) -> str:
    """The first time, die beside a tool; the second time, tell whether that is still there."""
    if said := earlier_tool():
        return said
    tool(kind)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@outlast.step(effect="read")
def dying(kind: str) -> str:
    return die_beside(kind)


@outlast.workflow
def dies(kind: str) -> str:
    return dying(kind)


@outlast.step(effect="read")
async def dying_async(kind: str) -> str:
    return die_beside(kind)


@outlast.workflow
async def dies_async(kind: str) -> str:
    return await dying_async(kind)


@outlast.step
def start_server() -> int:
    """A step that has ended, and has left a process running on purpose."""
    return tool("session").pid


@outlast.step(effect="read")
def crash_once() -> None:
    if not Path("crashed").exists():
        Path("crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


@outlast.workflow
def served() -> int:
    pid = start_server()
    crash_once()
    return pid


if __name__ == "__main__":
    # In this process, without a supervisor: its arguments are the store, the workflow and its own.
    print(outlast.run(globals()[sys.argv[2]], *sys.argv[3:], run_id="r", store=sys.argv[1]))
