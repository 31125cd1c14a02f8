"""Calls a tool three times; the first call fails unless the flag `works` is set, and opens its
breaker for an hour, by the clocks that the test sets.

Argument: `wait` to wait for the breaker (and to leave while it waits). What the workflow catches is
logged. Point `refused`: the workflow has seen a refusal.
"""

import sys
import time

import outlast
from outlast.world import World
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
waits = "wait" in sys.argv[2:]
guard = outlast.Breaker(
    "tool", failures=1, window=7200, cooldown=3600, on_open="wait" if waits else "fail"
)


@outlast.step(retry=outlast.Retry(attempts=1), breaker=guard)
def tool(n: int) -> str:
    stage.log("call", n)
    if n == 0:
        raise outlast.Transient("busy")
    return "worked"


def ask(n: int) -> str:
    try:
        return tool(n)
    except outlast.Transient:
        return "failed"
    except outlast.BreakerOpen as refused:
        stage.log("BreakerOpen", refused.name, refused.until, refused.fault)
        stage.reach("refused")
        return "refused"


@outlast.workflow
def flow() -> list[str]:
    return [ask(n) for n in range(3)]


if __name__ == "__main__":
    stage.follow_clock()
    ahead, boot = World().wall() - time.time(), World.boot
    World.boot = lambda world: boot(world) + ahead  # type: ignore[method-assign]
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, wait=not waits))
