"""Signals, questions and approvals: what a run waits for that comes from outside."""

from typing import Literal

from msgspec import Raw

from outlast.event_parts import ABSENT
from outlast.events.base import Event


class WaitOpened(Event, frozen=True):
    """The run waits for a signal of this name, or for the answer to the question of this token
    (`approval`: for leave to open the step of the key). `prompt` is what a person is asked, `shown`
    the fingerprint of all that the answer is bound to, `schema` a JSON Schema of the type that
    is expected; ABSENT if it has none; `type`: where the type is found. `due`: when it times out,
    in seconds since the epoch. `preview`: what is shown along with the prompt."""

    kind = "wait.opened"
    what: Literal["signal", "question", "approval"]
    name: str
    prompt: str = ""
    shown: str = ""
    schema: Raw = ABSENT
    type: str = ""
    due: float | None = None
    digest: str = ""
    preview: str = ""
    site: str = ""


class SignalSent(Event, frozen=True):
    """Somebody sent the run a signal; `value` is plain JSON."""

    kind = "signal.sent"
    name: str
    value: Raw
    by: str = ""


class QuestionAnswered(Event, frozen=True):
    """Somebody answered a question of the run; `value` is plain JSON."""

    kind = "question.answered"
    question: str
    value: Raw
    by: str = ""


class WaitRefused(Event, frozen=True):
    """The signal or answer with the number `source` does not fit what the wait expects: it is set
    aside, and the wait goes on."""

    kind = "wait.refused"
    source: int
    why: str


class WaitEnded(Event, frozen=True):
    """What the wait came to. `value` is the codec's form of what the workflow got; ABSENT after a
    time-out. `source` is the number of the event that brought it."""

    kind = "wait.ended"
    how: Literal["signal", "answer", "denied", "timeout"]
    value: Raw = ABSENT
    source: int = 0
    by: str = ""
    note: str = ""
