"""Steps that do not end by themselves, one of each kind, for the kill matrix.

Each piece of what runs writes its process id to `FOLDER/NAME.pid` before it hangs, and touches
`FOLDER/NAME.ended` if it comes to an end of its own. The workflows are `hang_async` and
`hang_sync`; `python tools/kill_programs.py COLOUR KIND FOLDER` executes one in this process.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import outlast

IGNORES_TERM = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1], "child.tmp").write_text(str(os.getpid()))
os.rename(sys.argv[1] + "/child.tmp", sys.argv[1] + "/child.pid")
while True:
    signal.pause()
"""

TWICE_FORKED = f"""
import os
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
{IGNORES_TERM}
"""


@contextmanager
def piece(folder: str, name: str) -> Iterator[None]:
    """Something that runs in this process, until the block is left in whatever way."""
    unfinished = Path(folder, f"{name}.tmp")
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(Path(folder, f"{name}.pid"))
    try:
        yield
    finally:
        Path(folder, f"{name}.ended").touch()


# ---- what hangs in the thread that calls it


def sleeps(folder: str) -> None:
    time.sleep(3600)


def spins(folder: str) -> None:
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue


def matches(folder: str) -> None:
    re.match(r"(a|a?)+$", "a" * 60 + "b")  # takes twice as long for each letter more


def sums(folder: str) -> None:
    sum(range(10**11))


def waits(folder: str) -> None:
    threading.Event().wait()


# ---- what hangs elsewhere while the step waits for it


def works(folder: str) -> None:
    """In a thread. It has no place where an interrupt could be expected."""
    with piece(folder, "thread"):
        while True:
            time.sleep(0.01)


def in_thread(folder: str) -> None:
    thread = threading.Thread(target=works, args=(folder,))
    thread.start()
    thread.join()


def child(code: str, folder: str, *, session: bool = False) -> None:
    subprocess.run([sys.executable, "-c", code, folder], start_new_session=session)


async def achild(code: str, folder: str, *, session: bool = False) -> None:
    command = (sys.executable, "-c", code, folder)
    process = await asyncio.create_subprocess_exec(*command, start_new_session=session)
    await process.wait()


PLAIN = {
    "wait": waits,
    "sleep": sleeps,
    "busy": spins,
    "regex": matches,
    "sum": sums,
    "thread": in_thread,
    "stubborn": lambda folder: child(IGNORES_TERM, folder),
    "session": lambda folder: child(IGNORES_TERM, folder, session=True),
    "daemon": lambda folder: child(TWICE_FORKED, folder),
}
"""Each kind of hanging, by its name."""


@outlast.step
def hang(kind: str, folder: str) -> None:
    with piece(folder, "body"):
        PLAIN[kind](folder)
        threading.Event().wait()  # for who has only started something


@outlast.step
async def ahang(kind: str, folder: str) -> None:
    with piece(folder, "body"):
        if kind == "thread":
            await asyncio.to_thread(works, folder)
        elif kind in ("stubborn", "session"):
            await achild(IGNORES_TERM, folder, session=kind == "session")
        elif kind == "daemon":
            await achild(TWICE_FORKED, folder)
        elif kind != "wait":
            PLAIN[kind](folder)
        await asyncio.Event().wait()


@outlast.step
def after(folder: str) -> None:
    Path(folder, "after").touch()


@outlast.workflow
def hang_sync(kind: str, folder: str) -> None:
    hang(kind, folder)
    after(folder)


@outlast.workflow
async def hang_async(kind: str, folder: str) -> None:
    await ahang(kind, folder)
    after(folder)


def main() -> None:
    """As in a server: the process has more to do than this run, and lives on after it."""
    colour, kind, folder = sys.argv[1:]
    workflow = hang_async if colour == "async" else hang_sync
    try:
        outlast.run(workflow, kind, folder, run_id="r", store=f"sqlite:///{folder}/store.db")
    except outlast.RunKilled:
        Path(folder, "told").touch()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
