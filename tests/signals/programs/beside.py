"""A wait without end beside a step. Point `between`: the step is recorded, and nothing but the wait
is open, though the workflow has more to do."""

import asyncio
import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])


@outlast.step
async def act() -> int:
    return 1


async def branch() -> int:
    await asyncio.sleep(0)
    done = await act()
    stage.reach("between")
    return done + await act()


@outlast.workflow
async def flow() -> object:
    return await asyncio.gather(outlast.wait_signal("go"), branch())


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
