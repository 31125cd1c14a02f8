"""Two calls of a step that returns what it says about its own cost.

Arguments: what the first one says, by a short name, and `hold` or the bound that is charged for
what is not known. Points around the commit of the first outcome, see cuts.py.
"""

import math
import sys
from typing import Any

import outlast
from tests.effects.stage import Stage
from tests.scenarios.cuts import watch_commits

stage = Stage(sys.argv[1])
told, bound = sys.argv[2:]
CHUNK = {"object": "chat.completion.chunk", "choices": [{"finish_reason": None}]}
SAID: dict[str, Any] = {
    "None": None,
    "NaN": math.nan,
    "negative": -0.1,
    "text": "0.1",
    "tokens": {"tokens": 50},
    "cut": [CHUNK, CHUNK],
    "free": 0,
    "dollars": 0.1,
}


def cost(result: Any) -> Any:
    if isinstance(result, dict):
        return outlast.Usage(tokens=result["tokens"])
    return result


@outlast.step(cost="llm" if told == "cut" else cost)
def act(n: int) -> Any:
    stage.log("act", n)
    return SAID[told] if n == 0 else ([] if told == "cut" else 0)


budget = outlast.Budget(usd=1, on_unknown="hold" if bound == "hold" else float(bound))


@outlast.workflow(budget=budget)
def flow() -> str:
    first = act(0)
    act(1)
    return repr(first)


if __name__ == "__main__":
    watch_commits(stage)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
