"""How a function of the user came to its end."""

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


Ended = Returned | Raised | TimedOut
"""The end of a step's body."""
