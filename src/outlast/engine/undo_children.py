"""Undoing what the children of a run have done, each in its turn among the steps of its parent.

A child is undone as any other run is, by its own record and into its own journal; its parent
executes that, and records that it began and that it has come to its end.
"""

from collections.abc import Generator
from typing import cast

from outlast import events
from outlast.control import CheckUndone
from outlast.engine.children import wait_for_child
from outlast.engine.deeds import Deed, deeds_of, find_workflow
from outlast.engine.history import UNDO, Past, key_of, position_of
from outlast.engine.holds import child_held, child_missing, child_not_undone
from outlast.engine.loading import Loaded
from outlast.engine.requests import (
    Child,
    ChildCall,
    ChildHeld,
    ChildLeft,
    ChildNews,
    ChildSleeps,
    Flow,
    Recall,
    Reply,
    Request,
    Write,
)
from outlast.engine.run import Run
from outlast.engine.spec import WorkflowSpec
from outlast.engine.stop import Broken
from outlast.engine.stopping import hold
from outlast.errors import StopRun, StoreError, UsageError
from outlast.events import ChildEnded, ChildStarted
from outlast.journal import Entry, to_event, to_run


def undo_child(run: Run, deed: Deed) -> Generator[Request, Reply, bool]:
    """Undo what a child has done, once. Whether there was anything.

    Raises:
        StopRun: the run must stop.
    """
    child, position = deed.past.child, UNDO + position_of(deed.past.key)
    past = run.history.undoes.get(position)
    if past is None or past.outcome is None:
        spec = yield from _found(run, deed)
        if spec is None:
            return False
        key = key_of(f"{deed.past.name}.undo", position)
        call = ChildCall(spec, key, position, child, {}, b"", "")
        yield from _carry_out(run, call, past)
    told = _undone(run, child)
    return told is not None and bool(told.undone)


def find_out_below(run: Run, deed: Deed) -> Flow:
    """Resolve what is in doubt in a child, or in one of its own, before anything is undone.

    Raises:
        StopRun: the run must stop.
    """
    if not (yield from _is_in_doubt(run, deed.past.child)):
        return None
    before, run.asks_only = run.asks_only, True
    try:
        yield from undo_child(run, deed)
    finally:
        run.asks_only = before
    return None


def _is_in_doubt(run: Run, child: str) -> Generator[Request, Reply, bool]:
    rows, altered = yield from journal_of(run, child)
    if altered is not None:
        return False  # it will be held for that
    for deed in deeds_of(rows):
        if deed.standing == "doubt" and deed.place:
            return True
        if deed.standing == "run" and (yield from _is_in_doubt(run, deed.past.child)):
            return True
    return False


def journal_of(run: Run, run_id: str = "") -> Generator[Request, Reply, Loaded]:
    """All events of a run or of a child, and the first one that was altered.

    Raises:
        StopRun: they cannot be read.
    """
    try:
        return cast(Loaded, (yield Recall(run_id)))
    except StoreError as problem:
        run.request_stop(Broken(problem))
        raise StopRun(run.stop) from None


def left_of_child(run: Run, deed: Deed) -> list[str]:
    """What stays of a child: keys in its journal, behind that of its call; if it was not undone,
    all of it."""
    key = deed.past.key
    told = _undone(run, deed.past.child)
    return [key] if told is None else [f"{key}/{left}" for left in told.left]


def _undone(run: Run, child: str) -> events.RunUndone | None:
    rows = run.read("read_last_of_kind", run_id=child, kind=events.RunUndone.kind)
    for stored in map(to_event, rows):
        return cast(events.RunUndone, events.decode(stored.kind, stored.data))
    return None


def _found(run: Run, deed: Deed) -> Generator[Request, Reply, WorkflowSpec | None]:
    """The child's workflow, in the code at hand. None if only the process that called it could find
    it, or nothing is left of the child."""
    child = deed.past.child
    rows = run.read("read_run", run_id=child)
    if not rows:
        return None
    row = to_run(rows[0])
    known = run.workflows.get(row.workflow)
    if known is not None or row.source is None:
        return known
    spec = find_workflow(row.source)
    if spec is None or spec.name != row.workflow:
        place = f"{row.source.module}:{row.source.name}"
        yield from hold(run, child_missing(run, deed.past.key, child, place))
    return spec


def _carry_out(run: Run, call: ChildCall, past: Past | None) -> Flow:
    entries: tuple[Entry, ...] = ()
    if past is None:
        past = run.history.undoes[call.position] = Past(call.key, call.spec.name)
        entries = (Entry(ChildStarted(call.run_id, call.spec.name), call.key),)
    run.history.children.add(call.position)
    while past.outcome is None:
        run.check()
        assert run.family is not None
        try:
            begin = run.family.undoing(run, call.run_id)
            yield Write(entries, "open", along=(begin,))
            entries = ()
            news = yield Child(call)
            if isinstance(news, ChildLeft) and run.asks_only and run.stop is None:
                return None
            yield from _hear(run, call, past, cast(ChildNews, news))
        except UsageError as problem:
            yield from hold(run, child_not_undone(run, call.key, call.run_id, problem))
    return None


def _hear(run: Run, call: ChildCall, past: Past, news: ChildNews) -> Flow:
    """What has become of a child that is being undone."""
    match news:
        case ChildEnded(status):
            ended = ChildEnded(status)
            try:
                check = CheckUndone(call.run_id)
                yield Write((Entry(ended, call.key),), "record", along=(check,))
            finally:
                run.kin.ends(call.key)
            past.outcome = ended
            run.history.children.discard(call.position)
        case ChildSleeps(due):
            yield from wait_for_child(run, call.key, call.run_id, due)
        case ChildHeld():
            yield Write((), "open", durable=False)
            yield from hold(run, child_held(run, call.key, call.run_id, news))
        case _:
            run.check()
    return None
