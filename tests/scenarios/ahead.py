"""Children that live in the time that the test has set, by both clocks."""

import time
from collections.abc import Callable

from outlast.world import World
from tests.effects.stage import Stage


def live_ahead(stage: Stage) -> None:
    """Like `Stage.follow_clock`, for what is measured by the boot clock too, such as a cool-down:
    as if the machine had slept meanwhile."""
    stage.follow_clock()
    ahead, boot = World().wall() - time.time(), World.boot
    World.boot = lambda world: boot(world) + ahead  # type: ignore[method-assign]


def at_each_pause(do: Callable[[], object]) -> None:
    """From here on, do something whenever a thread of this process begins to wait for a time."""
    pause = World.pause

    def watched(world: World, seconds: float, wake: object = None) -> None:
        do()
        pause(world, seconds, wake)  # type: ignore[arg-type]

    World.pause = watched  # type: ignore[method-assign]
