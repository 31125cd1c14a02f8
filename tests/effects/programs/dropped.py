"""A step of 0.40 dollars. Point `working`: it is under way."""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])


@outlast.step(cost=outlast.Cost(estimate=0.4))
def act(n: int) -> int:
    stage.reach("working")
    return n


@outlast.workflow(budget=outlast.Budget(usd=2))
def flow() -> int:
    return act(1)


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
