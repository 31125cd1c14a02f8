"""A step that fails for ever in passing, and is tried for 1500 seconds, 600 apart.

Point `waits`: a failed attempt is recorded and the wait has begun.
"""

import sys
import threading

import outlast
from outlast.world import World
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
stage.follow_clock()
RETRY = outlast.Retry(
    attempts=9, initial=600, maximum=600, multiplier=1, jitter="none", budget_seconds=1500
)


@outlast.step(retry=RETRY)
def act() -> None:
    stage.log("act", outlast.current().attempt)
    raise ConnectionResetError


@outlast.workflow
def flow() -> None:
    act()


def pause(world: World, seconds: float, wake: threading.Event | None = None) -> None:
    stage.reach("waits")
    wait(world, seconds, wake)


wait = World.pause
World.pause = pause  # type: ignore[method-assign]

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
