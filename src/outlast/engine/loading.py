"""Reading what a resume needs of a journal: all of it, or less where a turn loop goes on.

The saved state of a turn stands for everything that earlier turns did. So of a loop in which a run
stands, only the last saves and what came after them is read, besides what stands around the loop:
a resume takes as long after five thousand turns as after five. `runs.loop_since` says from which
event on there is nothing but that loop; see `journal.extend`.
"""

from collections.abc import Sequence

from outlast.engine.history import TURNS, key_of
from outlast.events import TurnSaved, decode
from outlast.journal import first_altered, relink, to_event
from outlast.records import StoredEvent
from outlast.store.base import Row
from outlast.store.writer import Store

SAVES = 100
"""How many saves are read at once, on the way back to the last whole record."""


def load(
    store: Store, run_id: str, loop: str | None, since: int
) -> tuple[list[StoredEvent], StoredEvent | None]:
    """What a resume needs, oldest first, and the first event of it that was altered.

    Args:
        loop: the turn loop that the run stands in, from event `since` on.

    Raises:
        StoreError: the store cannot be read.
        msgspec.DecodeError: a save cannot be read.
    """
    saves = [] if loop is None else _last_saves(store, run_id, loop)
    # What stands before `since` is read as it is, the saves among it too. If none came later, as
    # when something beside the loop happened in its present turn, nothing can be left out.
    saves = [save for save in saves if to_event(save[:-1]).seq >= since]
    if not saves:
        rows = [to_event(row) for row in store.read("read_events", run_id=run_id)]
        return rows, first_altered(rows)
    last = to_event(saves[-1][:-1])
    before = [to_event(r) for r in store.read("read_events_before", run_id=run_id, seq=since)]
    lives = store.read("read_events_of_run", run_id=run_id, since=since, until=last.seq)
    after = [to_event(r) for r in store.read("read_events_after", run_id=run_id, seq=last.seq)]
    between = sorted([*saves, *lives], key=lambda row: row[1] or 0)
    altered = first_altered(before) or _altered_one(between) or first_altered([last, *after])
    return [*before, *(to_event(row[:-1]) for row in between), *after], altered


def _last_saves(store: Store, run_id: str, loop: str) -> list[Row]:
    """The saves of a loop from its last whole record on, oldest first."""
    found: list[Row] = []
    before = 2**62
    while True:
        rows = store.read(
            "read_saves", run_id=run_id, key=key_of(TURNS, loop), before=before, limit=SAVES
        )
        for row in rows:
            found.append(row)
            stored = to_event(row[:-1])
            if _altered_one([row]) is not None or _is_whole(stored):
                return found[::-1]
            before = stored.seq
        if not rows:
            return []


def _is_whole(stored: StoredEvent) -> bool:
    event = decode(stored.kind, stored.data)
    return isinstance(event, TurnSaved) and event.full


def _altered_one(rows: Sequence[Row]) -> StoredEvent | None:
    """The first of events that do not follow one another, each with the hash before it, that is not
    what was once written."""
    for row in rows:
        event, previous = to_event(row[:-1]), row[-1]
        if not isinstance(previous, bytes) or relink(previous, event) != event.hash:
            return event
    return None
