"""A run that waits for a breaker `tool` which is not due for an hour, and that lives on meanwhile.

Arguments: the colour, and `parks` to leave instead.
"""

import asyncio
import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
GUARD = outlast.Breaker("tool", failures=1, window=7200, cooldown=3600, on_open="wait")


@outlast.step(breaker=GUARD)
def tool() -> str:
    stage.log("call")
    return "worked"


@outlast.step(name="tool", breaker=GUARD)
async def tool_async() -> str:
    stage.log("call")
    return "worked"


@outlast.workflow(name="flow")
def flow() -> str:
    return tool()


@outlast.workflow(name="flow")
async def flow_async() -> str:
    await asyncio.sleep(0)
    return await tool_async()


if __name__ == "__main__":
    stage.report(
        lambda: outlast.run(
            flow if sys.argv[2] == "sync" else flow_async,
            run_id="run",
            store=stage.url,
            wait="parks" not in sys.argv,
            settings=outlast.Settings(max_sleep=0.05),
        )
    )
