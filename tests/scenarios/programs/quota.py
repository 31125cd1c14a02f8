"""A plan, then a model that refuses until the flag `well` is set.

Arguments: the kind of its error, the run's id, and `no-wait` to leave a run that waits.
Point `waits`: the failed attempt is recorded and the wait has begun.
"""

import sys

import outlast
from tests.effects.stage import Stage
from tests.scenarios.ahead import at_each_pause
from tests.scenarios.model_errors import model_error

stage = Stage(sys.argv[1])
stage.follow_clock()
kind, run_id, *flags = sys.argv[2:]
initial = 0 if kind in ("rate", "hour") else 600


@outlast.step
def plan() -> str:
    stage.log("plan")
    return "plan"


@outlast.step(
    effect="read",
    retry=outlast.Retry(attempts=3, initial=initial, maximum=600, jitter="none"),
    breaker=outlast.Breaker(failures=1, window=3600, cooldown=3600),
)
def model(wanted: str) -> str:
    stage.log("model")
    if not stage.has("well"):
        raise model_error(kind)
    return f"{wanted} done"


@outlast.workflow
def flow() -> str:
    return model(plan())


if __name__ == "__main__":
    at_each_pause(lambda: stage.reach("waits"))
    stage.report(
        lambda: outlast.run(flow, run_id=run_id, store=stage.url, wait="no-wait" not in flags)
    )
