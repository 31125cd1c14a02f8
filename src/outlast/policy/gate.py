"""The place where a policy may refuse an attempt before it opens. For now it allows everything."""

from typing import Protocol

from msgspec import Struct


class Attempt(Struct, frozen=True):
    """What a gate is asked about."""

    run_id: str
    step: str
    name: str
    number: int
    effect: str


class Allow(Struct, frozen=True):
    """The attempt may open."""


class Deny(Struct, frozen=True):
    """The attempt may not open; the run is held and `rule` is named."""

    rule: str


class Gate(Protocol):
    """Decides on an attempt before anything of it is written."""

    def __call__(self, attempt: Attempt, /) -> Allow | Deny: ...


def allow_all(attempt: Attempt, /) -> Allow | Deny:
    """The default gate."""
    return Allow()
