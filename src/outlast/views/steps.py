"""What the events of steps add up to."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from outlast import cuts, events
from outlast.amounts import total
from outlast.journal import idempotency_key
from outlast.records import Effect, StepStatus, StepView, StoredEvent, Usage
from outlast.views.reading import decode_stored


class _Step(Struct):
    """What the events of one step add up to."""

    key: str
    started: float
    name: str = ""
    effect: Effect = "assumed"
    attempts: int = 0
    ended: float | None = None
    preview: str = ""
    alias: str = ""
    variant: int = 0
    status: StepStatus = "running"
    fault: str | None = None
    error: str | None = None
    repeated: bool = False
    reconciled: str | None = None
    refusals: int = 0
    inner: str = ""
    cost: Usage | None = None
    reason: str = ""  # of the fault
    breaker: str = ""
    retry_at: float | None = None
    retrying: bool = False  # waits for its next attempt
    opened: float | None = None  # when the attempt that is open was opened
    worked: float = 0.0
    unmeasured: int = 0
    late: str | None = None


def steps_of(
    rows: Iterable[StoredEvent], uid: str, *, alive: bool, now: float | None = None
) -> list[StepView]:
    """The steps of a run in the order in which they were first opened, without dropped ones.

    Args:
        rows: the run's events, oldest first.
        uid: of the run.
        alive: somebody executes the run, so that an open attempt is really running.
        now: the time up to which an attempt that runs has worked; not counted if left out.
    """
    steps: dict[str, _Step] = {}
    rows, gone = cuts.split(rows)
    before = {_mark(r, e) for r in gone if isinstance(e := decode_stored(r), events.StepStarted)}
    for row in rows:
        if row.key is None or not row.kind.startswith("step."):
            continue
        event = decode_stored(row)
        step = steps.get(row.key)
        if step is None:
            step = steps[row.key] = _Step(row.key, row.at, name=row.key.rpartition("#")[0])
        _measure(step, event, row.at)
        _apply(step, event, row.at)
        if isinstance(event, events.StepStarted) and event.effect == "assumed":
            step.repeated |= _mark(row, event) in before
    return [_finish(step, uid, alive, now) for step in steps.values()]


def _mark(row: StoredEvent, started: events.StepStarted) -> tuple[str | None, int]:
    """What an attempt's idempotency key follows from."""
    return started.alias or row.key, started.variant


def doubtful(steps: Sequence[StepView]) -> list[StepView]:
    """The steps that an operator may settle: those in doubt, and compensations that have failed."""
    return [step for step in steps if step.status == "in-doubt" or _waits_for_undo(step)]


def _waits_for_undo(step: StepView) -> bool:
    undoes = step.key.rpartition("#")[2].startswith(cuts.UNDO)
    return undoes and step.status == "failed" and not step.let_fail


def _apply(step: _Step, event: events.Event, at: float) -> None:
    match event:
        case events.StepStarted():
            step.repeated |= event.attempt > 1 and event.effect == "assumed"
            step.effect, step.attempts, step.preview = event.effect, event.attempt, event.preview
            step.alias, step.variant = event.alias, event.variant
            if not step.retrying:
                _set_error(step, None, None)  # the doubt that went before
            step.status, step.ended, step.opened = "running", None, at
            step.breaker, step.late = "", None
        case events.StepCompleted():
            step.status, step.ended = "completed", at
            _set_error(step, None, None)
        case events.StepRefused():
            step.refusals, step.effect = step.refusals + 1, event.effect
            step.breaker, step.preview = event.breaker, event.preview or step.preview
            step.status, step.ended = ("running", None) if event.error is None else ("failed", at)
            said = f": {event.fault}" if event.fault else ""
            _set_error(step, f"breaker {event.breaker} is open{said}", "refused")
        case events.StepCharged():
            step.cost = _plus(step.cost, event)
        case events.StepFailed():
            step.inner = event.inner or step.inner
            step.status, step.ended = ("failed", at) if event.final else ("running", None)
            error = event.error
            _set_error(step, f"{error.type}: {error.message}", error.fault, error.reason)
        case events.StepInterrupted():
            _cut_off(step, "interrupted", PROCESS_ENDED)
            step.ended = at
        case events.StepAbandoned():
            if step.status == "running":
                _cut_off(step, "abandoned", "the workflow cancelled it")
            step.ended = at
        case events.StepInDoubt():
            step.status, step.ended = "in-doubt", at
            _set_error(step, event.why, "unknown-outcome")
        case events.StepReconciled():
            step.reconciled = f"{event.answer}: {event.why}" if event.why else event.answer
            if event.answer != "done":
                step.status = "interrupted" if event.answer == "not-done" else "in-doubt"
        case events.StepSettled():
            step.status = "interrupted" if event.decision == "not-done" else "failed"
            step.status = "completed" if event.decision == "done" else step.status
            step.error = event.text or None
            step.reconciled = f"settled {event.decision}" + (f" by {event.by}" if event.by else "")
        case events.StepLate():
            failed = event.error
            late = "a result" if failed is None else f"an error: {failed.type}: {failed.message}"
            step.late = late
        case _:
            pass
    _note_retry(step, event)


