"""A run of three steps whose middle one says that it runs and waits to be let go.

Options (JSON): `store`, `run_id`, `folder`, `colour` (async or plain), `effect`, `lease`, `grace`,
`if_owned`, `max_crashes`; `host` is what this machine is called; `own_group` makes it a
process group; `block` makes the body hold the
event loop or the interpreter for so many seconds; `stop_at` ("heartbeat", "completion") makes the
process stop itself (SIGSTOP) right before that write.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import outlast
from outlast.journal import OwnerWrite
from outlast.leases import Renew
from outlast.store.sqlite import SqliteDatabase

options = json.loads(sys.argv[1])
folder = Path(options["folder"])


def log(line):
    with (folder / "log").open("a") as file:
        file.write(line + "\n")


def first():
    log("first")
    return "one"


def enter():
    log("middle")
    (folder / f"in-body.{os.getpid()}").touch()


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def middle_plain():
    enter()
    if options.get("block"):
        compute(options["block"])
    elif options.get("sleep"):
        time.sleep(options["sleep"])
    else:
        while not (folder / "go").exists():
            time.sleep(0.005)
    return f"middle by {os.getpid()}"


async def middle_async():
    enter()
    if options.get("block"):
        time.sleep(options["block"])
    elif options.get("sleep"):
        await asyncio.sleep(options["sleep"])
    else:
        while not (folder / "go").exists():
            await asyncio.sleep(0.005)
    return f"middle by {os.getpid()}"


def last():
    log("last")
    return "three"


effect = options.get("effect")
first = outlast.step(first)
last = outlast.step(last)
plain_middle = outlast.step(middle_plain, name="middle", effect=effect)
async_middle = outlast.step(middle_async, name="middle", effect=effect)


@outlast.workflow(name="gated")
def plain():
    return [first(), plain_middle(), last()]


@outlast.workflow(name="gated")
async def asynchronous():
    return [first(), await async_middle(), last()]


def stop_before(what):
    """Be stopped like a suspended machine, after all checks and right before the write."""
    transact = SqliteDatabase.transact

    def wanted(item):
        if what == "heartbeat":
            return isinstance(item, Renew)
        return isinstance(item, OwnerWrite) and any(
            e.event.kind == "step.completed" and (e.key or "").startswith("middle")
            for e in item.entries
        )

    def stopping(self, items, *, wait=True):
        if any(wanted(item) for item in items):
            SqliteDatabase.transact = transact
            # To this very thread, which therefore does not come further than here.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return transact(self, items, wait=wait)

    SqliteDatabase.transact = stopping


if options.get("own_group"):
    os.setpgid(0, 0)
if "host" in options:
    socket.gethostname = lambda: options["host"]
if "stop_at" in options:
    stop_before(options["stop_at"])

settings = outlast.Settings(
    lease=options.get("lease", 60.0),
    grace=options.get("grace", 5.0),
    max_crashes=options.get("max_crashes", 3),
    max_sleep=0.2,
)
workflow = asynchronous if options.get("colour", "async") == "async" else plain
try:
    said = {
        "result": outlast.run(
            workflow,
            run_id=options["run_id"],
            store=options["store"],
            if_owned=options.get("if_owned", "raise"),
            settings=settings,
        )
    }
except outlast.OutlastError as problem:
    said = {"error": type(problem).__name__, "text": str(problem)}
except SystemExit as end:
    print(json.dumps({"error": "SystemExit"}))
    raise end
except KeyboardInterrupt:
    said = {"error": "KeyboardInterrupt"}
print(json.dumps(said))
