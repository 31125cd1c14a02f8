"""One step that fails in passing until the flag `works` is set; waits ten minutes between attempts,
by the clock that the test sets.

Point `workflow-waits`: the failed attempt is recorded and the wait has begun.
"""

import sys
import threading

import outlast
from outlast.world import World
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
stage.follow_clock()
RETRY = outlast.Retry(attempts=3, initial=600, maximum=600, jitter="none")


@outlast.step(effect="idempotent", retry=RETRY)
def act() -> str:
    now = World().wall()
    stage.log("act", outlast.current().attempt, now, outlast.idempotency_key())
    if not stage.has("works"):
        raise ConnectionResetError
    return "done"


@outlast.workflow
def flow() -> str:
    return act()


def pause(world: World, seconds: float, wake: threading.Event | None = None) -> None:
    stage.reach("workflow-waits")
    wait(world, seconds, wake)


wait = World.pause
World.pause = pause  # type: ignore[method-assign]

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
