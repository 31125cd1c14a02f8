"""Everything that reads a run for people and tools. Nothing here writes."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import cast

import msgspec
from msgspec import Struct

from outlast import codec, cuts, events
from outlast.errors import StoreError, Unreadable
from outlast.journal import idempotency_key, to_event, to_run
from outlast.leases import is_abandoned
from outlast.records import Effect, RunRow, RunView, StepStatus, StepView, StoredEvent
from outlast.store.base import Row, SqlValue
from outlast.store.writer import Store


def read_run(store: Store, run_id: str) -> RunRow | None:
    """The row of a run; None if there is none."""
    rows = store.read("read_run", run_id=run_id)
    return to_run(rows[0]) if rows else None


def read_events(store: Store, run_id: str) -> list[StoredEvent]:
    """All events of a run, oldest first."""
    return [to_event(row) for row in store.read("read_events", run_id=run_id)]


def list_runs(store: Store, status: str | None, workflow: str | None, limit: int) -> list[RunView]:
    """Runs without their steps, newest first; a negative limit means all of them. One that is
    damaged does not hide the others: what is known of it is shown."""
    rows = store.read("list_runs", status=status, workflow=workflow, limit=limit)
    return [_listed(store, row) for row in rows]


def _listed(store: Store, raw: Row) -> RunView:
    row = None
    try:
        row = to_run(raw)
        return run_view(store, row, with_steps=False)
    except (StoreError, Unreadable) as problem:
        if isinstance(problem, StoreError) and problem.problem != "damaged":
            raise
        return replace(_bare(store, row or to_run(_without_json(raw))), damaged=str(problem))


def _without_json(raw: Row) -> Row:
    blank: dict[str, SqlValue] = {"source": None, "owner": None, "tags": "{}"}
    names = RunRow.__dataclass_fields__
    return tuple(blank.get(name, value) for name, value in zip(names, raw, strict=True))


def unfinished(store: Store, own_claims: Set[str]) -> list[RunRow]:
    """Runs that nobody executes and that could go on now, oldest first.

    Args:
        own_claims: see `leases.is_abandoned`.
    """
    rows = [to_run(row) for row in store.read("list_unfinished")]
    now = store.world.wall()
    return [
        row
        for row in rows
        if is_abandoned(row, store.world, own_claims) and (row.due_at is None or row.due_at <= now)
    ]


def live_runs(store: Store, workflow: str | None) -> list[tuple[str, str]]:
    """Id and workflow of the runs that have not ended, executed or not, oldest first."""
    return cast(list[tuple[str, str]], store.read("live_runs", workflow=workflow))


def workflows(store: Store) -> list[str]:
    """Names of the workflows that have runs, ended or not."""
    return [str(name) for (name,) in store.read("workflows")]


def _live_owner(row: RunRow, store: Store) -> str | None:
    """The process that executes the run, in words; None if nobody does."""
    if row.owner is None or is_abandoned(row, store.world, _own_claims(row, store)):
        return None
    return f"process {row.owner.pid} on {row.owner.host}"


def _own_claims(row: RunRow, store: Store) -> frozenset[str]:
    # A claim of this very process counts as alive here: a view cannot ask the engine.
    here = store.world.identity()
    owner = row.owner
    return frozenset({owner.nonce}) if owner and owner.pid == here.pid else frozenset()


def run_view(store: Store, row: RunRow, *, with_steps: bool = True) -> RunView:
    """A run as an operator sees it.

    Raises:
        StoreError, Unreadable: something that was to be shown cannot be read.
    """
    view = _bare(store, row)
    if not with_steps:
        ((finished, turn, cut),) = cast(
            list[tuple[int, int | None, bool]], store.read("progress_of", run_id=row.run_id)
        )
        if not cut:
            return replace(_with_ending(view, _last(store, row)), finished=finished, turn=turn)
    rows = read_events(store, row.run_id)
    alive = row.status in ("running", "waiting") and view.owner is not None
    steps = steps_of(rows, row.uid, alive=alive, now=store.world.wall())
    done = sum(step.status == "completed" for step in steps)
    view = replace(view, steps=steps if with_steps else [], finished=done, turn=_turn(rows))
    return _with_ending(_with_origin(view, rows), _last(store, row))


def _bare(store: Store, row: RunRow) -> RunView:
    """What a run's row alone tells."""
    owner = _live_owner(row, store)
    going_on = row.status in ("running", "waiting")
    return RunView(
        run_id=row.run_id,
        workflow=row.workflow,
        status=row.status,
        reason=row.reason,
        interrupted=going_on and row.owner is not None and owner is None,
        result=None,
        error=None,
        detail=row.detail,
        created_at=row.created_at,
        updated_at=row.updated_at,
        due_at=row.due_at,
        trace_id=row.trace_id,
        tags=row.tags,
        epoch=row.epoch,
        seq=row.seq,
        head=row.head.hex(),
        owner=owner,
    )


