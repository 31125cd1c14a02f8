"""A step whose attempts are all billed, of which the third succeeds, and one more.

Argument: `tokens` for a budget of tokens alone, `any` for one with any amount of money too.
Point `billed`: the second step has reported its cost and has not ended.
"""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
budgets = {
    "tokens": outlast.Budget(tokens=1000),
    "any": outlast.Budget.unlimited(tokens=1000),
}


@outlast.step(retry=outlast.Retry(attempts=3, initial=0))
def flaky() -> str:
    attempt = outlast.current().attempt
    stage.log("flaky", attempt)
    outlast.charge(tokens=60)
    outlast.charge(tokens=40)
    if attempt != 3:
        raise ConnectionResetError
    return "flaky"


@outlast.step
def steady() -> str:
    stage.log("steady")
    outlast.charge(tokens=100)
    stage.reach("billed")
    return "steady"


@outlast.workflow(budget=budgets[sys.argv[2]])
def flow() -> list[str]:
    return [flaky(), steady()]


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
