"""The kinds of events in a journal and what each one carries.

An event's `data` is JSON. Values of the user's program stand in it as `Raw`: JSON that the codec
made and that only the codec reads. Fields may be added later, with a default; none is removed.
"""

from typing import ClassVar, Literal

import msgspec
from msgspec import Raw

from outlast.event_parts import ABSENT as ABSENT
from outlast.event_parts import NOTHING as NOTHING
from outlast.event_parts import SETTLED as SETTLED
from outlast.event_parts import ErrorRecord as ErrorRecord
from outlast.event_parts import Forked as Forked
from outlast.event_parts import Repeat as Repeat
from outlast.event_parts import TurnField as TurnField
from outlast.records import Effect, HoldReason, Identity, Source, Usage


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all event payloads. `kind` is the value of the column of that name."""

    kind: ClassVar[str]

    def encode(self) -> bytes:
        """The event's data. Lone surrogates in its texts (messages, reasons: words for people) are
        escaped, so that whatever a tool or an operator says can be recorded."""
        try:
            return _ENCODER.encode(self)
        except UnicodeEncodeError:
            return _ENCODER.encode(_escaped(self))


_ENCODER = msgspec.json.Encoder()


def _escaped(value: msgspec.Struct) -> msgspec.Struct:
    fields: dict[str, object] = {}
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if isinstance(item, str):
            fields[name] = escape_surrogates(item)
        elif isinstance(item, msgspec.Struct):
            fields[name] = _escaped(item)
    return msgspec.structs.replace(value, **fields)


def escape_surrogates(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes its backslash escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class RunCreated(Event, frozen=True):
    """The run exists. `args` holds the arguments, `digest` their fingerprint. In a fork, events of
    its source follow."""

    kind = "run.created"
    uid: str
    workflow: str
    args: Raw
    digest: str
    trace_id: str
    source: Source | None = None
    tags: dict[str, str] = {}
    library: str = ""
    forked: Forked | None = None


class RunClaimed(Event, frozen=True):
    """A process became the owner under a new epoch; `crash` if the one before it had died.
    `source` if it found the workflow in another place than the one that the run knew."""

    kind = "run.claimed"
    owner: Identity
    previous: Identity | None = None
    crash: bool = False
    source: Source | None = None


class RunReleased(Event, frozen=True):
    """The owner gave the run up, unfinished, without a crash."""

    kind = "run.released"
    why: str


class RunHeld(Event, frozen=True):
    """The run needs somebody; `fix` says what lets it go on."""

    kind = "run.held"
    reason: HoldReason
    detail: str
    fix: str = ""
    step: str | None = None


class RunResumed(Event, frozen=True):
    """Somebody asked a held run to go on; crash counts start again from here."""

    kind = "run.resumed"
    by: str = ""


class RunAccepted(Event, frozen=True):
    """Somebody decided that the code at hand counts: what was recorded from `step` on, which began
    at event `since`, counts no longer (`cuts`)."""

    kind = "run.accepted"
    step: str
    since: int
    by: str = ""


class RunBudgeted(Event, frozen=True):
    """The run's limits, as JSON (`policy.budget.Limits`): `declared` by the code, which may have
    changed since, or `added` by an operator. `charged`: what an operator says that something of
    unknown cost has cost, or the upper bound `on_unknown` that the code has since. `override`: it
    was given for this run, in place of the code's."""

    kind = "run.budgeted"
    declared: Raw = ABSENT
    on_unknown: Usage | None = None
    override: bool = False
    added: Raw = ABSENT
    charged: Usage | None = None
    by: str = ""


class RunPatched(Event, frozen=True):
    """What `outlast.patched(name)` answers in this run, from its first question on."""

    kind = "run.patched"
    name: str
    active: bool


class RunCompleted(Event, frozen=True):
    """The workflow returned."""

    kind = "run.completed"
    result: Raw


class RunFailed(Event, frozen=True):
    """The workflow raised."""

    kind = "run.failed"
    error: ErrorRecord


class RunKilled(Event, frozen=True):
    """An operator ended the run for good."""

    kind = "run.killed"
    by: str = ""
    why: str = ""


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
    idempotency key this one has taken over."""

    kind = "step.started"
    attempt: int = 1
    effect: Effect = "assumed"
    digest: str = ""
    preview: str = ""
    site: str = ""
    variant: int = 0
    alias: str = ""


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
    """What the reconcile function answered: `done`, `not-done` or `unknown`."""

    kind = "step.reconciled"
    answer: Literal["done", "not-done", "unknown"]
    why: str = ""


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


class TurnSaved(Event, frozen=True):
    """State at the start of turn `turn` of the loop named by the key. A field that is left out is
    unchanged since the event before; with `full`, no earlier event is needed. Those have the loop's
    `site`, so that it is among what a resume reads. `repeats`: by the names of the tools."""

    kind = "turn.saved"
    turn: int
    fields: dict[str, TurnField]
    full: bool = True
    site: str = ""
    repeats: dict[str, Repeat] = {}


class TimerSet(Event, frozen=True):
    """A durable timer. `due` is in seconds since the epoch."""

    kind = "timer.set"
    name: str
    due: float
    digest: str = ""
    site: str = ""


class TimerFired(Event, frozen=True):
    """The timer's time came."""

    kind = "timer.fired"


class ValueRecorded(Event, frozen=True):
    """A value that cannot be computed again, such as the time."""

    kind = "value.recorded"
    name: str
    value: Raw
    site: str = ""


class BreakerOpened(Event, frozen=True):
    """Of the store as a whole, as the next ones: the breaker named by the key let nobody through
    from now on, until `until`. `trips` so far, without a success in between; the failure of step
    `step` was the last one."""

    kind = "breaker.opened"
    until: float
    trips: int
    fault: str = ""
    run_id: str = ""
    step: str = ""


class BreakerProbed(Event, frozen=True):
    """An attempt took one of the places of a half-open breaker."""

    kind = "breaker.probed"
    run_id: str
    step: str
    attempt: int


class BreakerClosed(Event, frozen=True):
    """The attempts that were let through succeeded."""

    kind = "breaker.closed"
    run_id: str = ""
    step: str = ""


class BreakerReset(Event, frozen=True):
    """An operator closed it."""

    kind = "breaker.reset"
    by: str = ""


class BreakerTripped(Event, frozen=True):
    """An operator opened it."""

    kind = "breaker.tripped"
    until: float
    by: str = ""


class BreakerDeclared(Event, frozen=True):
    """The settings of a breaker, as JSON (`policy.breaker.Breaker`), and the step that has them:
    the first ones, or new ones after a change of the code."""

    kind = "breaker.declared"
    settings: Raw
    step: str


ALL: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__subclasses__()}

_DECODERS = {kind: msgspec.json.Decoder(cls) for kind, cls in ALL.items()}


def decode(kind: str, data: bytes) -> Event:
    """Read one event's data.

    Raises:
        msgspec.DecodeError, KeyError: the bytes or the kind are not ours (a newer library, or a
            damaged store).
    """
    return _DECODERS[kind].decode(data)
