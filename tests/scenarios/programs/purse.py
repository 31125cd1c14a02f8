"""Calls that all want something at once: `dear`, ten of 0.30 dollars each, or `batch`, eight that
count as calls.

Arguments: which, and the limit (dollars or calls). Each logs `start N`, then works until the flag
`pay` is set. Point `three`: three are under way, of those that were ever begun.
"""

import asyncio
import sys

import outlast
from outlast.world import World
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
which, limit = sys.argv[2:]
budget = outlast.Budget(usd=limit) if which == "dear" else outlast.Budget(calls=int(limit))


def work(n: int) -> int:
    stage.log("start", n)
    if len(stage.effects()) == 3:
        stage.reach("three")
    while not stage.has("pay"):
        World().pause(0.002)
    return n


@outlast.step(name="dear", cost=outlast.Cost(estimate=0.3))
async def dear(n: int) -> int:
    return await asyncio.to_thread(work, n)


@outlast.step(name="batch")
async def batch(n: int) -> int:
    return await asyncio.to_thread(work, n)


@outlast.workflow(budget=budget)
async def flow() -> list[int]:
    if which == "dear":
        return await asyncio.gather(*(dear(n) for n in range(10)))
    return await asyncio.gather(*(batch(n) for n in range(8)))


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
