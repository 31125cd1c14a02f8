"""A crowd that calls one tool at the same moment: 50 tasks of one run, and 8 runs in threads.

Argument: the process's name. Says "ready"; once the flag `go` is set, all call at once. The
tool logs `call NAME`, and works until the flag `release` is set; who was refused logs `refused`.
"""

import asyncio
import json
import sys
import threading

import outlast
from outlast.world import World
from tests.effects.stage import Stage
from tests.scenarios.ahead import live_ahead

TASKS, THREADS = 50, 8
TOOL = outlast.Breaker("tool", failures=1, window=3600, cooldown=3600)

stage = Stage(sys.argv[1])
name = sys.argv[2]
together = threading.Barrier(THREADS + 1)


def work(n: int) -> str:
    stage.log("call", name)
    stage.reach(f"called-{name}")
    while not stage.has("release"):
        World().pause(0.005)
    return "worked"


@outlast.step(name="tool", breaker=TOOL, retry=outlast.Retry(attempts=1))
async def tool(n: int) -> str:
    return await asyncio.to_thread(work, n)


@outlast.step(name="tool", breaker=TOOL, retry=outlast.Retry(attempts=1))
def plain_tool(n: int) -> str:
    return work(n)


async def ask(n: int) -> str:
    try:
        return await tool(n)
    except outlast.BreakerOpen as refused:
        stage.log("refused", refused.name)
        return "refused"


@outlast.workflow(budget=outlast.Budget(calls=TASKS + 1))
async def crowd() -> list[str]:
    return await asyncio.gather(*(ask(n) for n in range(TASKS)))


@outlast.workflow(budget=outlast.Budget(calls=2))
def alone() -> list[str]:
    try:
        return [plain_tool(0)]
    except outlast.BreakerOpen as refused:
        stage.log("refused", refused.name)
        return ["refused"]


def main() -> None:
    results: list[str] = []

    def thread(number: int) -> None:
        together.wait()
        results.extend(outlast.run(alone, run_id=f"{name}-{number}", store=stage.url))

    threads = [threading.Thread(target=thread, args=(n,)) for n in range(THREADS)]
    for one in threads:
        one.start()
    together.wait()
    results.extend(outlast.run(crowd, run_id=name, store=stage.url))
    for one in threads:
        one.join()
    print(json.dumps({"result": results}))


if __name__ == "__main__":
    live_ahead(stage)
    outlast.Client(stage.url)  # opens the store
    print("ready", flush=True)
    while not stage.has("go"):
        World().pause(0.002)
    main()
