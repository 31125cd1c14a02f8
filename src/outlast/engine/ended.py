"""How a function of the user came to its end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised."""

    exc: Exception


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The body did not end within so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """The workflow unwound without a result, since its run must stop."""


Ended = Returned | Raised | TimedOut
"""The end of a step's body."""
