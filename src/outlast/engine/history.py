"""What a run has already done, read once and indexed by position.

A *position* is where in the workflow a call stands: `4` is the fifth call, `s2.0` the first call
in the second task, `7.t3.1` the second call in turn 3 of the loop that stands at 7. Key and
position belong together: `think#7.t3.1`.
"""

import math
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from outlast import cuts, events
from outlast.codec import Moved
from outlast.engine.past import ENDED_WITH_PROCESS as ENDED_WITH_PROCESS
from outlast.engine.past import RESERVED as RESERVED
from outlast.engine.past import TURNS as TURNS
from outlast.engine.past import UNDO as UNDO
from outlast.engine.past import Kind as Kind
from outlast.engine.past import Past as Past
from outlast.engine.past import key_of as key_of
from outlast.engine.past import name_of as name_of
from outlast.engine.past import position_of as position_of
from outlast.engine.spare import SpareKeys
from outlast.events import Event
from outlast.records import Source, StoredEvent

_TURN = re.compile(r"\.t\d+\.")

PREVIEW = 200
"""Most characters by which a question is named in other texts."""


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
        undoes: the calls of compensations, which no workflow asks for.
        children: positions of calls of children that have not ended; `replaced`: how many dropped
            calls of children there are, by key.
        undoing: somebody asked for the run to be undone, and that has not come to its end.
    """

    calls: dict[str, Past] = field(default_factory=dict)
    turns: dict[str, list[events.TurnSaved]] = field(default_factory=dict)
    patches: dict[str, bool] = field(default_factory=dict)
    asking: threading.Lock = field(default_factory=threading.Lock, compare=False)
    moved: tuple[Moved, ...] = ()
    undoes: dict[str, Past] = field(default_factory=dict)
    undoing: events.RunUndoing | None = None
    children: set[str] = field(default_factory=set)
    replaced: Counter[str] = field(default_factory=Counter)
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
        if past is None:
            return self.undoes.get(position)
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

    def left_below(self, prefix: str) -> list[Past]:
        """The recorded calls that `replaying` is about, in the order of their positions."""
        left = self._left.get(prefix, ()) if self.replaying(prefix) and self._left else ()
        return [self.calls[position] for position in sorted(left)]

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
        if not self.calls or position in self.unfinished:
            return None
        *_, (scope, _) = _frames(position)
        around = self.calls.get(scope[:-1].rpartition(".")[0])
        if around is not None and around.all_done:
            return around  # a fan-out whose results the workflow has, and this is a new item
        if self._asked >= len(self.calls):
            return None
        # Nearly always none: in a long fan-out most of what is made anew has a scope of its own.
        frames = [frame for frame in _frames(position) if self.replaying(frame[0])]
        if not frames:
            return None
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


def build(rows: Iterable[StoredEvent], *, skipped: bool = False) -> History:
    """Index a journal, oldest event first.

    Args:
        skipped: also what happened in turns that a resume skips.

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
        elif isinstance(started, events.ChildStarted) and row.key is not None:
            history.replaced[row.key] += 1
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
            # A child that did not come on either counts that itself.
            history.claims_without_progress += event.crash and not history.children
        elif isinstance(event, events.RunPatched):
            history.patches.setdefault(event.name, event.active)
        elif isinstance(event, events.RunResumed | events.RunAccepted):
            if isinstance(event, events.RunAccepted):
                history.spare.accepted_at(row.seq)
            history.repeats_to, history.repeats = row.seq, {}
            history.claims_without_progress = 0
            for past in (*history.calls.values(), *history.undoes.values()):
                past.crashes = 0
            _let_undo_again(history)
        elif isinstance(event, events.RunUndoing):
            history.undoing = event
            _let_undo_again(history)
        elif isinstance(event, events.RunUndone):
            history.undoing = None
    history.moved = _moves([source.module for source in sources if source is not None])
    _add_loops(history)
    if not skipped:
        _drop_skipped_turns(history)
    return history


