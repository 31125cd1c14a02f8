"""What a run has already done, read once and indexed by position.

A *position* is where in the workflow a call stands: `4` is the fifth call, `s2.0` the first call
in the second task, `7.t3.1` the second call in turn 3 of the loop that stands at 7. Key and
position belong together: `think#7.t3.1`.
"""

import math
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from outlast import cuts, events
from outlast.codec import Moved
from outlast.engine.spare import SpareKeys
from outlast.events import Event
from outlast.records import Effect, Source, StoredEvent

TURNS = cuts.TURNS
"""The name in the key of a turn loop."""

RESERVED = frozenset({TURNS, "now", "sleep"})
"""Names in the keys of the library's own calls. No step has one of them."""

Kind = Literal["step", "timer", "value", "loop"]
"""What a call is."""

ENDED_WITH_PROCESS = "its process ended while it ran"

_TURN = re.compile(r"\.t\d+\.")


def key_of(name: str, position: str) -> str:
    """The key of what `name` calls at a position."""
    return f"{name}#{position}"


def position_of(key: str) -> str:
    """The position in a key."""
    return key.rpartition("#")[2]


def name_of(key: str) -> str:
    """The name in a key."""
    return key.rpartition("#")[0]


class Past(msgspec.Struct):
    """What is recorded of one call. A Struct, since there is one for every step, and a dataclass of
    so many fields takes five times as long to make.

    Attributes:
        kind: what was called; None if it was cancelled before that was written.
        preview: the arguments as a short text; `site`: file and line of the call. Words only.
        attempts: attempts opened; `failures` of them ended with an error of their own, or with
            the death of their process: what counts against the step's retries.
        effect: what the latest attempt was opened as, whatever the code says since. Only one that
            was opened as `once` leaves a doubt.
        open: an attempt was opened and has no outcome.
        crashes: deaths inside this call since the last outcome or operator's resume.
        began: when the first attempt was opened, in seconds since the epoch; `opened`: the latest.
        retry_at: earliest time of the next attempt; `refused_by`: the breaker that is waited for.
        longest: how long the wait for `retry_at` or `due` was to be when it was set.
        outcome: the final event, if there is one; `order` is its sequence number, or that of the
            cancellation.
        alias, variant: see `events.StepStarted`; `named` once they are decided.
        doubt: why it is not known whether a `once` attempt took effect.
        error: what the attempt in doubt raised; None if its process ended or it was cancelled.
        settled: an operator's decision that the workflow has not seen yet.
        late: a result that came when it could not be recorded as such; it can settle a doubt.
        abandoned: workflow code cancelled the call, `patience` seconds after its process had taken
            the run: a time-out that did it was not longer than that.
    """

    key: str
    name: str
    kind: Kind | None = None
    digest: str = ""
    preview: str = ""
    site: str = ""
    attempts: int = 0
    failures: int = 0
    effect: Effect = "assumed"
    alias: str = ""
    variant: int = 0
    named: bool = False
    open: bool = False
    crashes: int = 0
    began: float = math.inf
    opened: float = math.inf
    retry_at: float | None = None
    refused_by: str = ""
    longest: float = math.inf
    due: float | None = None
    outcome: Event | None = None
    order: int = 0
    doubt: str | None = None
    error: events.ErrorRecord | None = None
    settled: events.StepSettled | None = None
    late: events.StepLate | None = None
    abandoned: bool = False
    patience: float = 0.0
    consumed: bool = False

    def fits(self, kind: Kind, name: str, digest: str = "") -> bool:
        """Whether a call that the code makes here is the recorded one."""
        same = self.name == name and self.kind in (None, kind)
        return same and (self.digest == digest or not self.digest or not digest)

    def cut_off(self, why: str) -> None:
        """The open attempt ended without telling how."""
        self.open = False
        if self.effect == "once":
            self.doubt = why


