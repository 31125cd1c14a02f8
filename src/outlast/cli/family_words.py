"""Children and fan-outs of a run, in words."""

from collections.abc import Iterator

from rich.text import Text

from outlast import events
from outlast.cli.output import printable
from outlast.cli.wording import COLOURS
from outlast.records import ChildView, MapView, RunView

LISTED = 20
"""Children that `show` names at most, those that have completed last; and fan-outs."""


def family_lines(view: RunView) -> Iterator[Text]:
    """The runs that a run has started, those first that somebody may have to look at."""
    for one in view.maps[:LISTED]:
        yield Text(f"{printable(one.key)}  {printable(map_words(one))}")
    order = sorted(view.children, key=lambda child: child.status == "completed")
    for child in order[:LISTED]:
        yield _child(child)
    if len(order) > LISTED:
        left = len(order) - LISTED
        yield Text(f"and {left} more child run{'' if left == 1 else 's'}", style="dim")


def map_words(one: MapView) -> str:
    """How far a fan-out is, such as `map 12/50, 1 failed`."""
    failed = f", {one.failed} failed" if one.failed else ""
    return f"map {one.done}/{one.total}{failed}"


def _child(child: ChildView) -> Text:
    line = Text(f"child {printable(child.run_id)}  {printable(child.workflow)}  ")
    said = f" ({child.reason})" if child.status == "held" and child.reason else ""
    line.append(child.status + printable(said), style=COLOURS[child.status])
    if child.status != "completed" and child.detail:
        first = child.detail.split("\n")[0]
        line.append(f": {printable(first)}")
    return line


def of_family(event: events.Event) -> str:
    """An event of a child or a fan-out, on one line; nothing if it is another one."""
    match event:
        case events.ChildStarted():
            given = f"({event.preview})" if event.preview else ""
            return f"{event.workflow}{given} is run {event.run_id}"
        case events.ChildEnded():
            error = f": {event.error.type}: {event.error.message}" if event.error else ""
            return f"{event.status}{error}"
        case events.MapStarted():
            return f"{event.name} over {event.total} items, at most {event.limit} at a time"
        case events.MapProgressed():
            return f"{event.done} items have ended, {event.failed} of them with an error"
        case events.MapEnded():
            early = f", by the error of item {event.raised}" if event.raised else ""
            return f"ended{early}, {event.failed} items with an error"
        case _:
            return ""
