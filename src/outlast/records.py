"""The nouns every layer shares: statuses, identities, outcomes. Frozen, without behaviour."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Generic, Literal, TypeVar

import msgspec

from outlast.errors import NotDone
from outlast.mail import QuestionView, SignalView

T = TypeVar("T")

Status = Literal["queued", "running", "waiting", "held", "completed", "failed", "killed"]
"""The seven words for a run. Only the last three are final."""

FINAL: frozenset[Status] = frozenset({"completed", "failed", "killed"})

HoldReason = Literal[
    "paused",
    "in-doubt",
    "over-budget",
    "diverged",
    "crash-loop",
    "looping",
    "stuck",
    "unreadable",
    "undo-failed",
]

Effect = Literal["read", "idempotent", "once", "assumed"]
"""What repeating a step does outside. `assumed` is an undeclared step: treated as idempotent,
but a repeat is shown as "may have happened twice"."""

StepStatus = Literal["completed", "failed", "running", "in-doubt", "interrupted", "abandoned"]


class Identity(msgspec.Struct, frozen=True):
    """Who holds a run: one claim of one process, told apart from any later process.

    Attributes:
        host: name of the machine.
        boot: id of the machine's current boot.
        namespace: the pid namespace the pid belongs to.
        pid: process id.
        started: raw start time of the process (clock ticks), so that a reused pid is noticed.
        nonce: random, one per claim.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int
    nonce: str


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What something costs.

    Attributes:
        usd: US dollars.
        tokens: tokens of a model, in and out together.

    None is not known, which is not nothing.
    """

    usd: Decimal | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A reconcile function's answer: the effect did take place, and this is its result."""

    value: T


@dataclass(frozen=True, slots=True)
class Unknown:
    """A reconcile function's answer: it cannot be told whether the effect took place."""

    why: str = ""


