"""Waits for an open breaker only so long, then takes another tool.

Point `gave-up`: the other tool was not called yet.
"""

import asyncio
import sys

import outlast
from outlast.breakers import Trip
from outlast.worker.stores import get_store
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])


@outlast.step(breaker=outlast.Breaker("tool", on_open="wait"))
async def tool() -> str:
    stage.log("tool")
    return "worked"


@outlast.step
async def other() -> str:
    stage.log("other")
    return "worked"


@outlast.workflow
async def flow() -> list[str]:
    try:
        async with asyncio.timeout(0.05):
            return [await tool()]
    except TimeoutError:
        stage.reach("gave-up")
    return ["gave up", await other()]


if __name__ == "__main__":
    store = get_store(stage.url).store
    store.write(Trip("tool", store.world, seconds=3600), durable=True)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
