"""What befell the steps of a run."""

from typing import Literal

from msgspec import Raw

from outlast.event_parts import ABSENT, NOTHING, ErrorRecord
from outlast.events.base import Event
from outlast.records import Effect, Usage


class PolicyDecided(Event, frozen=True):
    """What the policy gate said about an attempt before it opened (nothing is written if it
    simply allowed it)."""

    kind = "policy.decided"
    decision: Literal["deny"]
    rule: str = ""


class StepStarted(Event, frozen=True):
    """An attempt opened. `digest` is the fingerprint of its arguments (empty if they are not
    compared), `preview` a short text, `site` the file and line of the call. The step's name stands
    in its key, and its idempotency key follows from that and from `variant` (`journal`), which
    tells apart calls under one key that are made with other arguments after an operator dropped
    the first; or from `alias` in the place of its key: that of a dropped call like this one, whose
    idempotency key this one has taken over. `args`: the bound arguments, whole, where a
    compensation needs them; `undo`: where it is found, as MODULE:NAME of its step."""

    kind = "step.started"
    attempt: int = 1
    effect: Effect = "assumed"
    digest: str = ""
    preview: str = ""
    site: str = ""
    variant: int = 0
    alias: str = ""
    args: Raw = ABSENT
    undo: str = ""


class StepRefused(Event, frozen=True):
    """An attempt did not open, since a breaker was open; it counts as a call and not as an
    attempt. The workflow got `error`, or it is tried again at `retry_at`. The other fields are as
    in `StepStarted`, which may be missing."""

    kind = "step.refused"
    breaker: str
    until: float
    fault: str = ""
    error: ErrorRecord | None = None
    retry_at: float | None = None
    effect: Effect = "assumed"
    digest: str = ""
    preview: str = ""
    site: str = ""


class StepCompleted(Event, frozen=True):
    """An attempt returned."""

    kind = "step.completed"
    value: Raw
    attempt: int = 1


class StepFailed(Event, frozen=True):
    """An attempt failed and this is known. `final`: the workflow got the error. Otherwise another
    attempt may start at `retry_at`, after a wait of `wait` seconds. `inner` names a client library
    that had tried again by itself."""

    kind = "step.failed"
    attempt: int
    error: ErrorRecord
    final: bool
    retry_at: float | None = None
    wait: float | None = None
    inner: str = ""


class StepCharged(Event, frozen=True):
    """What an attempt costs: reported by its body while it runs, or settled with its end. Of what
    is not known, `unknown` says why."""

    kind = "step.charged"
    attempt: int
    cost: Usage
    unknown: str = ""
    settled: bool = False


class StepInterrupted(Event, frozen=True):
    """An attempt ended with its process. `crash` is false after an orderly release."""

    kind = "step.interrupted"
    attempt: int
    crash: bool


class StepAbandoned(Event, frozen=True):
    """Workflow code cancelled the call while it ran."""

    kind = "step.abandoned"
    attempt: int


class StepInDoubt(Event, frozen=True):
    """A `once` attempt ended in a way that does not tell whether its effect took place. `fault` is
    the class that its error gets should it turn out that it did not."""

    kind = "step.in_doubt"
    attempt: int
    why: str
    error: ErrorRecord | None = None
    fault: str = ""


class StepReconciled(Event, frozen=True):
    """What the reconcile function answered: `done`, `not-done` or `unknown`. `undoing`: it was
    asked since the run is undone, and the workflow is not concerned: it has seen its call end."""

    kind = "step.reconciled"
    answer: Literal["done", "not-done", "unknown"]
    why: str = ""
    undoing: bool = False


class StepSettled(Event, frozen=True):
    """What an operator decided: `done` (with a value as plain JSON), `not-done` or `failed`."""

    kind = "step.settled"
    decision: Literal["done", "not-done", "failed"]
    value: Raw = NOTHING
    text: str = ""
    by: str = ""


class StepLate(Event, frozen=True):
    """How an attempt ended, learnt when that could not be recorded as its outcome: evidence. It is
    never replayed as such, but it can settle a doubt."""

    kind = "step.late"
    attempt: int
    value: Raw = ABSENT
    error: ErrorRecord | None = None
