"""Asks with an hour's time, by the clock that the test sets."""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
stage.follow_clock()


@outlast.workflow
def flow() -> str:
    return outlast.ask("In time?", str, timeout=3600).result()


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, wait=False))
