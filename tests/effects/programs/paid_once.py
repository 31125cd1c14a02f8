"""A `once` step of one dollar that reports half of it. Point `paid`: it has happened.

Argument: `reports` to report it, and `priced` to declare what it costs.
"""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
PRICE = outlast.Cost(estimate=1, actual=0.75) if "priced" in sys.argv else None


@outlast.step(effect="once", cost=PRICE)
def pay() -> str:
    if "reports" in sys.argv:
        outlast.charge(usd="0.5")
    stage.log("paid", outlast.current().attempt)
    stage.reach("paid")
    return "paid"


@outlast.workflow(budget=outlast.Budget(usd=5))
def flow() -> str:
    return pay()


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
