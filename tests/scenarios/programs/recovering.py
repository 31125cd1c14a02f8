"""Takes up every unfinished run of a store until none is left. Options: `store`, `folder`,
`runs` (ids to start first, all at once), `die` (SIGKILL itself once all have their body begun)."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import outlast

options = json.loads(sys.argv[1])
folder = Path(options["folder"])
begun = set()


def log(line):
    # One write call of a short line: appends of several processes do not mix.
    with (folder / "log").open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


@outlast.step
async def prepare(run_id):
    log(f"prepare {run_id}")
    return run_id


@outlast.step
async def act(run_id):
    log(f"act {run_id}")
    begun.add(run_id)
    if options.get("die"):
        await asyncio.Event().wait()
    return f"acted for {run_id}"


@outlast.workflow
async def job(run_id):
    return [await prepare(run_id), await act(run_id)]


async def start(run_id):
    try:
        result = await outlast.execute(job, run_id, run_id=run_id, store=options["store"])
    except (outlast.RunOwned, outlast.LostRun):
        return
    log(f"result {run_id} {result[1]}")


async def die_when_all_have_begun():
    while len(begun) < len(options["runs"]):
        await asyncio.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


async def main():
    if options.get("runs"):
        tasks = [start(run_id) for run_id in options["runs"]]
        if options.get("die"):
            tasks.append(die_when_all_have_begun())
        await asyncio.gather(*tasks)
    client = outlast.Client(options["store"])
    while client.runs(status="running") or client.unfinished():
        await asyncio.gather(*(start(run_id) for run_id in client.unfinished()))
        await asyncio.sleep(0.01)


asyncio.run(main())
print(json.dumps({"ok": True}))