def _let_undo_again(history: History) -> None:
    """An operator wants compensations that have failed to be tried again, but for those that are to
    be left alone."""
    for past in history.undoes.values():
        failed = past.outcome
        if isinstance(failed, events.StepFailed) and failed.error.type != events.SETTLED:
            past.outcome, past.retry_at = None, None
            past.failures, past.began = 0, math.inf


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
    calls = history.undoes if position.startswith(UNDO) else history.calls
    past = calls.get(position)
    if past is None:
        past = calls[position] = Past(key=key, name=name_of(key))
    if event.kind.startswith("step."):
        _add_to_step(history, past, seq, at, event)
    else:
        _add_to_other(history, past, seq, at, event)


def _add_to_step(history: History, past: Past, seq: int, at: float, event: Event) -> None:
    """What an event says of the call of a step."""
    position = position_of(past.key)
    match event:
        case events.StepStarted():
            past.kind = "step"
            past.preview, past.site = event.preview, event.site
            past.digest, past.attempts, past.open = event.digest, event.attempt, True
            past.effect, past.alias, past.variant = event.effect, event.alias, event.variant
            past.began, past.opened, past.named = min(past.began, at), at, True
            history.spare.stands(past.key, event)
            past.doubt = past.error = past.settled = None
        case events.StepCompleted():
            _close(past, event, seq)
            history.claims_without_progress = 0
        case events.StepRefused():
            past.kind, past.effect = "step", event.effect
            past.preview, past.site = event.preview, event.site
            past.digest, past.retry_at = event.digest, event.retry_at
            past.refused_by = event.breaker
            past.longest = math.inf if event.retry_at is None else event.retry_at - at
            if event.error is not None:
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
            history.children.discard(position)
            past.patience = at - history.claimed_at if history.claimed_at else history.inherited
        case events.StepReconciled() if event.undoing:
            past.asked = True
        case events.StepSettled() if past.asked:
            pass  # the workflow has seen how the call ended, and sees the same again
        case events.StepReconciled() if event.answer == "not-done":
            past.doubt = past.error = None
        case events.StepReconciled() if past.settled is not None:
            past.settled, past.doubt = None, event.why  # a settled value that did not fit
        case events.StepSettled():
            past.settled, past.abandoned = event, False
            past.doubt = past.error = None
            if position.startswith(UNDO):
                past.outcome = None  # it had failed, and somebody has decided about it
        case events.StepLate():
            past.late = event
        case _:
            pass  # step.charged: what it has cost is in the account


def _add_to_other(history: History, past: Past, seq: int, at: float, event: Event) -> None:
    """What an event says of any other call, or of a step about the leave to open it."""
    position = position_of(past.key)
    match event:
        case events.TimerSet():
            past.kind, past.site = "timer", event.site
            past.digest, past.due, past.longest = event.digest, event.due, event.due - at
        case events.WaitOpened():
            past.kind = "step" if event.what == "approval" else "wait"
            said = event.preview if past.kind == "step" else event.prompt or event.name
            past.preview = said[:PREVIEW]  # a person is shown all of it, elsewhere
            past.site, past.digest, past.wait, past.leave = event.site, event.digest, event, None
            past.due = event.due
            past.longest = math.inf if event.due is None else event.due - at
        case events.WaitEnded() if past.kind == "step":
            past.leave = event
        case events.ValueRecorded():
            past.kind, past.site = "value", event.site
            _close(past, event, seq)
            history.claims_without_progress = 0
        case events.ChildStarted():
            past.kind, past.site, past.preview = "child", event.site, event.preview
            past.digest, past.child = event.digest, event.run_id
            history.children.add(position)
        case events.MapStarted():
            past.kind, past.site = "map", event.site
        case events.MapProgressed():
            past.done = event.done
        case events.MapEnded():
            past.all_done, past.raised = True, event.raised
        case events.ChildEnded():
            _close(past, event, seq)
            history.children.discard(position)
            history.claims_without_progress = 0
        case events.TimerFired() | events.WaitEnded():
            _close(past, event, seq)
            history.claims_without_progress = 0
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
