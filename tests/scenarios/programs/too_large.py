"""Sends, and then has more in hand than can be stored. `argv[2]` says what. Point: `after`."""

import sys
import threading
from dataclasses import dataclass, field

import outlast
from tests.effects.stage import Stage

stage, what = Stage(sys.argv[1]), sys.argv[2]
LIMIT = 8 * 1024
SETTINGS = outlast.Settings(max_value_bytes=LIMIT)


@dataclass
class State:
    left: str = ""
    right: str = ""
    notes: list[object] = field(default_factory=list)


@outlast.step(effect="once", retry=outlast.Retry(attempts=5, initial=0))
async def send() -> object:
    stage.log("sent")
    return threading.Lock() if what == "lock" else "x" * 200 * 1024


@outlast.step
async def take(text: str) -> int:
    stage.log("taken")
    return len(text)


@outlast.step
async def last() -> str:
    stage.log("last")
    return "end"


@outlast.workflow
async def result() -> object:
    caught = ""
    try:
        await send()
    except outlast.NotStorable as problem:
        caught = str(problem)
    stage.reach("after")
    return [caught, await last()]


@outlast.workflow
async def arguments() -> object:
    caught = ""
    try:
        await take("x" * LIMIT)
    except outlast.NotStorable as problem:
        caught = str(problem)
    stage.reach("after")
    return [caught, await last()]


@outlast.workflow
async def state() -> object:
    async for turn in outlast.turns(State(), max=3):
        stage.log("turn")
        await last()
        half = "x" * (LIMIT // 2)  # each is stored, both together are not
        turn.left, turn.right = half, half
    return "not reached"


if __name__ == "__main__":
    flow = {"lock": result, "large": result, "arguments": arguments, "state": state}[what]
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, settings=SETTINGS))
