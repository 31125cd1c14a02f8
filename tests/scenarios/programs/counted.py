"""Twelve calls, each of which takes one of what is limited.

Arguments: what that is (`calls`, `usd`, `tokens`), and the limit in the code.
Points: `after-N`, where N calls are done.
"""

import sys
from decimal import Decimal

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
name, limit = sys.argv[2], int(sys.argv[3])
budgets = {
    "calls": outlast.Budget(calls=limit),
    "usd": outlast.Budget(usd=limit),
    "tokens": outlast.Budget.unlimited(tokens=limit),
}
costs = {"calls": None, "usd": 1, "tokens": outlast.Usage(usd=Decimal(0), tokens=1)}


@outlast.step(cost=costs[name])
def work(n: int) -> int:
    stage.log("work", n)
    return n


@outlast.workflow(budget=budgets[name])
def flow() -> list[int]:
    results: list[int] = []
    for n in range(12):
        results.append(work(n))
        stage.reach(f"after-{n + 1}")
    return results


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
