"""What runs ask, and signals that they have not taken."""

from dataclasses import replace
from typing import Literal, cast

import msgspec

from outlast import events
from outlast.events import decode
from outlast.mail import QuestionView, SignalView
from outlast.records import RunView
from outlast.store.base import Row
from outlast.store.writer import Store


def open_questions(store: Store, run_id: str | None = None) -> list[QuestionView]:
    """Questions that somebody may answer now, of all runs or of one, the oldest first."""
    rows = store.read("list_questions", run_id=run_id, now=store.world.wall())
    return [_question(row) for row in rows]


def with_mail(store: Store, view: RunView) -> RunView:
    """A run with the questions that it asks and the signals that it has not taken."""
    rows = store.read("list_signals", run_id=view.run_id)
    questions = open_questions(store, view.run_id)
    return replace(view, questions=questions, signals=[_signal(row) for row in rows])


def _question(row: Row) -> QuestionView:
    token, run_id, workflow, key, what, asked_at, due_at, data = row
    event = decode(events.WaitOpened.kind, cast(bytes, data))
    assert isinstance(event, events.WaitOpened)
    schema = bytes(event.schema)
    return QuestionView(
        question=str(token),
        run_id=str(run_id),
        workflow=str(workflow),
        key=str(key),
        what=cast(Literal["question", "approval"], what),
        prompt=event.prompt,
        details=event.preview,
        asked_at=cast(float, asked_at),
        due_at=cast(float | None, due_at),
        schema=msgspec.json.decode(schema) if schema else None,
    )


def _signal(row: Row) -> SignalView:
    seq, name, note, data, at = row
    event = decode(events.SignalSent.kind, cast(bytes, data))
    assert isinstance(event, events.SignalSent)
    return SignalView(
        seq=cast(int, seq),
        name=str(name),
        value=msgspec.json.decode(event.value),
        by=event.by,
        sent_at=cast(float, at),
        note=str(note or ""),
    )
