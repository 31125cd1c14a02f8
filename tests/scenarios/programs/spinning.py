"""An agent that asks one tool the same again and again, beside a model whose answers differ.

Arguments: `plain` or `turns` for its loop, and after how many calls the answer changes.
Points: `poked-N`, where so many calls are done.
"""

import itertools
import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
loop, change = sys.argv[2], int(sys.argv[3])


@outlast.step
def think(n: int) -> int:
    return n


@outlast.step(effect="read")
def poke(where: str) -> str:
    stage.log("poke")
    return "awake" if len(stage.effects()) > change else "asleep"


def turn(n: int) -> bool:
    think(n)
    awake = poke("here") == "awake"
    stage.reach(f"poked-{n + 1}")
    return awake


@outlast.workflow(max_repeats=5)
def flow() -> int:
    if loop == "plain":
        return next(n + 1 for n in itertools.count() if turn(n))
    for state in outlast.turns(n=0):
        if turn(state.n):
            return state.n + 1
        state.n += 1
    return 0


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
