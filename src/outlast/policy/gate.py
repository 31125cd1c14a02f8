"""The place where a policy may refuse an attempt before it opens. For now it allows everything."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a gate is asked about."""

    run_id: str
    step: str
    name: str
    number: int
    effect: str


@dataclass(frozen=True, slots=True)
class Allow:
    """The attempt may open."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The attempt may not open; the run is held and `rule` is named."""

    rule: str


class Gate(Protocol):
    """Decides on an attempt before anything of it is written."""

    def __call__(self, attempt: Attempt, /) -> Allow | Deny: ...


def allow_all(attempt: Attempt, /) -> Allow | Deny:
    """The default gate."""
    return Allow()
