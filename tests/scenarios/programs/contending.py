"""Executes many runs of many steps at once in one store, next to other processes.

Options: `store`, `folder`, `name`, `runs`, `steps`."""

import asyncio
import json
import sys
from pathlib import Path

import outlast

options = json.loads(sys.argv[1])
folder = Path(options["folder"])


@outlast.step
async def work(run_id, number):
    with (folder / "log").open("ab", buffering=0) as file:
        file.write(f"{run_id} {number}\n".encode())
    return number


@outlast.workflow
async def job(run_id, steps):
    return [await work(run_id, number) for number in range(steps)]


async def main():
    ids = [f"{options['name']}-{n}" for n in range(options["runs"])]
    steps = options["steps"]
    results = await asyncio.gather(
        *(outlast.execute(job, i, steps, run_id=i, store=options["store"]) for i in ids)
    )
    assert all(result == list(range(steps)) for result in results)


asyncio.run(main())
print(json.dumps({"ok": True}))