def _set_error(step: _Step, error: str | None, fault: str | None, reason: str = "") -> None:
    step.error, step.fault, step.reason = error, fault, reason


def _note_retry(step: _Step, event: events.Event) -> None:
    """Whether it waits for its next attempt, and until when. What costs is not part of that."""
    match event:
        case events.StepRefused():
            step.retrying, step.retry_at = event.error is None, event.retry_at
        case events.StepFailed():
            step.retrying = not event.final
            step.retry_at = None if event.final else event.retry_at
        case events.StepStarted() | events.StepCompleted() | events.StepAbandoned():
            step.retrying, step.retry_at = False, None
        case _:
            pass


def _plus(known: Usage | None, event: events.StepCharged) -> Usage | None:
    """What all attempts have cost so far. What a body reports is in its attempt's settlement."""
    if not event.settled:
        return known
    return event.cost if known is None else total((known, event.cost))


PROCESS_ENDED = "its process ended while it ran"

_ENDS_OF_ATTEMPTS = (
    events.StepCompleted,
    events.StepFailed,
    events.StepInterrupted,
    events.StepAbandoned,
    events.StepInDoubt,
)


def _measure(step: _Step, event: events.Event, at: float) -> None:
    """Add the attempt that an event ends to the time that the step has worked."""
    if step.opened is None or not isinstance(event, _ENDS_OF_ATTEMPTS):
        return
    if isinstance(event, events.StepInterrupted) and event.crash:
        step.unmeasured += 1  # the event says when it was noticed, not when it happened
    else:
        step.worked += max(at - step.opened, 0.0)
    step.opened = None


def _cut_off(step: _Step, status: StepStatus, why: str) -> None:
    step.status = _unless_once(step, status)
    if step.status == "in-doubt":
        step.error = why


def _unless_once(step: _Step, status: StepStatus) -> StepStatus:
    """An attempt that is cut off leaves doubt if it was a `once` step's. Between two attempts
    nothing is open, so nothing can be in doubt."""
    return "in-doubt" if step.effect == "once" and not step.retrying else status


def _finish(step: _Step, uid: str, alive: bool, now: float | None) -> StepView:
    if step.status == "running" and not alive:
        _cut_off(step, "interrupted", PROCESS_ENDED)
    if step.opened is not None and alive and now is not None:
        step.worked += max(now - step.opened, 0.0)
    unknown = step.opened is not None and not alive
    return StepView(
        key=step.key,
        name=step.name,
        status=step.status,
        attempts=step.attempts,
        effect=step.effect,
        started=step.started,
        ended=step.ended,
        preview=step.preview,
        idempotency_key=idempotency_key(uid, step.alias or step.key, step.variant),
        fault=step.fault,
        error=step.error,
        repeated=step.repeated,
        reconciled=step.reconciled,
        refusals=step.refusals,
        inner=step.inner,
        cost=step.cost,
        fault_reason=step.reason,
        breaker=step.breaker,
        retry_at=step.retry_at,
        worked=step.worked,
        unmeasured=step.unmeasured + unknown,
        late=step.late,
    )
