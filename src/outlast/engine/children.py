"""A workflow called in a workflow: a child run. How the call goes, as one generator (see flow.py).

recorded?  return it
else       create the child -> let it be executed -> record what it came to
it waits?  wait as long        it is held?  the parent is held with it
"""

import hashlib
import math
from collections.abc import Coroutine, Generator, Mapping
from contextlib import suppress
from functools import partial
from typing import cast

from msgspec import Struct, structs

from outlast import codec
from outlast.control import Kill
from outlast.engine import guards
from outlast.engine.drive import drive_async, drive_sync
from outlast.engine.flow import wait_until
from outlast.engine.history import Past, key_of
from outlast.engine.holds import Asked, child_held, misfit, unreadable
from outlast.engine.requests import (
    Cancelled,
    Child,
    ChildCall,
    ChildHeld,
    ChildNews,
    ChildSleeps,
    Deliver,
    Drain,
    Flow,
    Reply,
    Request,
    Write,
)
from outlast.engine.run import Run
from outlast.engine.scope import Scope
from outlast.engine.sites import call_site, warn_at
from outlast.engine.spec import WorkflowSpec, return_hint
from outlast.engine.stopping import abandon, cancelled_again, check_next, hold
from outlast.errors import ChildFailed, ChildKilled, StopRun, Unreadable, UsageError
from outlast.events import ABSENT, ChildEnded, ChildStarted, ErrorRecord
from outlast.journal import Along, Entry, to_run
from outlast.leases import live_below
from outlast.records import FINAL, Status
from outlast.store.base import Tx

MAX_RUN_ID = 200
"""Characters that a run id may have."""

BY, ENDED, CANCELLED = "outlast", "its parent has ended", "its parent cancelled it"
"""Who ends a child whose parent does not want it any more, for the record, and why."""


def child_id(run: Run, key: str) -> str:
    """The id of the child that a call makes: that of its parent, and the call's key. If an operator
    dropped such a call, the next one there makes another child."""
    again = run.history.replaced[key]
    tail = f"/{key}" + (f"~{again + 1}" if again else "")
    if len(run.run_id) + len(tail) <= MAX_RUN_ID:
        return run.run_id + tail
    mark = hashlib.sha256(f"{run.run_id}{tail}".encode()).hexdigest()[:20]
    return f"{run.run_id[: MAX_RUN_ID - 21].rstrip()}/{mark}"


