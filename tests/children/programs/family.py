"""A run with children: `calls` two, one after the other, `starts` both at once, or `maps` a step
over a list, or a workflow with `maps-kids`.

Arguments: colour, which, and `tight` for a budget of one dollar. Each step logs `act N`. Points:
`first`, `second`: so many steps have logged; `died`: in the parent, behind all that.
"""

import asyncio
import sys
from typing import Any

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
colour, which = sys.argv[2:4]
PRICE = outlast.Cost(estimate=0.3, actual=0.3)
BUDGET = outlast.Budget(usd=1 if "tight" in sys.argv else 10)


@outlast.step(cost=PRICE)
def act(n: int) -> int:
    stage.log("act", n)
    for point in ("first", "second")[: len(stage.effects())]:
        stage.reach(point)
    return n * 10


@outlast.step(effect="read")
def last() -> None:
    stage.reach("died")


@outlast.workflow
def kid(n: int) -> int:
    return act(n) + (act(n + 1) if which == "calls" else 0)


@outlast.workflow(name="kid")
async def kid_async(n: int) -> int:
    return act(n) + (act(n + 1) if which == "calls" else 0)


def items() -> list[int]:
    """The list of the fan-out, in another order and with one more item once it was changed."""
    return [4, 3, 2, 1] if stage.has("changed") else [1, 2, 3]


@outlast.workflow(budget=BUDGET)
def flow() -> Any:
    if which == "calls":
        result = [kid(1), kid(5)]
    elif which == "starts":
        result = [handle.result() for handle in [outlast.start_child(kid, n) for n in (1, 2)]]
    elif which == "maps":
        result = outlast.map(act, items(), limit=1).result()
    else:
        result = outlast.map(kid, items(), limit=1).result()
    last()
    return result


@outlast.workflow(name="flow", budget=BUDGET)
async def flow_async() -> Any:
    if which == "calls":
        result = [await kid_async(1), await kid_async(5)]
    elif which == "starts":
        handles = [outlast.start_child(kid_async, n) for n in (1, 2)]
        result = list(await asyncio.gather(*handles))
    elif which == "maps":
        result = await outlast.map(act, items(), limit=1)
    else:
        result = await outlast.map(kid_async, items(), limit=1)
    last()
    return result


if __name__ == "__main__":
    body = flow if colour == "sync" else flow_async
    stage.report(lambda: outlast.run(body, run_id="run", store=stage.url))
