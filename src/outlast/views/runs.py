"""Runs as an operator sees them, and lists of them."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import cast

from outlast import codec, cuts, events
from outlast.emergency import read_stop
from outlast.errors import StoreError, Unreadable
from outlast.journal import to_event, to_run
from outlast.leases import is_abandoned
from outlast.records import KillView, RunRow, RunView, StoredEvent
from outlast.store.base import Row, SqlValue
from outlast.store.writer import Store
from outlast.views.family import with_family
from outlast.views.mail import with_mail
from outlast.views.reading import decode_stored, read_events
from outlast.views.spending import with_budget
from outlast.views.steps import steps_of


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
    now = store.world.wall()
    rows = upcoming(store, own_claims)
    return [row for row in rows if row.due_at is None or row.due_at <= now]


def upcoming(store: Store, own_claims: Set[str]) -> list[RunRow]:
    """Runs that nobody executes and that go on by themselves, now or at a time, oldest first.

    Args:
        own_claims: see `leases.is_abandoned`.
    """
    rows = [to_run(row) for row in store.read("list_unfinished")]
    return [
        row for row in rows if not _is_parked(row) and is_abandoned(row, store.world, own_claims)
    ]


def _is_parked(row: RunRow) -> bool:
    """Whether it goes on only once something comes from outside. One whose process has died while
    it waited may have had something else to do."""
    return row.status == "waiting" and row.due_at is None and row.owner is None


def live_runs(store: Store, workflow: str | None) -> list[tuple[str, str]]:
    """Id and workflow of the runs that have not ended, executed or not, oldest first."""
    return cast(list[tuple[str, str]], store.read("live_runs", workflow=workflow))


def workflows(store: Store) -> list[str]:
    """Names of the workflows that have runs, ended or not."""
    return [str(name) for (name,) in store.read("workflows")]


def run_owner(store: Store, row: RunRow) -> str | None:
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
            view = _with_ending(view, _last(store, row))
            return _with_kill(store, row, replace(view, finished=finished, turn=turn))
    rows = read_events(store, row.run_id)
    pausing = row.status == "held" and row.reason == "paused"
    alive = view.owner is not None and (pausing or row.status in ("running", "waiting"))
    steps = steps_of(rows, row.uid, alive=alive, now=store.world.wall())
    done = sum(step.status == "completed" for step in steps)
    view = replace(view, steps=steps if with_steps else [], finished=done, turn=_turn(rows))
    if with_steps:
        view = with_budget(store, view, row.root or row.run_id)
        view = replace(with_mail(store, view), stopped=read_stop(store))
        view = _with_undone(with_family(store, view, rows), rows)
    return _with_kill(store, row, _with_ending(_with_origin(view, rows), _last(store, row)))


def _bare(store: Store, row: RunRow) -> RunView:
    """What a run's row alone tells."""
    owner = run_owner(store, row)
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
        parent=row.parent,
    )


def _with_kill(store: Store, row: RunRow, view: RunView) -> RunView:
    if row.status != "killed":
        return view
    kill = kill_view(store, row)
    return replace(view, owner=kill.owner, kill=kill)


def kill_view(store: Store, row: RunRow) -> KillView:
    """What is known about the kill of a killed run. Reads two events.

    Raises:
        StoreError: they cannot be read.
    """
    killed, stopped = (
        None if not found else to_event(found[0])
        for found in (
            store.read("read_last_of_kind", run_id=row.run_id, kind=kind)
            for kind in (events.RunKilled.kind, events.RunStopped.kind)
        )
    )
    said = events.RunKilled() if killed is None else decode_stored(killed)
    assert isinstance(said, events.RunKilled)
    at = row.updated_at if killed is None else killed.at
    # One of an earlier kill, before a revival, says nothing about this one.
    noted = None
    if stopped is not None and killed is not None and stopped.seq > killed.seq:
        noted = decode_stored(stopped)
    assert noted is None or isinstance(noted, events.RunStopped)
    survivors = [] if noted is None else noted.survivors
    owner = row.owner
    if owner is not None and store.world.liveness(owner) == "dead":
        owner = None
    return KillView(
        at=at,
        by=said.by,
        why=said.why,
        grace=said.grace,
        parent=said.parent,
        stopped=owner is None and not survivors,
        owner=None if owner is None else f"process {owner.pid} on {owner.host}",
        seconds=None if noted is None else noted.seconds,
        ended=[] if noted is None else noted.ended,
        survivors=survivors,
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


def _with_undone(view: RunView, rows: Sequence[StoredEvent]) -> RunView:
    """What was undone, by whichever request, and what is left after the latest."""
    for row in rows:
        if row.kind == events.RunUndone.kind:
            event = cast(events.RunUndone, decode_stored(row))
            undone = dict.fromkeys([*(view.undone or ()), *event.undone])
            view = replace(view, undone=list(undone), left=event.left)
    return view


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
            return replace(view, held_at=event.step, fix=event.fix or None)
        case _:
            return view


def _turn(rows: Iterable[StoredEvent]) -> int | None:
    turn = None
    for row in cuts.split(rows)[0]:
        if row.kind == "turn.saved":
            turn = cast(events.TurnSaved, decode_stored(row)).turn
    return turn
