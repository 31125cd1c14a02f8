"""A step that ends its process, in the way `argv[2]` says, unless the flag `cured` is set."""

import os
import signal
import sys

import outlast
from tests.effects.stage import Stage

stage, way = Stage(sys.argv[1]), sys.argv[2]


@outlast.step
def a() -> str:
    stage.log("a")
    return "A"


@outlast.step
def b() -> str:
    stage.log("b", outlast.current().attempt)
    if stage.has("cured"):
        return "B"
    if way == "exit":
        os._exit(137)
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


@outlast.workflow
def flow() -> list[str]:
    return [a(), b()]


@outlast.workflow
def harmless() -> str:
    return a()


if __name__ == "__main__":
    if way == "harmless":
        stage.report(lambda: outlast.run(harmless, run_id="other", store=stage.url))
    else:
        stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
