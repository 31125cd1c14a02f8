"""What a run has already done, read once and indexed by position.

A *position* is where in the workflow a call stands: `4` is the fifth call, `s2.0` the first call
in the second task, `7.t3.1` the second call in turn 3 of the loop that stands at 7. Key and
position belong together: `think#7.t3.1`.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from outlast import events
from outlast.events import Event
from outlast.records import StoredEvent

TURNS = "turns"
"""The name in the key of a turn loop."""

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


@dataclass(slots=True)
class Past:
    """What is recorded of one call.

    Attributes:
        attempts: attempts opened; `failures` of them ended with an error of their own.
        open: an attempt was opened and has no outcome.
        crashes: deaths inside this call since the last outcome or operator's resume.
        retry_at: earliest time of the next attempt.
        longest: how long the wait for `retry_at` or `due` was to be when it was set.
        outcome: the final event, if there is one; `order` is its sequence number, or that of the
            cancellation.
        doubt: why it is not known whether a `once` attempt took effect.
        error: what the attempt in doubt raised; None if its process ended or it was cancelled.
        settled: an operator's decision that the workflow has not seen yet.
        late: a result that came when it could not be recorded as such; it can settle a doubt.
        abandoned: workflow code cancelled the call.
    """

    key: str
    name: str
    digest: str = ""
    attempts: int = 0
    failures: int = 0
    open: bool = False
    crashes: int = 0
    retry_at: float | None = None
    longest: float = math.inf
    due: float | None = None
    outcome: Event | None = None
    order: int = 0
    doubt: str | None = None
    error: events.ErrorRecord | None = None
    settled: events.StepSettled | None = None
    late: events.StepLate | None = None
    abandoned: bool = False
    consumed: bool = False


@dataclass(slots=True)
class History:
    """All calls of a run so far, by position, and what is saved of each turn loop."""

    calls: dict[str, Past] = field(default_factory=dict)
    turns: dict[str, list[events.TurnSaved]] = field(default_factory=dict)
    claims_without_progress: int = 0

    def at(self, position: str) -> Past | None:
        """The record of the call at a position, which thereby counts as asked for."""
        past = self.calls.get(position)
        if past is not None:
            past.consumed = True
        return past

    def orders(self) -> list[int]:
        """Sequence numbers of all outcomes and cancellations, ascending: the order in which the
        workflow learnt of them."""
        return sorted(p.order for p in self.calls.values() if p.outcome is not None or p.abandoned)

    def unconsumed(self) -> list[Past]:
        """Recorded calls that the workflow has not asked for."""
        return [p for p in self.calls.values() if not p.consumed]

    def finished(self) -> int:
        """How many calls have an outcome."""
        return sum(p.outcome is not None for p in self.calls.values())


def build(rows: Iterable[StoredEvent]) -> History:
    """Index a journal, oldest event first.

    Raises:
        msgspec.DecodeError, KeyError: an event cannot be read.
    """
    history = History()
    for row in rows:
        event = events.decode(row.kind, row.data)
        if row.key is not None:
            _add(history, row.key, row.seq, row.at, event)
        elif isinstance(event, events.RunClaimed):
            history.claims_without_progress += event.crash
        elif isinstance(event, events.RunResumed):
            history.claims_without_progress = 0
            for past in history.calls.values():
                past.crashes = 0
    _add_loops(history)
    _drop_skipped_turns(history)
    return history


def _add(history: History, key: str, seq: int, at: float, event: Event) -> None:
    position = position_of(key)
    if isinstance(event, events.TurnSaved):
        if event.full:
            history.turns[position] = []  # no earlier event is needed
        history.turns[position].append(event)
        history.claims_without_progress = 0
        return
    past = history.calls.get(position)
    if past is None:
        past = history.calls[position] = Past(key=key, name=name_of(key))
    match event:
        case events.StepStarted():
            past.digest, past.attempts, past.open = event.digest, event.attempt, True
            past.doubt = past.error = past.settled = None
        case events.TimerSet():
            past.digest, past.due, past.longest = event.digest, event.due, event.due - at
        case events.StepCompleted() | events.TimerFired() | events.ValueRecorded():
            _close(past, event, seq)
            history.claims_without_progress = 0
        case events.StepFailed():
            past.open, past.crashes, past.retry_at = False, 0, event.retry_at
            past.longest = math.inf if event.retry_at is None else event.retry_at - at
            past.failures += 1
            if event.final:
                _close(past, event, seq)
            history.claims_without_progress = 0
        case events.StepInterrupted():
            past.open = False
            past.crashes += event.crash
            past.doubt = "its process ended while it ran"
        case events.StepInDoubt():
            past.open, past.crashes = False, 0
            past.doubt, past.error = event.why, event.error
        case events.StepAbandoned():
            if past.open:
                past.doubt = "the workflow cancelled it"
            past.open, past.abandoned, past.order = False, True, seq
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


def _close(past: Past, event: Event, seq: int) -> None:
    past.outcome, past.order = event, seq
    past.open, past.crashes, past.doubt, past.settled = False, 0, None, None


def _add_loops(history: History) -> None:
    """A turn loop takes a position as a call does, so another call there is noticed. What happened
    in its turns tells of it, even before a turn was saved."""
    inside = [p[: m.start()] for p in history.calls for m in _TURN.finditer(p)]
    for loop in (*history.turns, *inside):
        history.calls.setdefault(loop, Past(key_of(TURNS, loop), TURNS))


def _drop_skipped_turns(history: History) -> None:
    """Forget the calls of turns before the last saved one: the saved state stands for them."""
    for loop, saved in history.turns.items():
        prefix, current = f"{loop}.t", saved[-1].turn
        for position in list(history.calls):
            if position.startswith(prefix):
                turn = int(position[len(prefix) :].partition(".")[0])
                if turn < current:
                    del history.calls[position]
