"""How a function of the user came to its end."""

import asyncio

from msgspec import Struct


class Returned(Struct, frozen=True):
    """The body returned."""

    value: object


class Raised(Struct, frozen=True):
    """The body raised."""

    exc: Exception


class TimedOut(Struct, frozen=True):
    """The body did not end within so many seconds."""

    seconds: float


class Stopped(Struct, frozen=True):
    """The workflow unwound without a result, since its run must stop."""


class Exiting(BaseException):
    """A SystemExit of the user's code, on its way up to whoever executes the run. In its own form
    it would break the event loop off wherever it leaves a task, and with it all other runs there.

    Attributes:
        exit: what was raised.
    """

    def __init__(self, exit: SystemExit) -> None:
        super().__init__(exit)
        self.exit = exit


def unwrapped(leaving: BaseException) -> BaseException:
    """What has left a body or a workflow, as it was raised there."""
    return leaving.exit if isinstance(leaving, Exiting) else leaving


Ended = Returned | Raised | TimedOut
"""The end of a step's body."""


def as_failure(exc: BaseException) -> Exception | None:
    """What a body has failed with; None if it was left by something else, such as an interrupt.

    Cancellations in a group are the group's own, which ended its other tasks; they do not make an
    interrupt of it.
    """
    if isinstance(exc, BaseExceptionGroup) and not isinstance(exc, Exception):
        exc = exc.split(asyncio.CancelledError)[1] or exc
    return exc if isinstance(exc, Exception) else None
