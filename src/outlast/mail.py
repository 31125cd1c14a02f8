"""The nouns of signals and questions: what people get to see, and what they say."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's answer: yes or no, and what they said about it."""

    approved: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question that somebody may answer. Times are seconds since the epoch.

    Attributes:
        question: its token: it stands for this question of this run, with what it shows.
        key: of the call that asks; for an approval, of the step that is to be opened.
        prompt: the question; `details`: what is shown along with it, such as the step's arguments.
        due_at: when it times out; None if it does not.
        schema: a JSON Schema of the answer; None if any value may fit.
    """

    question: str
    run_id: str
    workflow: str
    key: str
    what: Literal["question", "approval"]
    prompt: str
    details: str
    asked_at: float
    due_at: float | None
    schema: object


@dataclass(frozen=True, slots=True)
class SignalView:
    """A signal that a run was sent and that no wait of it has delivered.

    Attributes:
        seq: number of its event.
        value: plain JSON data.
        sent_at: in seconds since the epoch.
        note: why it was set aside, if it did not fit the wait that got it.
    """

    seq: int
    name: str
    value: object
    by: str
    sent_at: float
    note: str = ""
