"""An agent that never ends by itself: its model always asks for a tool that always fails fast.

Argument: `broken`, the tool fails, or `missing`, there is no such tool. Points: `turn-N`.
"""

import sys
from typing import Any

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
missing = sys.argv[2] == "missing"


@outlast.step(cost=0.01)
def model(chat: list[Any]) -> str:
    stage.log("model")
    return "tool"


@outlast.step(retry=outlast.Retry(attempts=1))
def tool() -> str:
    stage.log("tool")
    raise ConnectionRefusedError


TOOLS = {} if missing else {"tool": tool}


def use(name: str) -> str:
    try:
        return TOOLS[name]()
    except Exception as problem:  # no step raises out of this loop
        return f"error: {type(problem).__name__}"


@outlast.workflow(budget=outlast.Budget(usd="0.50", calls=20))
def flow() -> None:
    for turn in outlast.turns(chat=["task"]):
        asked = model(turn.chat)
        turn.chat += [asked, use(asked)]
        stage.reach(f"turn-{len(turn.chat) // 2}")


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
