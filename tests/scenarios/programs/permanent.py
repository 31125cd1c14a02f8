"""One request that can never succeed, in several ways; its argument names the way.

Points around the commit of `step.failed`, see cuts.py.
"""

import sys

import outlast
from tests.effects.stage import Stage
from tests.scenarios.cuts import watch_commits
from tests.scenarios.model_errors import model_error

stage = Stage(sys.argv[1])
kind = sys.argv[2]


class Rejected(ConnectionError):
    """What the tool raises for good, though its class looks like a passing trouble."""


class Odd(Exception):
    """An exception of which nobody knows anything."""


@outlast.step(retry=outlast.Retry(attempts=3, initial=0, stop_on=[Rejected]))
def act() -> None:
    stage.log("act")
    match kind:
        case "marked":
            raise Rejected("the account was closed")
        case "terminal":
            raise outlast.Terminal("the account was closed")
        case "unknown":
            raise Odd("the account was closed")
    raise model_error(kind)


@outlast.workflow
def flow() -> None:
    act()


if __name__ == "__main__":
    watch_commits(stage)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
