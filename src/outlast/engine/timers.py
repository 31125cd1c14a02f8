"""Waiting until a time, by clocks that may step or stop."""

from outlast.world import World


class Alarm:
    """When a wait is over.

    `due` is a wall-clock time, since it must mean the same to the next process. Within one process
    the boot clock bounds the wait as well, so that a wall clock set back an hour does not make it
    an hour longer.
    """

    __slots__ = ("_boot_due", "_due", "_world")

    def __init__(self, due: float, world: World) -> None:
        self._world = world
        self._due = due
        self._boot_due = world.boot() + max(0.0, due - world.wall())

    def remaining(self) -> float:
        """Seconds still to wait, never negative, by whichever clock is ahead."""
        left = min(self._due - self._world.wall(), self._boot_due - self._world.boot())
        return max(0.0, left)
