"""Turns, timers and recorded values: calls of a run that have no body of the user's."""

from msgspec import Raw, field

from outlast.event_parts import Repeat, TurnField
from outlast.events.base import Event


class TurnSaved(Event, frozen=True):
    """State at the start of turn `turn` of the loop named by the key. A field that is left out is
    unchanged since the event before; with `full`, no earlier event is needed. Those have the loop's
    `site`, so that it is among what a resume reads. `repeats`: by the names of the tools."""

    kind = "turn.saved"
    turn: int
    fields: dict[str, TurnField]
    full: bool = True
    site: str = ""
    repeats: dict[str, Repeat] = field(default_factory=dict)


class TimerSet(Event, frozen=True):
    """A durable timer. `due` is in seconds since the epoch."""

    kind = "timer.set"
    name: str
    due: float
    digest: str = ""
    site: str = ""


class TimerFired(Event, frozen=True):
    """The timer's time came."""

    kind = "timer.fired"


class ValueRecorded(Event, frozen=True):
    """A value that cannot be computed again, such as the time."""

    kind = "value.recorded"
    name: str
    value: Raw
    site: str = ""
