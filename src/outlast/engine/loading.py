"""Reading what a resume needs of a journal: all of it, or less where a turn loop goes on.

The saved state of a turn stands for everything that earlier turns did. So of a loop in which a run
stands, only the last saves and what came after them is read, besides what stands around the loop:
a resume takes as long after five thousand turns as after five. `runs.loop_since` says from which
event on there is nothing but that loop; see `journal.extend`.
"""

from collections.abc import Sequence

from msgspec import Struct

from outlast.engine.history import TURNS, key_of
from outlast.events import RunAccepted, TurnSaved, decode
from outlast.journal import first_altered, relink, to_event
from outlast.records import StoredEvent
from outlast.store.base import Row
from outlast.store.writer import Store

Loaded = tuple[list[StoredEvent], StoredEvent | None]
"""Events, oldest first, and the first of them that was altered."""

SAVES = 100
"""How many saves are read at once, on the way back to the last whole record."""


def load(store: Store, run_id: str, loop: str | None = None, since: int = 0) -> Loaded:
    """What a resume needs, oldest first, and the first event of it that was altered.

    Args:
        loop: the turn loop that the run stands in, from event `since` on; all is read if it is left
            out.

    Raises:
        StoreError: the store cannot be read.
        msgspec.DecodeError: a save cannot be read.
    """
    saves = [] if loop is None else _last_saves(store, run_id, loop)
    # What stands before `since` is read as it is, the saves among it too. If none came later, as
    # when something beside the loop happened in its present turn, nothing can be left out.
    saves = [save for save in saves if save.event.seq >= since]
    if not saves:
        rows = [to_event(row) for row in store.read("read_events", run_id=run_id)]
        return rows, first_altered(rows)
    last = saves[-1].event
    before = [to_event(r) for r in store.read("read_events_before", run_id=run_id, seq=since)]
    lives = _linked(store.read("read_events_of_run", run_id=run_id, since=since, until=last.seq))
    after = [to_event(r) for r in store.read("read_events_after", run_id=run_id, seq=last.seq)]
    if any(row.kind == RunAccepted.kind for row in before):
        # Keys of dropped calls that were taken over in those turns are no longer to be had.
        took = store.read("read_taken_over", run_id=run_id, since=since, until=last.seq)
        lives += _linked(took)
    between = sorted([*saves, *lives], key=lambda linked: linked.event.seq)
    altered_one = next((linked.event for linked in between if not linked.intact), None)
    altered = first_altered(before) or altered_one or first_altered([last, *after])
    return [*before, *(linked.event for linked in between), *after], altered


class _Linked(Struct, frozen=True):
    """An event, and whether it is what was once written."""

    event: StoredEvent
    intact: bool


def _last_saves(store: Store, run_id: str, loop: str) -> list[_Linked]:
    """The saves of a loop from its last whole record on, oldest first."""
    found: list[_Linked] = []
    before = 2**62
    while True:
        rows = store.read(
            "read_saves", run_id=run_id, key=key_of(TURNS, loop), before=before, limit=SAVES
        )
        for linked in _linked(rows):
            found.append(linked)
            if not linked.intact or _is_whole(linked.event):
                return found[::-1]
            before = linked.event.seq
        if not rows:
            return []


def _is_whole(stored: StoredEvent) -> bool:
    event = decode(stored.kind, stored.data)
    return isinstance(event, TurnSaved) and event.full


def _linked(rows: Sequence[Row]) -> list[_Linked]:
    """Events that do not follow one another, read along with the hash before each."""
    found = []
    for row in rows:
        event, previous = to_event(row[:-1]), row[-1]
        intact = isinstance(previous, bytes) and relink(previous, event) == event.hash
        found.append(_Linked(event, intact))
    return found
