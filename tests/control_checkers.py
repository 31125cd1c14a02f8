"""What must hold whatever an operator did to a run and whenever; see `checkers`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outlast import events

if TYPE_CHECKING:
    from tests.checkers import Evidence

FINAL = events.RunCompleted | events.RunFailed | events.RunKilled
REOPENS = events.RunRevived | events.RunUndoing
"""With these an operator lets a run that has ended go on after all."""

EVIDENCE = events.StepLate | events.RunStopped
"""What may be added to a run that has ended."""

LETS_GO_ON = (
    events.RunResumed | events.RunClaimed | events.RunAccepted | events.StepSettled | REOPENS
)
"""With these a hold is over."""

BEGINS = (
    events.StepStarted
    | events.StepRefused
    | events.TurnSaved
    | events.WaitOpened
    | events.ChildStarted
    | events.MapStarted
)
"""What the owner writes only while the run may begin something."""


def the_end_is_the_end(seen: "Evidence") -> Iterator[str]:
    """After a final event, nothing but evidence: no second ending, and after a kill not a word of
    the owner."""
    final = None
    for stored, event in seen.journal:
        if isinstance(event, REOPENS):
            final = None
        elif final is not None and not isinstance(event, EVIDENCE):
            yield f"event {stored.seq} ({stored.kind}) follows {final}"
        if isinstance(event, FINAL):
            final = stored.kind


def a_stop_is_confirmed_after_a_kill(seen: "Evidence") -> Iterator[str]:
    """Only of a killed run it is noted that nothing of it is executed any more."""
    killed = False
    for stored, event in seen.journal:
        if isinstance(event, events.RunStopped) and not killed:
            yield f"event {stored.seq} (run.stopped) stands in a run that is not killed"
        if isinstance(event, FINAL | REOPENS):
            killed = isinstance(event, events.RunKilled)


def nothing_begins_while_held(seen: "Evidence") -> Iterator[str]:
    """From a pause or another hold on, until somebody lets the run go on or takes it anew."""
    held = None
    for stored, event in seen.journal:
        if isinstance(event, events.RunHeld):
            held = event.reason
        elif isinstance(event, LETS_GO_ON):
            held = None
        elif held is not None and isinstance(event, BEGINS):
            yield f"event {stored.seq} ({stored.kind}) follows a hold ({held})"


def a_pause_is_lifted_by_a_person(seen: "Evidence") -> Iterator[str]:
    """No process takes a paused run by itself."""
    paused = False
    for stored, event in seen.journal:
        if isinstance(event, events.RunClaimed) and paused:
            yield f"event {stored.seq}: the run was claimed though it was paused"
        if isinstance(event, events.RunHeld):
            paused = event.reason == "paused"
        elif isinstance(event, events.RunResumed | events.RunAccepted | REOPENS):
            paused = False


def nothing_begins_between(seen: "Evidence", first: int, last: int) -> Iterator[str]:
    """Behind event `first` and up to event `last`: what the journal's length was when a call that
    stops all of a store had returned, and when the stop was ended."""
    for stored, event in seen.journal:
        if first < stored.seq <= last and isinstance(event, BEGINS | events.RunClaimed):
            yield f"event {stored.seq} ({stored.kind}) came under the emergency stop"


CHECKERS = (
    the_end_is_the_end,
    a_stop_is_confirmed_after_a_kill,
    nothing_begins_while_held,
    a_pause_is_lifted_by_a_person,
)
