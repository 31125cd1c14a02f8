"""Records made by hand for the tests of the command line."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rich.text import Text

from outlast.records import RunView, StepView, StoredEvent

STARTED = 1_700_000_000.0
"""When every run here was created."""


def step(key: str, **fields: Any) -> StepView:
    """A step that completed in the second after the run's start, unless fields say otherwise."""
    base = StepView(
        key=key,
        name=key.partition("#")[0],
        status="completed",
        attempts=1,
        effect="read",
        started=STARTED,
        ended=STARTED + 1,
        worked=1.0,
    )
    return replace(base, **fields)


def run(**fields: Any) -> RunView:
    """A run `ticket-81` that completed after ten seconds, unless fields say otherwise."""
    base = RunView(
        run_id="ticket-81",
        workflow="desk",
        status="completed",
        reason=None,
        interrupted=False,
        result=None,
        error=None,
        detail=None,
        created_at=STARTED,
        updated_at=STARTED + 10,
        due_at=None,
        trace_id="ab" * 16,
        tags={},
        epoch=1,
        seq=9,
        head="cd" * 32,
    )
    done = sum(step.status == "completed" for step in fields.get("steps", []))
    return replace(base, **{"finished": done, **fields})


def event(seq: int, kind: str, key: str | None = None, data: bytes = b"{}") -> StoredEvent:
    return StoredEvent("ticket-81", seq, kind, key, data, STARTED + seq, 1, bytes([seq]) * 32)


DOUBT = run(
    status="held",
    reason="in-doubt",
    detail="send_reply#3 may or may not have happened",
    steps=[
        step("think#0"),
        step(
            "send_reply#3",
            status="in-doubt",
            effect="once",
            ended=None,
            preview="to='ann@example.org', text='Your refund'",
            idempotency_key="5f1c-key",
            error="its process ended while it ran",
            reconciled="unknown: the mail server did not answer",
        ),
    ],
)
"""A run held because it is not known whether a mail went out."""


def plain(lines: Iterable[Text | str]) -> list[str]:
    """Rendered lines without their colours."""
    return [line if isinstance(line, str) else line.plain for line in lines]
