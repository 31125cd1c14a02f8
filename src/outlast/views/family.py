"""Which runs a run has started, and how far its fan-outs are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from outlast import cuts, events
from outlast.records import ChildView, MapView, RunView, Status, StoredEvent
from outlast.store.writer import Store
from outlast.views.reading import decode_stored


def with_family(store: Store, view: RunView, rows: Sequence[StoredEvent]) -> RunView:
    """A run with its children and its fan-outs.

    Args:
        rows: its events, oldest first.
    """
    return replace(view, children=children_of(store, view.run_id), maps=_maps(rows))


def children_of(store: Store, run_id: str) -> list[ChildView]:
    """The runs that a run has started, oldest first."""
    return [
        ChildView(
            run_id=str(child),
            key=str(key),
            workflow=str(workflow),
            status=cast(Status, status),
            reason=cast(str | None, reason),
            detail=cast(str | None, detail),
        )
        for child, key, workflow, status, reason, detail in store.read(
            "list_children", parent=run_id
        )
    ]


def _maps(rows: Sequence[StoredEvent]) -> list[MapView]:
    found: dict[str, MapView] = {}
    for row in cuts.split(rows)[0]:
        if row.key is None or not row.kind.startswith("map."):
            continue
        match decode_stored(row):
            case events.MapStarted(total, _, name):
                found[row.key] = MapView(row.key, name, total)
            case events.MapProgressed(done, failed):
                found[row.key] = replace(found[row.key], done=done, failed=failed)
            case events.MapEnded(failed, raised):
                known = found[row.key]
                done = known.done if raised else known.total
                found[row.key] = replace(known, done=done, failed=failed, ended=True)
            case _:
                pass
    return list(found.values())