def make_child_call(
    spec: WorkflowSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> ChildCall:
    """Take the call's position, now.

    Raises:
        TypeError: the arguments do not fit the function's signature; no position is taken.
        NotStorable: an argument cannot be stored.
    """
    run = scope.run
    bound = spec.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    values = dict(bound.arguments)
    where = f"argument of workflow {spec.name}: arguments"
    data = run.encode(values, where, spec.fn)
    run.workflows[spec.name] = spec
    digest = codec.digest(values, where=where, limit=run.settings.max_value_bytes)
    position = scope.take()
    key, site = key_of(spec.name, position), call_site(scope, 4)
    if spec.budget is not None:
        text = (
            f"workflow {spec.name} has a budget of its own, which does not count where it is "
            "called in another run: it spends from that one's"
        )
        warn_at(site, text)
    return ChildCall(spec, key, position, child_id(run, key), values, data, digest, site)


def call_child(
    spec: WorkflowSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """A plain workflow, called in workflow code."""
    scope.run.check()
    return drive_sync(run_child(scope.run, make_child_call(spec, scope, args, kwargs)), scope.run)


def call_child_async(
    spec: WorkflowSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Coroutine[object, object, object]:
    """An asynchronous workflow, called in workflow code: takes its position and returns a
    coroutine."""
    scope.run.check()
    refuse_async(spec, scope.run)
    call = make_child_call(spec, scope, args, kwargs)
    coroutine = drive_async(run_child(scope.run, call), scope.run)
    # For Python's warning, should nobody await it.
    coroutine.__qualname__ = f"child run {call.run_id}"  # type: ignore[attr-defined]
    return coroutine


def refuse_async(spec: WorkflowSpec, run: Run) -> None:
    """An asynchronous child needs the event loop of an asynchronous parent.

    Raises:
        UsageError: there is none.
    """
    if run.sequencer is None:
        raise UsageError(
            f"workflow {spec.name} is asynchronous, and a plain workflow calls plain ones; make "
            "the calling workflow `async def`"
        )


# ---- the algorithm


def run_child(run: Run, call: ChildCall) -> Flow:
    """One call of a child, from its record or by executing it. Returns its value.

    Raises:
        StopRun: the run must stop.
        ChildKilled: somebody killed the child.
        Exception: what the child's workflow raised.
    """
    return (yield from await_child(run, call, (yield from begin_child(run, call))))


def begin_child(run: Run, call: ChildCall) -> Generator[Request, Reply, Past]:
    """See to it that there is a child. Returns what is recorded of the call."""
    run.check()
    past = run.history.at(call.position)
    asked = Asked("child", call.spec.name, call.site, call.preview)
    if past is None:
        past = Past(call.key, call.spec.name)
        yield from check_next(run, call.position, asked)
    elif not past.fits("child", call.spec.name, call.digest):
        yield from hold(run, misfit(run, past, asked))
    if past.child or past.abandoned:
        return past
    run.check_opening()
    if run.dry is None:
        assert run.family is not None
        along: tuple[Along, ...] = (run.family.birth(run, call),)
    else:
        along = ()
    started = ChildStarted(
        run_id=call.run_id,
        workflow=call.spec.name,
        digest=call.digest,
        preview=call.preview(),
        site="" if call.site is None else call.site.short,
    )
    past.child = call.run_id
    run.history.children.add(call.position)
    try:
        yield Write((Entry(started, call.key),), "open", durable=False, along=along)
    except Cancelled:  # after the commit
        yield from _abandon(run, call, past)
        raise
    return past


def _abandon(run: Run, call: ChildCall, past: Past) -> Flow:
    yield from abandon(run, call.key, past, _end(run, past.child, CANCELLED))
    return None


def await_child(run: Run, call: ChildCall, past: Past) -> Flow:
    """The rest of `run_child`, once the child is there."""
    if past.abandoned:
        yield from cancelled_again(run, past)
    try:
        if past.outcome is not None:
            yield Deliver(past.order)
        while past.outcome is None:
            run.check()
            news = yield Child(structs.replace(call, run_id=past.child))
            yield from _hear(run, call, past, cast(ChildNews, news))
    except Cancelled:
        yield from _abandon(run, call, past)
        raise
    return (yield from _recorded(run, call, past))


def _hear(run: Run, call: ChildCall, past: Past, news: ChildNews) -> Flow:
    """What has become of the child, as far as its parent goes on with it."""
    unwanted = run.kin.unwanted.get(call.key)
    match news:
        case ChildEnded():
            killed = news.status == "killed"
            bill = _gone_with(run, past.child) if killed else guards.NO_BILL
            yield from _close(run, call, past, news, bill)
        case _ if unwanted is not None and run.stop is None:
            error = codec.encode_error(ChildKilled(past.child, unwanted), "killed")
            ended = ChildEnded("killed", error=error)
            yield from _close(run, call, past, ended, _end(run, past.child, unwanted))
        case ChildSleeps(due):
            run.check_opening()
            yield from wait_for_child(run, call.key, past.child, due)
            run.check_opening()
        case ChildHeld():
            # Whoever holds a run holds its children: the parent's own hold goes first.
            yield Write((), "open", durable=False)
            yield from hold(run, child_held(run, call.key, past.child, news))
        case _:
            run.check()
    return None


def wait_for_child(run: Run, key: str, child: str, due: float | None) -> Flow:
    """Wait as long as a child does: until a time, or until what it waits for has come."""
    due = math.inf if due is None else due
    may_go_on = partial(_may_go_on, run, child)
    return (yield from wait_until(run, key, due, math.inf, may_go_on, news=True))


def _may_go_on(run: Run, child: str) -> bool:
    """Whether a child that waits need not wait any more: what it waits for has come, or nobody
    wants it."""
    row = to_run(run.read("read_run", run_id=child)[0])
    is_due = row.due_at is not None and row.due_at <= run.world.wall()
    return run.ended or row.status != "waiting" or is_due


def _close(run: Run, call: ChildCall, past: Past, ended: ChildEnded, bill: guards.Bill) -> Flow:
    entries = (*map(Entry, bill.events), Entry(ended, call.key))
    try:
        order = yield Write(entries, "record", deliver=True, along=bill.along)
        assert isinstance(order, int)
        past.order = order
    finally:
        run.kin.ends(call.key)
        if run.stop is None:  # it is recorded, even if the caller was cancelled meanwhile
            past.outcome = ended
            run.history.children.discard(call.position)
    return None


def _recorded(run: Run, call: ChildCall, past: Past) -> Flow:
    ended = past.outcome
    assert isinstance(ended, ChildEnded)
    hints = run.history.moved
    try:
        if ended.error is None:
            return codec.decode(bytes(ended.value), hints=(return_hint(call.spec.fn), *hints))
        error = _error_of(past.child, ended.error, hints)
    except Unreadable as problem:
        detail = f"the result of child run {past.child} ({call.key}): {problem}"
        yield from hold(run, unreadable(run, detail))
    assert ended.error is not None
    if ended.error.traceback:
        error.add_note(f"child run {past.child}, original traceback:\n{ended.error.traceback}")
    raise error


def _error_of(child: str, error: ErrorRecord, hints: tuple[object, ...]) -> Exception:
    if error.rebuild == ABSENT:
        return ChildFailed(child, error.type, error.message)
    return codec.rebuild_error(error, hints=hints)


# ---- the end


class _Kill(Struct, frozen=True):
    """Ends a child in the transaction in which its parent says so."""

    kill: Kill

    def check(self, tx: Tx) -> None:
        """It can always be written."""

    def apply(self, tx: Tx) -> None:
        """See `journal.Along.apply`."""
        self.kill.apply(tx)


class _KillAll(Struct, frozen=True):
    """Ends whatever is left of the children of a run that has come to its end."""

    kill: Kill

    def check(self, tx: Tx) -> None:
        """It can always be written."""

    def apply(self, tx: Tx) -> None:
        """See `journal.Along.apply`."""
        for child in live_below(tx, self.kill.run_id):
            structs.replace(self.kill, run_id=child).apply(tx)


def _gone_with(run: Run, child: str) -> guards.Bill:
    if run.purse.account is None or not run.purse.account.open:
        return guards.NO_BILL
    return guards.gone_with(run, {str(row[0]) for row in run.read("run_and_below", run_id=child)})


def _end(run: Run, child: str, why: str) -> guards.Bill:
    bill = _gone_with(run, child)
    kill = Kill(child, run.world.wall(), run.world, by=BY, why=why, grace=run.settings.grace)
    return guards.Bill(bill.events, (_Kill(kill), *bill.along))


def end_children(run: Run) -> Flow:
    """When its workflow has ended, a run lets its children come to their end, for the grace period.
    Then they are let go of. Those that do not go are killed, which interrupts their bodies."""
    if run.stop is None and (run.kin or run.kin.strands):
        run.ends()
        yield Drain(run.settings.grace)
        run.kin.dismiss(ENDED, run.kin.keys())
        yield Drain(2 * run.settings.grace)
        if run.kin:
            with suppress(StopRun):  # the run's own flag says so
                yield Write((), "record", durable=False, along=(_end_all(run),))
    return None


def ended_with(run: Run, status: Status) -> tuple[Along, ...]:
    """What is written with the end of a run: the children that it leaves behind end too."""
    if status not in FINAL or not (run.history.children or run.history.replaced):
        return ()
    return (_end_all(run),)


def _end_all(run: Run) -> _KillAll:
    world = run.world
    return _KillAll(
        Kill(run.run_id, world.wall(), world, by=BY, why=ENDED, grace=run.settings.grace)
    )
