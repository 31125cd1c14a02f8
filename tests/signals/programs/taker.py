"""Waits for a signal in a task of its own. With the flag `cancel` it cancels that task before the
signal can be delivered, and waits anew. Point `taken`: the signal is taken, and not delivered."""

import asyncio
import sys

import outlast
from outlast.engine import drive
from outlast.events import WaitEnded
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])


async def wait() -> int:
    return await outlast.wait_signal("paid", int)


@outlast.workflow
async def flow() -> list[object]:
    task = asyncio.create_task(wait())
    if not stage.has("cancel"):
        return [await task]
    await asyncio.sleep(0)
    task.cancel()
    try:
        return [await task]
    except asyncio.CancelledError:
        return ["cancelled", await wait()]


async def _watched(request, run, write=drive._write):  # type: ignore[no-untyped-def]
    reply = await write(request, run)
    if any(isinstance(entry.event, WaitEnded) for entry in request.entries):
        stage.reach("taken")
    return reply


drive._write = _watched

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, wait=False))
