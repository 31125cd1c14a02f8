"""A step over a client that tries each request three times, alone or inside another step.

Arguments: the server's address and `alone` or `inside`. Waits an hour between two attempts.
Point `waits`: a failed attempt is recorded and the wait has begun.
"""

import sys

import urllib3

import outlast
from tests.effects.stage import Stage
from tests.scenarios.ahead import at_each_pause

stage = Stage(sys.argv[1])
stage.follow_clock()
url, way = sys.argv[2:]
OWN = urllib3.Retry(total=2, status_forcelist=[503], backoff_factor=0)


def retry(attempts: int) -> outlast.Retry:
    return outlast.Retry(attempts=attempts, initial=3600, maximum=3600, jitter="none")


@outlast.step(effect="read", retry=retry(3))
def fetch() -> int:
    with urllib3.PoolManager() as client:
        return client.request("GET", url, retries=OWN).status


@outlast.step(effect="read", retry=retry(2))
def gather() -> int:
    return fetch() + fetch()


@outlast.workflow
def flow() -> int:
    return fetch() if way == "alone" else gather()


if __name__ == "__main__":
    at_each_pause(lambda: stage.reach("waits"))
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
