"""One step that fails in passing until the flag `works` is set; waits `argv[2]` s between attempts.

Point `workflow-waits`: the failed attempt is recorded and the wait has begun.
"""

import sys
import threading
import time

import outlast
from outlast.world import World
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
seconds = float(sys.argv[2])


@outlast.step(effect="idempotent", retry=outlast.Retry(attempts=3, first=seconds, cap=seconds))
def act() -> str:
    stage.log("act", outlast.current().attempt, time.time(), outlast.idempotency_key())
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
World.random = lambda world: 0.999  # type: ignore[method-assign]  # no jitter

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
