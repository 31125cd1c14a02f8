"""A model asks for a tool, then answers. `argv[2]`: effect of the tool. Point: `in-tool`."""

import sys
from typing import Any, cast

import outlast
from outlast.records import Effect
from tests.effects.stage import Stage
from tests.scenarios.cuts import watch_commits

stage, effect = Stage(sys.argv[1]), cast(Effect, sys.argv[2])


@outlast.step(effect="read")
def model(chat: list[dict[str, Any]]) -> dict[str, Any]:
    stage.log("model", len(chat))
    if len(chat) < 3:
        return {"role": "assistant", "call": f"call-{len(chat)}"}
    return {"role": "assistant", "text": "done"}


def use(call: str) -> str:
    stage.log("tool", call)
    stage.reach("in-tool")
    return f"result of {call}"


tool = outlast.step(
    use, name="tool", effect=effect, in_doubt="raise" if effect == "once" else "hold"
)


@outlast.workflow
def flow() -> list[dict[str, Any]]:
    for turn in outlast.turns(chat=[{"role": "user"}], max=5):
        reply = model(turn.chat)
        turn.chat.append(reply)
        if "call" not in reply:
            return list(turn.chat)
        try:
            result = tool(reply["call"])
        except outlast.InDoubt:
            result = "in doubt"
        turn.chat.append({"role": "tool", "call": reply["call"], "result": result})
    return []


if __name__ == "__main__":
    watch_commits(stage)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