Outcome = Done[T] | NotDone | Unknown
"""What a reconcile function returns."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run's workflow was found, so that `outlast resume ID` needs nothing else.

    Attributes:
        file: absolute path of the Python file, or None for an importable module.
        module: dotted name of the module.
        name: qualified name of the workflow in it.
    """

    file: str | None
    module: str
    name: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of table `runs`: the state of a run as its journal leaves it.

    Times are seconds since the epoch, but `lease_boot` counts seconds since the boot that
    `owner` names, so that a suspended machine or a stepped clock does not stretch a lease.
    `parent`: the run whose workflow called this one; `root`: the run at the top, whose account they
    share. None for a run that nobody called.
    """

    run_id: str
    uid: str
    workflow: str
    source: Source | None
    digest: str
    status: Status
    reason: str | None
    detail: str | None
    tags: dict[str, str]
    trace_id: str
    created_at: float
    updated_at: float
    due_at: float | None
    seq: int
    head: bytes
    epoch: int
    owner: Identity | None
    lease_wall: float | None
    lease_boot: float | None
    parent: str | None = None
    root: str | None = None


class StoredEvent(msgspec.Struct, frozen=True):
    """One row of table `events`."""

    run_id: str
    seq: int
    kind: str
    key: str | None
    data: bytes
    at: float
    epoch: int
    hash: bytes


UNSURE = frozenset({"done-not-storable", "unknown-outcome"})
"""Faults that do not say that nothing happened."""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as an operator sees it. `started` and `ended` are seconds since the epoch.

    Attributes:
        worked: seconds that its attempts took, without what lay between them.
        unmeasured: attempts whose process died, so that nobody knows how long they took; they
            count nothing in `worked`.
        repeated: an undeclared step was tried again, so it may have happened twice.
        refusals: how often a breaker did not let it be called.
        inner: a client library beneath it that tried again by itself, on top of `attempts`.
        cost: what its attempts have cost; None if nothing was charged for it.
        fault_reason: why its last error is of the class `fault`, in words.
        breaker: name of the breaker that did not let it be called the last time; empty if it was.
        retry_at: when it is tried again, in seconds since the epoch; None unless it waits for that.
        reconciled: what its reconcile function answered, such as `done`, or what an operator
            decided, such as `settled done by ann`.
        late: what came after its attempt could no longer be recorded, such as `a result`: evidence,
            which settles a doubt and is never replayed.
    """

    key: str
    name: str
    status: StepStatus
    attempts: int
    effect: Effect
    started: float
    ended: float | None
    preview: str = ""
    idempotency_key: str = ""
    fault: str | None = None
    error: str | None = None
    repeated: bool = False
    reconciled: str | None = None
    worked: float = 0.0
    unmeasured: int = 0
    refusals: int = 0
    inner: str = ""
    cost: Usage | None = None
    fault_reason: str = ""
    breaker: str = ""
    retry_at: float | None = None
    late: str | None = None

    @property
    def let_fail(self) -> bool:
        """Whether an operator decided that it fails, which does not say that it did not happen."""
        return self.status == "failed" and (self.reconciled or "").startswith("settled failed")

    @property
    def may_have_happened(self) -> bool:
        """Whether it has changed something outside or may have. Only for a `once` step it is found
        out that an attempt had no effect."""
        if self.effect == "read" or self.attempts == 0:
            return False
        if self.effect != "once" or self.status in ("completed", "in-doubt", "running"):
            return True
        return self.let_fail or (self.status == "failed" and self.fault in UNSURE)


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run may spend and has spent, in numbers.

    Attributes:
        limits: by what is limited (`usd`, `tokens`, `calls`, `steps`, `turns`, `seconds`), as
            declared and with what operators added; an infinite `usd` allows any amount.
        left: what may still be spent or set aside, likewise.
        settled: what was spent, as far as it is known; `reserved` is set aside for attempts under
            way.
        calls, steps, turns, seconds: how many there were.
        unknown: which costs could not be told and why, in words, the first of them;
            `unknown_usd`, `unknown_tokens`: how many there are.
    """

    limits: dict[str, Decimal | int | float]
    left: dict[str, Decimal | int | float]
    settled: Usage
    reserved: Usage
    calls: int
    steps: int
    turns: int
    seconds: float
    unknown: list[str]
    unknown_usd: int
    unknown_tokens: int


@dataclass(frozen=True, slots=True)
class StopView:
    """The emergency stop of a store: since when (seconds since the epoch), by whom and why."""

    since: float
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class KillView:
    """What is known about the kill of a run.

    Attributes:
        at: when, in seconds since the epoch; `by` whom and `why`.
        grace: seconds that what executed it got to end by itself.
        parent: the run together with which it was killed; empty if it was for itself.
        stopped: nothing of it is executed any more.
        owner: the process that has not let go of it, such as `process 11 on vm`; None if there is
            none.
        seconds: how long after the kill its end was noted; None if nothing of it was executed then,
            or it was not noted yet.
        ended: what had to be ended from outside, in words.
        survivors: what could not be ended, in words.
    """

    at: float
    by: str
    why: str
    grace: float
    parent: str
    stopped: bool
    owner: str | None
    seconds: float | None = None
    ended: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Killed:
    """What a kill came to, as the store has it.

    Attributes:
        outcome: `killed` now, or `already`: it had ended before, see `status`, and the kill has
            changed nothing. `refused`: its row cannot be read or written.
        problem: why it was refused; of one that was killed, what is wrong with its record.
        status: of the run.
        kill: what is known about the kill; None for a run that was not killed.
        children: the same for the runs below it that had not ended: those that it has started, and
            theirs.
    """

    run_id: str
    outcome: Literal["killed", "already", "refused"]
    status: Status
    kill: KillView | None
    children: list["Killed"] = field(default_factory=list)
    problem: str | None = None

    @property
    def all(self) -> "list[Killed]":
        """This one and all those below."""
        return [self, *self.children]

    @property
    def stopped(self) -> bool:
        """Whether nothing of it, and of what is below, is executed any more."""
        return all(one.kill is None or one.kill.stopped for one in self.all)


@dataclass(frozen=True, slots=True)
class ChildView:
    """A run that another one has started, as that one's operator sees it. `key`: of the call;
    `reason` and `detail`: why it is held, was killed or has failed."""

    run_id: str
    key: str
    workflow: str
    status: Status
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class MapView:
    """A fan-out: of `total` items `done` have ended, `failed` of them with an error. `name`: of the
    function."""

    key: str
    name: str
    total: int
    done: int = 0
    failed: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as an operator sees it.

    Attributes:
        interrupted: the run is unfinished and whoever executed it is gone.
        result: the workflow's result as plain JSON data, once completed.
        error: text of the workflow's exception, once failed.
        traceback: where that exception came from, as Python prints it.
        owner: the live process that executes it, such as `process 11827 on vm`.
        turn: the last saved turn of an agent loop, counted as in keys: 3 is the turn of `x#0.t3.1`.
        finished: how many steps have completed.
        held_at: key of the step that a held run is held for, if it is for one.
        fix: what lets a held run go on, in words, if something was said.
        budget: what its budget allows still, in words, a line for each limit and each unknown cost;
            `spending`: the same in numbers. Empty and None without a budget, and in a list.
        forked_from: the run that this one is a fork of; `forked_at`: the step from which on
            nothing was copied. Only with steps.
        undone: keys of the steps that were undone; `left`: of those that have taken effect, or may
            have, and were not. None if nobody has undone anything. Only with steps.
        steps: all steps; empty in a list of runs.
        questions: those that it asks now; `signals`: those that it has not taken. Only with steps.
        parent: the run that has started it; None if no run has.
        children: runs that it has started, oldest first; `maps`: its fan-outs. Only with steps.
        damaged: in a list: what cannot be read of it, and so is not shown.
        kill: what is known about its kill; None unless it was killed.
        stopped: the emergency stop of its store; None if there is none, and in a list.
    """

    run_id: str
    workflow: str
    status: Status
    reason: str | None
    interrupted: bool
    result: object
    error: str | None
    detail: str | None
    created_at: float
    updated_at: float
    due_at: float | None
    trace_id: str
    tags: dict[str, str]
    epoch: int
    seq: int
    head: str
    turn: int | None = None
    traceback: str | None = None
    owner: str | None = None
    finished: int = 0
    held_at: str | None = None
    forked_from: str | None = None
    forked_at: str | None = None
    undone: list[str] | None = None
    left: list[str] | None = None
    steps: list[StepView] = field(default_factory=list)
    damaged: str | None = None
    fix: str | None = None
    budget: list[str] = field(default_factory=list)
    spending: Spending | None = None
    questions: list[QuestionView] = field(default_factory=list)
    signals: list[SignalView] = field(default_factory=list)
    parent: str | None = None
    children: list[ChildView] = field(default_factory=list)
    maps: list[MapView] = field(default_factory=list)
    kill: KillView | None = None
    stopped: StopView | None = None