def _last(store: Store, row: RunRow) -> StoredEvent | None:
    kinds = {"completed": "run.completed", "failed": "run.failed", "held": "run.held"}
    kind = kinds.get(row.status)
    rows = store.read("read_last_of_kind", run_id=row.run_id, kind=kind) if kind else []
    return to_event(rows[0]) if rows else None


def _with_origin(view: RunView, rows: Sequence[StoredEvent]) -> RunView:
    created = decode_stored(rows[0]) if rows else None
    if not isinstance(created, events.RunCreated) or created.forked is None:
        return view
    return replace(view, forked_from=created.forked.run_id, forked_at=created.forked.step)


def _with_ending(view: RunView, last: StoredEvent | None) -> RunView:
    if last is None:
        return view
    event = decode_stored(last)
    match event:
        case events.RunCompleted():
            return replace(view, result=codec.plain(bytes(event.result)))
        case events.RunFailed():
            error = f"{event.error.type}: {event.error.message}"
            return replace(view, error=error, traceback=event.error.traceback or None)
        case events.RunHeld():
            return replace(view, held_at=event.step)
        case _:
            return view


def _turn(rows: Iterable[StoredEvent]) -> int | None:
    turn = None
    for row in cuts.split(rows)[0]:
        if row.kind == "turn.saved":
            turn = cast(events.TurnSaved, decode_stored(row)).turn
    return turn


def decode_stored(row: StoredEvent) -> events.Event:
    """What an event says.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return events.decode(row.kind, row.data)
    except (KeyError, msgspec.DecodeError) as problem:
        raise StoreError(
            f"event {row.seq} ({row.kind}) of run {row.run_id} cannot be read: it was altered, or "
            f"a newer outlast wrote it; check with: outlast verify {row.run_id}",
            "damaged",
        ) from problem


# ---- steps


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
    retrying: bool = False  # waits for its next attempt
    opened: float | None = None  # when the attempt that is open was opened
    worked: float = 0.0
    unmeasured: int = 0


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
    """The steps that an operator may settle."""
    return [step for step in steps if step.status == "in-doubt"]


def _apply(step: _Step, event: events.Event, at: float) -> None:
    match event:
        case events.StepStarted():
            step.repeated |= event.attempt > 1 and event.effect == "assumed"
            step.effect, step.attempts, step.preview = event.effect, event.attempt, event.preview
            step.alias, step.variant = event.alias, event.variant
            if not step.retrying:
                step.error = step.fault = None  # the doubt that went before
            step.status, step.ended, step.retrying = "running", None, False
            step.opened = at
        case events.StepCompleted():
            step.status, step.ended, step.error, step.fault = "completed", at, None, None
        case events.StepFailed():
            step.retrying = not event.final
            step.status, step.ended = ("failed", at) if event.final else ("running", None)
            step.error, step.fault = f"{event.error.type}: {event.error.message}", event.error.fault
        case events.StepInterrupted():
            _cut_off(step, "interrupted", PROCESS_ENDED)
            step.ended = at
        case events.StepAbandoned():
            if step.status == "running":
                _cut_off(step, "abandoned", "the workflow cancelled it")
            step.ended = at
        case events.StepInDoubt():
            step.status, step.ended, step.error = "in-doubt", at, event.why
            step.fault = "unknown-outcome"
        case events.StepReconciled():
            step.reconciled = f"{event.answer}: {event.why}" if event.why else event.answer
            if event.answer != "done":
                step.status = "interrupted" if event.answer == "not-done" else "in-doubt"
        case events.StepSettled():
            step.status = "interrupted" if event.decision == "not-done" else "failed"
            step.status = "completed" if event.decision == "done" else step.status
            step.error = event.text or None
            step.reconciled = f"settled {event.decision}" + (f" by {event.by}" if event.by else "")
        case _:
            pass


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
        worked=step.worked,
        unmeasured=step.unmeasured + unknown,
    )
