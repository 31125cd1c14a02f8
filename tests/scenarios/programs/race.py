"""Three steps at once, then one that is chosen by whichever finished first.

As a child: the last to finish kills the process as soon as the two others are recorded.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import outlast
from tests.effects.stage import Stage


def make_flow(stage: Stage, delays: Mapping[str, float], dies: str | None = None) -> Any:
    @outlast.step
    async def work(name: str) -> str:
        await asyncio.sleep(delays[name])
        if name == dies:
            while stage.kinds().count("step.completed") < 2:
                await asyncio.sleep(0.005)
            os.kill(os.getpid(), signal.SIGKILL)
        stage.log(name)
        return name.upper()

    @outlast.step
    async def decide(first: str) -> str:
        stage.log("decided", first)
        return f"{first} was first"

    @outlast.workflow(name="race")
    async def flow() -> list[Any]:
        order: list[str] = []

        async def racer(name: str) -> str:
            result = await work(name)
            order.append(name)
            return result

        results = await asyncio.gather(*(racer(name) for name in "abc"))
        return [results, order, await decide(order[0])]

    return flow


if __name__ == "__main__":
    stage, delays, dies = Stage(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    flow = make_flow(stage, delays, dies)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
