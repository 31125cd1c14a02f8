"""A run of one plain `once` step in a thread, whose body waits for the file `go`.

Options (JSON): `store`, `folder`, `timeout` of the step, `resume` instead of starting, `if_owned`;
with `stay` the process lives on until the file `leave` is there.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import outlast
from outlast.engine.spec import workflow_spec
from outlast.worker.execution import Plan, run_plan
from outlast.worker.stores import get_store

options = json.loads(sys.argv[1])
folder = Path(options["folder"])


def log(line):
    with (folder / "log").open("a") as file:
        file.write(line + "\n")


def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.005)


@outlast.step(effect="once", timeout=options.get("timeout"))
def send():
    log("begins")
    wait_for("go")
    log("ends")
    return f"sent by {os.getpid()}"


@send.reconcile
def _():
    log("asked")
    return outlast.Unknown()


@outlast.workflow
async def flow():
    return await asyncio.to_thread(send)


settings = outlast.Settings(lease=60.0, grace=0.1)
try:
    if options.get("resume"):
        plan = Plan(
            workflow_spec(flow), "r", resume=True, if_owned=options.get("if_owned", "raise")
        )
        said = {"result": run_plan(plan, get_store(options["store"]))}
    else:
        run = outlast.run(flow, run_id="r", store=options["store"], settings=settings)
        said = {"result": run}
except outlast.OutlastError as problem:
    said = {"error": type(problem).__name__, "text": str(problem)}
print(json.dumps(said), flush=True)
(folder / f"over.{os.getpid()}").touch()
if options.get("stay"):
    wait_for("leave")
