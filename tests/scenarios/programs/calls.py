"""Calls one tool again and again; what each call does is told by its argument.

Arguments: the run's id and, with commas between them, a status of HTTP, `quota`, `bug` or `ok`
each. Returns what the workflow got. Point `called`: all are made, and the run has not ended.
"""

import sys

import outlast
from tests.effects.stage import Stage
from tests.scenarios.ahead import live_ahead

stage = Stage(sys.argv[1])
run_id, calls = sys.argv[2:]


class Http(Exception):
    """What a client raises that got this answer."""

    def __init__(self, status: int, body: object = None) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


@outlast.step(
    retry=outlast.Retry(attempts=1),
    breaker=outlast.Breaker("tool", failures=3, window=3600, cooldown=3600),
)
def tool(what: str) -> str:
    stage.log(what)
    if what == "quota":
        raise Http(429, {"error": {"code": "insufficient_quota"}})
    if what == "bug":
        return {}["no such key"]
    if what != "ok":
        raise Http(int(what))
    return "worked"


def ask(what: str) -> str:
    try:
        return tool(what)
    except outlast.BreakerOpen:
        return "refused"
    except (Http, KeyError):
        return "failed"


@outlast.workflow
def flow(calls: list[str]) -> list[str]:
    results = [ask(what) for what in calls]
    stage.reach("called")
    return results


if __name__ == "__main__":
    live_ahead(stage)
    stage.report(lambda: outlast.run(flow, calls.split(","), run_id=run_id, store=stage.url))
