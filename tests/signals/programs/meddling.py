"""A tool that answers a question by way of a process that carries no mark."""

import os
import shlex
import sys

import outlast
from tests.effects.stage import Stage

STAGE = Stage(sys.argv[1])


@outlast.step
def tool() -> int:
    words = [sys.executable, "-m", "outlast", "answer", "run", "--yes", "--store", STAGE.url]
    return os.waitstatus_to_exitcode(os.system(f"{shlex.join(words)} >&2"))


@outlast.workflow
def agent() -> int:
    return tool()


if __name__ == "__main__":
    STAGE.report(lambda: outlast.run(agent, run_id="agent", store=STAGE.url))
