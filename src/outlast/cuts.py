"""Which events of a journal count. A journal only grows, so what an operator drops stays in it.

`run.accepted` says that the code at hand counts from some step on. Calls are cut, not events: a
call that began before that step keeps its outcome, even one that was recorded later, and one that
began at the step or after it is as if it had never been made.
"""

from collections.abc import Iterable, Sequence

from outlast import events
from outlast.records import StoredEvent

TURNS = "turns"
"""The name in the key of a turn loop."""

UNDO = "u."
"""What the position of a compensation begins with, before that of the step that it undoes. No scope
of a workflow begins with it, so these calls stand outside the workflow's own numbering."""

DECISIONS = frozenset(
    {
        events.TurnSaved.kind,
        events.StepAbandoned.kind,
        events.RunPatched.kind,
        events.MapProgressed.kind,
        events.MapEnded.kind,
    }
)
"""What a workflow did because of all that it knew by then. Behind the cut it goes, whichever call
it belongs to: a cancellation that a dropped result had brought about may never come again, and a
fan-out ends anew with what its dropped items come to."""


def split(rows: Iterable[StoredEvent]) -> tuple[list[StoredEvent], list[StoredEvent]]:
    """The events of a run that count and those that were dropped, both oldest first.

    Args:
        rows: the run's events, oldest first.
    """
    todo = list(rows)
    if not any(row.kind == events.RunAccepted.kind for row in todo):
        return todo, []
    kept: list[StoredEvent] = []
    gone: list[StoredEvent] = []
    dropped_at: dict[str | None, int] = {}
    for row in todo:
        # An owner that had lost the run may still tell how a call ended that counts no longer.
        if row.kind == events.StepLate.kind and row.epoch <= dropped_at.get(row.key, -1):
            gone.append(row)
            continue
        kept.append(row)
        if row.kind == events.RunAccepted.kind:
            accepted = events.decode(row.kind, row.data)
            assert isinstance(accepted, events.RunAccepted)
            kept, now = cut(kept, accepted.since)
            dropped_at |= dict.fromkeys((e.key for e in whole_calls(kept, now)), row.epoch)
            gone += now
    return kept, gone


def cut(rows: Iterable[StoredEvent], since: float) -> tuple[list[StoredEvent], list[StoredEvent]]:
    """Events that stay and events that go if everything from event number `since` on is dropped.

    Args:
        rows: events that count, oldest first, from the run's first one on.
    """
    began: dict[str | None, int] = {}
    kept: list[StoredEvent] = []
    gone: list[StoredEvent] = []
    for row in rows:
        before = began.setdefault(row.key, row.seq) < since
        stays = row.seq < since or (before and row.kind not in DECISIONS)
        (kept if stays else gone).append(row)
    return kept, gone


def whole_calls(kept: Sequence[StoredEvent], gone: Iterable[StoredEvent]) -> list[StoredEvent]:
    """Of the events that go, those of calls of which nothing stays."""
    left = {row.key for row in kept}
    return [row for row in gone if row.key not in left]


def first_of(rows: Iterable[StoredEvent], step: str) -> int | None:
    """Number of the event with which the call of that key begins; that of a turn loop may be one
    in its first turn. None if there is no such call."""
    name, _, position = step.rpartition("#")
    inside = f"{position}.t" if name == TURNS else None
    for row in rows:
        if row.key is None:
            continue
        if row.key == step or (inside and row.key.rpartition("#")[2].startswith(inside)):
            return row.seq
    return None
