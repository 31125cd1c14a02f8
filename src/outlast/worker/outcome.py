"""From how a run stands to what its caller gets: a result or one of the RunStopped errors."""

from outlast import codec, events
from outlast.emergency import read_stop
from outlast.engine.lifecycle import Conclusion
from outlast.engine.run import EMERGENCY, Run
from outlast.engine.spec import WorkflowSpec, return_hint
from outlast.engine.stop import Asleep, Broken, Lost, Moved
from outlast.errors import (
    OutlastError,
    RunFailed,
    RunHeld,
    RunKilled,
    RunReleased,
    RunWaiting,
    StoreStopped,
    Unreadable,
)
from outlast.journal import first_altered, to_event
from outlast.records import FINAL, RunRow
from outlast.store.writer import Store
from outlast.views import read_run
from outlast.world import utc_text


def result_of_conclusion(conclusion: Conclusion, spec: WorkflowSpec) -> object:
    """The result of a run that this process executed.

    Raises:
        RunStopped: there is none.
        StoreError: the store failed under the run.
    """
    run, event = conclusion.run, conclusion.event
    if isinstance(run.stop, Moved):
        row = read_run(run.store, run.run_id)
        assert row is not None
        return result_of_row(run.store, row, spec)
    match event:
        case events.RunCompleted():
            return _decode(bytes(event.result), run.run_id, spec)
        case events.RunFailed():
            raise _failed(run.run_id, event) from conclusion.cause
        case events.RunHeld():
            raise RunHeld(run.run_id, event.reason, event.detail, event.fix)
        case events.RunUndone():  # of a run that was killed
            row = read_run(run.store, run.run_id)
            assert row is not None
            return result_of_row(run.store, row, spec)
        case _:
            pass
    match run.stop:
        case Asleep(due):
            wants = run.waits_until(due)
            text = _waiting_text(run.run_id, wants.due_at, wants.detail)
            raise RunWaiting(run.run_id, wants.due_at, text)
        case Lost(error):
            row = read_run(run.store, run.run_id)
            if row is not None and row.status == "killed":  # which is how it was lost
                return result_of_row(run.store, row, spec)
            raise error
        case Broken(error):
            raise error
        case stop:
            if stop == EMERGENCY and (why := read_stop(run.store)) is not None:
                raise StoreStopped(why.since, why.by, why.why)
            raise RunReleased(
                run.run_id,
                f"run {run.run_id} was released ({getattr(stop, 'why', stop)}); go on with: "
                f"outlast resume {run.run_id}{_kept(run)}",
            )


def _kept(run: Run) -> str:
    if not run.keeps_owner:
        return ""
    return (
        ". A step that could not be stopped still runs in this process, which keeps the run until "
        "the step or the process ends"
    )


def result_of_row(store: Store, row: RunRow, spec: WorkflowSpec | None) -> object:
    """The result of a run as the store has it.

    Args:
        spec: helps to find the classes in the result.

    Raises:
        RunStopped: there is no result.
    """
    run_id = row.run_id
    if row.status in FINAL:
        store.sync()  # whoever wrote it may still wait for the disk, and what is told must last
    match row.status:
        case "completed":
            event = _last(store, run_id, "run.completed")
            assert isinstance(event, events.RunCompleted)
            return _decode(bytes(event.result), run_id, spec, _moved(row, spec))
        case "failed":
            failed = _last(store, run_id, "run.failed")
            assert isinstance(failed, events.RunFailed)
            raise _failed(run_id, failed) from _cause(failed, _moved(row, spec))
        case "held":
            held = _last(store, run_id, "run.held")
            fix = held.fix if isinstance(held, events.RunHeld) else ""
            raise RunHeld(run_id, row.reason or "", row.detail or "", fix)
        case "killed":
            raise RunKilled(run_id, f"run {run_id} was killed: {row.detail or 'no reason given'}")
        case "waiting":
            text = _waiting_text(run_id, row.due_at, row.detail)
            raise RunWaiting(run_id, row.due_at, text)
        case _:
            text = f"run {run_id} is {row.status}; go on with: outlast resume {run_id}"
            raise RunReleased(run_id, text)


def _moved(row: RunRow, spec: WorkflowSpec | None) -> tuple[codec.Moved, ...]:
    """The workflow's module, if it is another one than that of the process that ended the run."""
    if row.source is None or spec is None:
        return ()
    return (codec.Moved(row.source.module, spec.module),)


def _waiting_text(run_id: str, due: float | None, detail: str | None) -> str:
    when = "" if due is None else f" until {utc_text(due)}"
    what = f" ({detail})" if detail else ""
    return f"run {run_id} waits{when}{what}; then go on with: outlast resume {run_id}"


def _last(store: Store, run_id: str, kind: str) -> events.Event | None:
    rows = store.read("read_last_of_kind", run_id=run_id, kind=kind)
    if not rows:
        return None
    row = to_event(rows[0])
    beside = store.read("read_events_after", run_id=run_id, seq=row.seq - 2)
    if first_altered([to_event(r) for r in beside]) is not None:
        raise Unreadable(
            f"event {row.seq} of run {run_id} ({kind}) is not as it was written: the store's file "
            f"is damaged, or somebody changed it; see: outlast verify {run_id}"
        )
    return events.decode(row.kind, row.data)


def _failed(run_id: str, event: events.RunFailed) -> RunFailed:
    error = event.error
    return RunFailed(run_id, f"run {run_id} failed: {error.type}: {error.message}")


def _cause(event: events.RunFailed, hints: tuple[object, ...]) -> Exception | None:
    try:
        return codec.rebuild_error(event.error, hints=hints)
    except OutlastError:
        return None  # the text in RunFailed says it all the same


def _decode(
    data: bytes, run_id: str, spec: WorkflowSpec | None, moved: tuple[object, ...] = ()
) -> object:
    hints = () if spec is None else (return_hint(spec.fn),)
    try:
        return codec.decode(data, hints=(*hints, *moved))
    except Unreadable as problem:
        raise Unreadable(f"result of run {run_id}: {problem}") from None
