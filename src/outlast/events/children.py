"""Runs that a run has started, and items of a fan-out."""

from msgspec import Raw

from outlast.event_parts import ABSENT, ErrorRecord
from outlast.events.base import Event
from outlast.records import Status


class ChildStarted(Event, frozen=True):
    """The workflow called another one: that is run `run_id`, created in the same transaction."""

    kind = "child.started"
    run_id: str
    workflow: str
    digest: str = ""
    preview: str = ""
    site: str = ""


class ChildEnded(Event, frozen=True):
    """What the child came to, as its parent sees it: a value (the codec's form) or an error."""

    kind = "child.ended"
    status: Status
    value: Raw = ABSENT
    error: ErrorRecord | None = None


class MapStarted(Event, frozen=True):
    """A fan-out over so many items began, at most `limit` of them at once; `name` is the
    function's."""

    kind = "map.started"
    total: int
    limit: int = 0
    name: str = ""
    site: str = ""


class MapProgressed(Event, frozen=True):
    """So many items of the fan-out have ended, so many of them with an error."""

    kind = "map.progressed"
    done: int
    failed: int = 0


class MapEnded(Event, frozen=True):
    """All items of the fan-out have ended. `raised`: the one whose error the workflow got, as it
    stands in the positions of its calls; empty if it got the results."""

    kind = "map.ended"
    failed: int = 0
    raised: str = ""
