"""Undoing what a run has done: its compensations, in the reverse order of what they undo.

Like flow.py it is a generator without I/O, and each compensation goes through flow.py as a step.

    in doubt?  look for a late result, ask reconcile; else hold. Before anything is undone
    done?      its compensation, as a step of its own; what that has recorded is not done again
    else       it is listed as left
    a child?   it is undone in its turn, see undo_children.py
"""

import inspect
from collections import OrderedDict
from collections.abc import Generator, Mapping
from typing import cast

from msgspec import Struct

from outlast import codec, events
from outlast.engine import holds
from outlast.engine.children import end_children
from outlast.engine.deeds import Deed, deeds_of, find_step
from outlast.engine.doubt import LATE, ask
from outlast.engine.ended import Raised, Returned, Stopped
from outlast.engine.flow import run_step
from outlast.engine.history import UNDO, Past, key_of, position_of
from outlast.engine.outcomes import pack
from outlast.engine.requests import Call, Drain, Flow, Late, Reply, Request, Write
from outlast.engine.run import Run
from outlast.engine.spec import StepSpec, WorkflowSpec, hints_of, return_hint
from outlast.engine.stop import Release
from outlast.engine.stopping import hold
from outlast.engine.undo_children import find_out_below, journal_of, left_of_child, undo_child
from outlast.errors import (
    NotDone,
    NotStorable,
    StepFailed,
    StopRun,
    Unreadable,
    UsageError,
)
from outlast.journal import Becomes, Entry
from outlast.records import Done, StoredEvent, Unknown

UNDONE = "undone"
"""The type of the error of a run that was undone and had not failed before."""


class Undone(Struct, frozen=True):
    """All is undone that can be.

    Attributes:
        event: what there is to say about it.
        failure: how the run had failed before; `killed`: why it was killed, if it was.
    """

    event: events.RunUndone
    failure: events.RunFailed | None = None
    killed: str | None = None

    def last_word(self, asked: events.RunUndoing) -> tuple[events.Event, Becomes]:
        """How a run ends that somebody asked to undo. One that had completed is not shown as such
        any more: its result does not stand."""
        if asked.after == "killed":
            return self.event, Becomes("killed", detail=self.killed or None)
        failure = self.failure
        if failure is None or failure.error.type == UNDONE:
            who = f" by {asked.by}" if asked.by else ""
            error = events.ErrorRecord(UNDONE, f"what the run had done was undone{who}", "workflow")
            return events.RunFailed(error), Becomes("failed", UNDONE, error.message)
        return failure, Becomes("failed", failure.error.type, failure.error.message)


def is_wanted(run: Run, spec: WorkflowSpec, ended: Returned | Raised | Stopped) -> bool:
    """Whether what the run has done is to be undone now: somebody has asked for it, or its workflow
    has raised and says so."""
    if run.stop is not None or run.dry is not None:
        return False
    return is_undone_by_request(run) or (spec.on_failure == "undo" and _failed(run, spec, ended))


def is_undone_by_request(run: Run) -> bool:
    """Whether somebody has asked to undo the run, so that its workflow is not executed."""
    return run.history.undoing is not None and run.dry is None


def _failed(run: Run, spec: WorkflowSpec, ended: Returned | Raised | Stopped) -> bool:
    """Whether a workflow has raised, or has returned what cannot be stored."""
    if isinstance(ended, Returned):
        try:
            run.encode(ended.value, "", return_hint(spec.fn))
        except NotStorable:
            return True
    return isinstance(ended, Raised)


