"""A program that somebody changed while its run was interrupted. `argv[2]` says how.

Point: `in-c`.
"""

import sys
from typing import Any

import outlast
from tests.effects.stage import Stage

stage, variant = Stage(sys.argv[1]), sys.argv[2]


def body(name: str, extra: int) -> str:
    stage.log(name, extra)
    if name == "c":
        stage.reach("in-c")
    return f"{name}{extra}"


def made(name: str) -> Any:
    def act(extra: int) -> str:
        return body(name, extra)

    return outlast.step(act, name=name, effect="idempotent")


a, b, c, x = made("a"), made("b"), made("c"), made("x")
CALLS = {
    "original": [(a, 1), (b, 1), (c, 1)],
    "insert": [(x, 1), (a, 1), (b, 1), (c, 1)],
    "rename": [(a, 1), (x, 1), (c, 1)],
    "swap": [(b, 1), (a, 1), (c, 1)],
    "delete": [(a, 1), (c, 1)],
    "arguments": [(a, 1), (b, 2), (c, 1)],
}


@outlast.workflow
def flow() -> list[str]:
    return [step(extra) for step, extra in CALLS[variant]]


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
