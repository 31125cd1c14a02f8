"""Rows of the store as records."""

import msgspec

from outlast import events
from outlast.errors import StoreError
from outlast.journal import to_event, to_run
from outlast.records import RunRow, StoredEvent
from outlast.store.writer import Store


def read_run(store: Store, run_id: str) -> RunRow | None:
    """The row of a run; None if there is none."""
    rows = store.read("read_run", run_id=run_id)
    return to_run(rows[0]) if rows else None


def read_events(store: Store, run_id: str) -> list[StoredEvent]:
    """All events of a run, oldest first."""
    return [to_event(row) for row in store.read("read_events", run_id=run_id)]


def decode_stored(row: StoredEvent) -> events.Event:
    """What an event says.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return events.decode(row.kind, row.data)
    except (KeyError, msgspec.DecodeError) as problem:
        raise StoreError(
            f"event {row.seq} ({row.kind}) of run {row.run_id} cannot be read: it was altered, or "
            f"a newer outlast wrote it; check with: outlast verify {row.run_id}",
            "damaged",
        ) from problem
