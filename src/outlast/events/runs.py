"""What befell a run as a whole."""

from typing import Literal

from msgspec import Raw, field

from outlast.event_parts import ABSENT, ErrorRecord, Forked, Parent
from outlast.events.base import Event
from outlast.records import HoldReason, Identity, Source, Status, Usage


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
    tags: dict[str, str] = field(default_factory=dict)
    library: str = ""
    forked: Forked | None = None
    parent: Parent | None = None


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
    """An operator ended the run for good; what executes it has `grace` seconds to end. `parent` is
    the run together with which it was killed, if it was."""

    kind = "run.killed"
    by: str = ""
    why: str = ""
    grace: float = 5.0
    parent: str = ""


class RunStopped(Event, frozen=True):
    """Evidence: nothing of a killed run is executed any more, `seconds` after the kill, apart from
    `survivors` (in words). `by`: who saw to that. `ended`: what had to be ended from outside."""

    kind = "run.stopped"
    by: Literal["owner", "supervisor", "operator"]
    seconds: float = 0.0
    ended: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)


class RunRevived(Event, frozen=True):
    """An operator took a kill back: the run can go on. `parent` as in `RunKilled`."""

    kind = "run.revived"
    by: str = ""
    parent: str = ""


class RunUndoing(Event, frozen=True):
    """Somebody asked that what the run has done be undone, in reverse order, down to step `to` and
    with it; all of it if that is empty. `after`: the status that the run has again afterwards."""

    kind = "run.undoing"
    to: str = ""
    after: Status = "failed"
    by: str = ""


class RunUndone(Event, frozen=True):
    """Keys of the steps that were undone, and of those that have taken effect and stay."""

    kind = "run.undone"
    undone: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