def undo(run: Run, spec: WorkflowSpec) -> Generator[Request, Reply, Undone | None]:
    """Undo what the run has done. Once the workflow has ended: nothing else opens in the run. None
    if the workflow does not fit its record, for which the run is going to be held.

    Raises:
        StopRun: the run must stop; another process goes on from the record.
    """
    run.ended = True
    yield from end_children(run)
    yield Drain()
    run.check()
    asked = run.history.undoing
    if asked is None and run.history.unconsumed():
        return None
    rows, altered = yield from journal_of(run)
    if altered is not None:
        yield from hold(run, holds.altered(run, altered))
    deeds = deeds_of(rows)
    since = 0
    if asked is not None and asked.to:
        since = next((deed.order for deed in deeds if deed.past.key == asked.to), 0)
    concerned = [deed for deed in deeds if deed.order >= since]
    for deed in concerned:
        if deed.standing == "doubt" and deed.place:
            yield from _find_out(run, spec, deed)
        if deed.standing == "run":
            yield from find_out_below(run, deed)
    if run.asks_only:
        run.request_stop(Release("what was in doubt is known"))
        raise StopRun(run.stop)
    undone: list[str] = []
    for deed in reversed(concerned):
        if deed.standing == "done" and (yield from _undo(run, spec, deed)):
            undone.append(deed.past.key)
        if deed.standing == "run" and (yield from undo_child(run, deed)):
            undone.append(deed.past.key)
    gone = {*undone, *(deed.past.key for deed in deeds if _is_undone(run, deed))}
    left = [key for deed in deeds for key in _left(run, deed, gone)]
    return _summary(rows, events.RunUndone(undone, left))


def _left(run: Run, deed: Deed, gone: set[str]) -> list[str]:
    """What stays of a call."""
    if deed.standing == "run":
        return left_of_child(run, deed)
    return [] if deed.standing == "nothing" or deed.past.key in gone else [deed.past.key]


def _is_undone(run: Run, deed: Deed) -> bool:
    """Whether an earlier request has undone it."""
    past = run.history.undoes.get(UNDO + position_of(deed.past.key))
    return past is not None and isinstance(past.outcome, events.StepCompleted)


def _summary(rows: list[StoredEvent], event: events.RunUndone) -> Undone:
    failure, killed = None, None
    for row in rows:
        if row.kind == events.RunFailed.kind:
            failure = cast(events.RunFailed, events.decode(row.kind, row.data))
        elif row.kind == events.RunKilled.kind:
            killed = cast(events.RunKilled, events.decode(row.kind, row.data)).why
    return Undone(event, failure, killed)


# ---- one step


def _undo(run: Run, workflow: WorkflowSpec, deed: Deed) -> Generator[Request, Reply, bool]:
    """Run the compensation of a step that took effect, or take it from the record. False if there
    is none, or an operator wants the step left alone."""
    step = yield from _found(run, workflow, deed)
    if step is None or step.undo is None:
        return False
    wanted = step.undo.signature.parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    known = yield from _arguments(run, deed, step)
    given = {name: value for name, value in known.items() if takes_all or name in wanted}
    if "result" in wanted or takes_all:
        result = yield from _result(run, deed, step)
        if isinstance(result, Unknown):
            return False
        given["result"] = result.value
    call = _call(deed, step.undo, given)
    try:
        yield from run_step(run, call)
    except StepFailed as problem:
        if problem.type == events.SETTLED:
            return False
        yield from hold(run, holds.undo_failed(run, call, problem))
    except Exception as problem:
        yield from hold(run, holds.undo_failed(run, call, problem))
    return True


def _call(deed: Deed, undo: StepSpec, given: Mapping[str, object]) -> Call:
    """The call of a compensation. Nobody compares its arguments: they come from the record."""
    position = UNDO + position_of(deed.past.key)
    key = key_of(undo.name, position)
    shown = {name: value for name, value in given.items() if name != "result"}
    return Call(undo, key, position, (), given, shown, "")


def _found(
    run: Run, workflow: WorkflowSpec, deed: Deed
) -> Generator[Request, Reply, StepSpec | None]:
    """The step of a recorded call, in the code at hand, with the name that is recorded. None if it
    had no undo, or was defined where only the process that called it could find it."""
    if not deed.place:
        return None
    step = run.undoable.get(deed.place) or find_step(deed.place, workflow)
    if step is None or step.undo is None:
        if "<locals>" in deed.place:
            return None
        yield from hold(run, holds.undo_missing(run, deed.past.key, deed.place))
    assert step is not None
    return step


def _arguments(
    run: Run, deed: Deed, step: StepSpec
) -> Generator[Request, Reply, Mapping[str, object]]:
    """The recorded arguments of a call, by name."""
    hints = (*hints_of(inspect.unwrap(step.fn)).values(), step.fn, *run.history.moved)
    try:
        known = codec.decode(bytes(deed.args), hints=hints)
    except Unreadable as problem:
        where = f"the arguments of step {deed.past.key}: {problem}"
        yield from hold(run, holds.unreadable(run, where))
    return cast(Mapping[str, object], known)