@dataclass(slots=True)
class History:
    """All calls of a run so far, by position, and what is saved of each turn loop.

    Attributes:
        patches: what `outlast.patched` answers, by name; `asking`: held while one is added.
        spare: the idempotency keys of dropped steps.
        unfinished: positions of calls that a fork makes again in front of copied ones.
        inherited, seed: patience of copied cancellations, and what random values follow from, in a
            fork; see `events.Forked`.
        repeats: what the loop guard has counted up to event number `repeats_to`: the last save of a
            turn, or an operator's resume, after which it begins anew.
        moved: the modules in which the workflow was once found, for the classes defined there.
    """

    calls: dict[str, Past] = field(default_factory=dict)
    turns: dict[str, list[events.TurnSaved]] = field(default_factory=dict)
    patches: dict[str, bool] = field(default_factory=dict)
    asking: threading.Lock = field(default_factory=threading.Lock, compare=False)
    moved: tuple[Moved, ...] = ()
    spare: SpareKeys = field(default_factory=SpareKeys)
    repeats_to: int = 0
    repeats: dict[str, events.Repeat] = field(default_factory=dict)
    claims_without_progress: int = 0
    claimed_at: float = 0.0
    inherited: float = 0.0
    unfinished: frozenset[str] = frozenset()
    seed: str | None = None
    _left: dict[str, set[str]] | None = None  # positions not asked for, by all of their prefixes
    _asked: int = 0
    _begun: set[str] = field(default_factory=set)  # prefixes of tasks that the code has created

    def at(self, position: str) -> Past | None:
        """The record of the call at a position, which thereby counts as asked for."""
        past = self.calls.get(position)
        if past is not None:
            self._asked += not past.consumed
            past.consumed = True
            if self._left is not None:
                self._asked_for(position, self._left)
        return past

    def replaying(self, prefix: str) -> bool:
        """Whether recorded calls whose position starts with a scope's prefix are still to be asked
        for. Quick, since every line of a log asks."""
        if self._left is None:
            left: dict[str, set[str]] = {}
            for position in self.calls:
                for part in _prefixes(position):
                    left.setdefault(part, set()).add(position)
            self._left = left
            # Only now: another thread may have asked for a call while the index was made.
            for position, past in list(self.calls.items()):
                if past.consumed:
                    self._asked_for(position, left)
        return bool(self._left.get(prefix))

    def begins(self, prefix: str) -> None:
        """The code creates the task whose calls have this prefix."""
        if self._asked < len(self.calls):
            self._begun.add(prefix)

    def innermost(self, position: str) -> str:
        """Prefix of the innermost task, of those that the code has created, in which a position is;
        empty for the workflow's own."""
        return next((p for p in reversed(_prefixes(position)) if p in self._begun), "")

    def skipped_to(self, position: str) -> Past | None:
        """For something that is not recorded at a position: the first recorded call that the code
        can reach only behind it, and has not asked for. The code that was recorded came by this
        position without it: it stands further down in the same task, or in a task that this one
        has not created yet."""
        if self._asked >= len(self.calls) or position in self.unfinished:
            return None
        frames = list(_frames(position))
        for at, past in self.calls.items():
            if past.consumed:
                continue
            for prefix, index in frames:
                head = at[len(prefix) :].partition(".")[0] if at.startswith(prefix) else ""
                later = head.isdigit() and int(head) > index
                if later or (head[:1] == "s" and f"{prefix}{head}." not in self._begun):
                    return past
        return None

    @staticmethod
    def _asked_for(position: str, left: dict[str, set[str]]) -> None:
        for part in _prefixes(position):
            left[part].discard(position)

    def orders(self) -> list[int]:
        """Sequence numbers of all outcomes and cancellations, ascending: the order in which the
        workflow learnt of them."""
        return sorted(p.order for p in self.calls.values() if p.outcome is not None or p.abandoned)

    def unconsumed(self) -> list[Past]:
        """Recorded calls that the workflow has not asked for."""
        return [p for p in self.calls.values() if not p.consumed]


def build(rows: Iterable[StoredEvent]) -> History:
    """Index a journal, oldest event first.

    Raises:
        msgspec.DecodeError, KeyError: an event cannot be read.
    """
    history = History()
    sources: list[Source | None] = []
    rows, dropped = cuts.split(rows)
    for row in dropped:
        started = events.decode(row.kind, row.data)
        if isinstance(started, events.StepStarted) and row.key is not None:
            history.spare.drop(row.key, started)
    for row in rows:
        event = events.decode(row.kind, row.data)
        if row.key is not None:
            _add(history, row.key, row.seq, row.at, event)
        elif isinstance(event, events.RunCreated):
            if event.forked is not None:
                history.inherited, history.seed = event.forked.patience, event.forked.seed
                history.unfinished = frozenset(map(position_of, event.forked.unfinished))
                sources += event.forked.sources
            sources.append(event.source)
        elif isinstance(event, events.RunClaimed):
            sources.append(event.source)
            history.claimed_at = row.at
            history.claims_without_progress += event.crash
        elif isinstance(event, events.RunPatched):
            history.patches.setdefault(event.name, event.active)
        elif isinstance(event, events.RunResumed | events.RunAccepted):
            if isinstance(event, events.RunAccepted):
                history.spare.accepted_at(row.seq)
            history.repeats_to, history.repeats = row.seq, {}
            history.claims_without_progress = 0
            for past in history.calls.values():
                past.crashes = 0
    history.moved = _moves([source.module for source in sources if source is not None])
    _add_loops(history)
    _drop_skipped_turns(history)
    return history


def _moves(modules: list[str]) -> tuple[Moved, ...]:
    """From each module that the workflow was in to the one that it is in now."""
    return tuple(Moved(old, modules[-1]) for old in dict.fromkeys(modules) if old != modules[-1])