def _result(
    run: Run, deed: Deed, step: StepSpec
) -> Generator[Request, Reply, Done[object] | Unknown]:
    """What the step has returned, as far as it could be stored."""
    past = deed.past
    settled = deed.settled or past.settled
    try:
        if settled is not None:
            return Done(codec.from_plain(bytes(settled.value), return_hint(step.fn)))
        stored = past.late.value if deed.is_late and past.late is not None else events.ABSENT
        if isinstance(past.outcome, events.StepCompleted):
            stored = past.outcome.value
        if not bytes(stored):
            return Unknown()
        return Done(codec.decode(bytes(stored), hints=(return_hint(step.fn), *run.history.moved)))
    except Unreadable as problem:
        where = f"the result of step {past.key}: {problem}"
        yield from hold(run, holds.unreadable(run, where))
    except UsageError as problem:
        said = events.StepReconciled("unknown", f"the settled value does not fit: {problem}", True)
        yield Write((Entry(said, past.key),), "record")
        call = Call(step, past.key, position_of(past.key), (), {}, {}, "")
        yield from hold(run, holds.unfit_settlement(run, call, problem))
    raise AssertionError("hold does not return")


# ---- a step in doubt


def _find_out(run: Run, workflow: WorkflowSpec, deed: Deed) -> Flow:
    """Whether a `once` step took effect. The workflow is told nothing of it: should it run again,
    it sees its call end as before."""
    step = yield from _found(run, workflow, deed)
    if step is None:
        return None
    past = deed.past
    known = yield from _arguments(run, deed, step)
    call = Call(step, past.key, position_of(past.key), (), {}, known, "")
    answer: Done[object] | NotDone | Unknown
    ended = yield Late(past.key)
    why = ""
    if isinstance(ended, Returned):
        answer, why = Done(ended.value), LATE
    else:
        answer = yield from _asked(run, call, past)
    match answer:
        case Done(value):
            yield from _note_done(run, deed, step, value, why)
        case NotDone():
            yield from _note(deed, events.StepReconciled("not-done", undoing=True))
        case Unknown(why):
            yield from _note(deed, events.StepReconciled("unknown", why, undoing=True))
            doubt = past.doubt or "it is not known how it ended"
            yield from hold(run, holds.in_doubt(run, call, past, doubt, answer))
    return None


def _asked(
    run: Run, call: Call, past: Past
) -> Generator[Request, Reply, Done[object] | NotDone | Unknown]:
    parameters = call.spec.signature.parameters
    missing = [
        name
        for name, p in parameters.items()
        if name not in call.recorded
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if missing and call.spec.reconcile is not None:
        return Unknown(f"it was not asked, since {', '.join(missing)} is not recorded of the step")
    bound = inspect.BoundArguments(call.spec.signature, OrderedDict(call.recorded))
    bound.apply_defaults()
    full = Call(
        call.spec, call.key, call.position, bound.args, bound.kwargs, call.recorded, call.digest
    )
    return (yield from ask(run, full, past))


def _note_done(run: Run, deed: Deed, step: StepSpec, value: object, why: str) -> Flow:
    """It took effect. The value is kept as evidence is, which no workflow is given."""
    said = events.StepReconciled("done", why, undoing=True)
    try:
        where = f"reconciled result of step {deed.past.key}"
        data = run.encode(value, where, return_hint(step.fn))
    except NotStorable:
        yield from _note(deed, said)
        return None
    stored, cancelled = yield from pack(data)
    deed.past.late = events.StepLate(deed.past.attempts, value=stored)
    yield from _note(deed, said, deed.past.late)
    if cancelled is not None:
        raise cancelled
    return None


def _note(deed: Deed, said: events.StepReconciled, *more: events.Event) -> Flow:
    entries = tuple(Entry(event, deed.past.key) for event in (said, *more))
    yield Write(entries, "record")
    deed.answer, deed.settled = said.answer, None
    return None