def _add(history: History, key: str, seq: int, at: float, event: Event) -> None:
    position = position_of(key)
    if isinstance(event, events.TurnSaved):
        if event.full:
            history.turns[position] = []  # no earlier event is needed
        history.turns[position].append(event)
        history.repeats_to = seq
        history.repeats.update(event.repeats)
        history.claims_without_progress = 0
        return
    past = history.calls.get(position)
    if past is None:
        past = history.calls[position] = Past(key=key, name=name_of(key))
    match event:
        case events.StepStarted():
            past.kind = "step"
            past.preview, past.site = event.preview, event.site
            past.digest, past.attempts, past.open = event.digest, event.attempt, True
            past.effect, past.alias, past.variant = event.effect, event.alias, event.variant
            past.began, past.opened, past.named = min(past.began, at), at, True
            history.spare.stands(key, event)
            past.doubt = past.error = past.settled = None
        case events.StepRefused():
            past.kind, past.effect = "step", event.effect
            past.preview, past.site = event.preview, event.site
            past.digest, past.retry_at = event.digest, event.retry_at
            past.refused_by = event.breaker
            past.longest = math.inf if event.retry_at is None else event.retry_at - at
            if event.error is not None:
                _close(past, event, seq)
            history.claims_without_progress = 0
        case events.TimerSet():
            past.kind, past.site = "timer", event.site
            past.digest, past.due, past.longest = event.digest, event.due, event.due - at
        case events.ValueRecorded():
            past.kind, past.site = "value", event.site
            _close(past, event, seq)
            history.claims_without_progress = 0
        case events.StepCompleted() | events.TimerFired():
            _close(past, event, seq)
            history.claims_without_progress = 0
        case events.StepFailed():
            past.open, past.crashes, past.retry_at = False, 0, event.retry_at
            past.refused_by = ""
            past.longest = math.inf if event.retry_at is None else event.retry_at - at
            past.failures += 1
            if event.final:
                _close(past, event, seq)
            history.claims_without_progress = 0
        case events.StepInterrupted():
            past.crashes += event.crash
            past.failures += event.crash
            past.cut_off(ENDED_WITH_PROCESS)
        case events.StepInDoubt():
            past.open, past.crashes = False, 0
            past.doubt, past.error = event.why, event.error
            if event.error is not None and event.fault:
                past.error = msgspec.structs.replace(event.error, fault=event.fault)
        case events.StepAbandoned():
            if past.open:
                past.cut_off("the workflow cancelled it")
            past.abandoned, past.order = True, seq
            past.patience = at - history.claimed_at if history.claimed_at else history.inherited
        case events.StepReconciled() if event.answer == "not-done":
            past.doubt = past.error = None
        case events.StepReconciled() if past.settled is not None:
            past.settled, past.doubt = None, event.why  # a settled value that did not fit
        case events.StepSettled():
            past.settled, past.abandoned = event, False
            past.doubt = past.error = None
        case events.StepLate():
            past.late = event
        case _:
            pass  # kinds that explain, such as policy.decided, decide nothing here


_IN_TURN = re.compile(r"(.*\.|)(\d+)\.t\d+\.")


def _frames(position: str) -> Iterator[tuple[str, int]]:
    """Prefix and index of a call, and of the turn loops around it in the same task:
    `("s2.7.t3.", 1)` and `("s2.", 7)` for `s2.7.t3.1`."""
    head, _, index = position.rpartition(".")
    prefix = f"{head}." if head else ""
    yield prefix, int(index)
    while (loop := _IN_TURN.fullmatch(prefix)) is not None:
        prefix = loop[1]
        yield prefix, int(loop[2])


def _prefixes(position: str) -> list[str]:
    """What a position starts with, scope by scope: "", "s2." and "s2.7.t3." for "s2.7.t3.1"."""
    parts = position.split(".")[:-1]
    return ["", *(".".join(parts[: n + 1]) + "." for n in range(len(parts)))]


def _close(past: Past, event: Event, seq: int) -> None:
    past.outcome, past.order = event, seq
    past.open, past.crashes, past.doubt, past.settled = False, 0, None, None


def _add_loops(history: History) -> None:
    """A turn loop takes a position as a call does, so another call there is noticed. What happened
    in its turns tells of it, even before a turn was saved."""
    inside = [p[: m.start()] for p in history.calls for m in _TURN.finditer(p)]
    for loop in (*history.turns, *inside):
        saved = history.turns.get(loop, [])
        site = next((event.site for event in saved if event.site), "")
        history.calls.setdefault(loop, Past(key_of(TURNS, loop), TURNS, "loop", site=site))


def _drop_skipped_turns(history: History) -> None:
    """Forget what happened in turns before the last saved one: the saved state stands for it."""
    for loop, saved in list(history.turns.items()):
        prefix, current = f"{loop}.t", saved[-1].turn
        for known in (history.calls, history.turns):
            for position in [p for p in known if p.startswith(prefix)]:
                if int(position[len(prefix) :].partition(".")[0]) < current:
                    del known[position]
