"""Making a run ours: claim it, read what it has done, note what its last owner left open.

As in flow.py, the algorithm is a generator; its requests concern a run that is not ours yet.
"""

from collections.abc import Generator
from typing import cast

import msgspec
from msgspec import Struct

from outlast import events
from outlast.engine import guards
from outlast.engine.history import ENDED_WITH_PROCESS, History, build
from outlast.engine.holds import altered, crash_loop, unreadable
from outlast.engine.loading import Loaded, load
from outlast.engine.run import Run
from outlast.engine.spec import Settings
from outlast.engine.started import end_of_attempts, mark_started, tag
from outlast.engine.stop import Broken, Hold, Lost, Moved
from outlast.engine.strays import watch_threads
from outlast.engine.threads import in_thread
from outlast.errors import LostRun, StoreError
from outlast.journal import Along, Entry, RunMoved, row_differs
from outlast.leases import Claim, Claimed, Refused
from outlast.policy.budget import Ticket
from outlast.policy.gate import Gate, allow_all
from outlast.store.base import Item
from outlast.store.writer import Store


class Commit(Struct, frozen=True):
    """Commit an item durably. Reply: its result."""

    item: Item[object]


class EndStarted(Struct, frozen=True):
    """End processes that attempts of a run have started, whichever process they began in, as far
    as they run on this machine. Reply: None."""

    uid: str
    tags: frozenset[str]


class Load(Struct, frozen=True):
    """Read what a resume needs of a run's journal. Reply: see `loading.load`."""

    run_id: str
    loop: str | None
    since: int


REFUSALS = (StoreError, msgspec.DecodeError, RunMoved, LostRun)
"""What a preparation itself deals with."""

Preparation = Generator[Commit | EndStarted | Load, object, Run | Refused]


def prepare(
    store: Store,
    claim: Claim,
    settings: Settings,
    wait: bool | float,
    gate: Gate = allow_all,
    parent: Run | None = None,
) -> Preparation:
    """Claim a run and read what it has done. Returns it, or why it is not to be had.

    Args:
        parent: the run that has called it, if that is executed here.

    Raises:
        UnknownRun, RunMismatch: see `leases.Claim`.
        StoreError: the store is in trouble and nothing was claimed.
    """
    mark_started()
    watch_threads()
    got = yield Commit(claim)
    if isinstance(got, Refused):
        return got
    assert isinstance(got, Claimed)
    run = Run(got.row, got.args, History(), store, settings, wait=wait, gate=gate, parent=parent)
    if parent is None:
        run.purse.owns(got.account)
    if not got.created:
        yield from recall(run, got)
    return run


def recall(run: Run, got: Claimed) -> Generator[Commit | EndStarted | Load, object, None]:
    """Read what a run has done and note what its last owner left open. If something is wrong with
    that, the run is asked to stop."""
    try:
        rows, damaged = cast(Loaded, (yield Load(run.run_id, got.loop, got.loop_since)))
        if damaged is not None:
            run.request_stop(altered(run, damaged))
            return
        created = events.decode(rows[0].kind, rows[0].data) if rows else None
        if not isinstance(created, events.RunCreated) or row_differs(got.row, got.args, created):
            run.request_stop(
                unreadable(run, "its row differs from what run.created says: it was altered")
            )
            return
        run.history = build(rows)
        run.repeats.restore(run.history.repeats)
        if left := _cut_short(run):
            yield EndStarted(run.row.uid, left)
        interrupted, along = _interruptions(run, got)
        if interrupted or along:
            yield Commit(run.owner_write(interrupted, "record", along=along))
    except StoreError as problem:
        run.request_stop(Broken(problem))  # the run is ours already, so it is to be released
    except RunMoved as problem:
        run.request_stop(Moved(problem.status))  # an operator was quicker
    except LostRun as problem:
        run.request_stop(Lost(problem))
    except (msgspec.DecodeError, KeyError, RecursionError) as problem:
        run.request_stop(unreadable(run, f"its journal cannot be read: {problem!r}"))
    if run.history.claims_without_progress >= run.settings.max_crashes:
        run.request_stop(_died_too_often(run))


def prepare_sync(preparation: Preparation, store: Store) -> Run | Refused:
    """Perform a preparation in this thread."""
    reply: object = None
    error: Exception | None = None
    while True:
        try:
            request = preparation.send(reply) if error is None else preparation.throw(error)
        except StopIteration as end:
            return cast(Run | Refused, end.value)
        reply = error = None
        try:
            if isinstance(request, Commit):
                reply = store.write(request.item, durable=True)
            elif isinstance(request, EndStarted):
                end_of_attempts(request.uid, request.tags, store.world)
            else:
                reply = load(store, request.run_id, request.loop, request.since)
        except REFUSALS as problem:
            error = problem


async def prepare_async(preparation: Preparation, store: Store) -> Run | Refused:
    """Perform a preparation without blocking the event loop."""
    reply: object = None
    error: Exception | None = None
    while True:
        try:
            request = preparation.send(reply) if error is None else preparation.throw(error)
        except StopIteration as end:
            return cast(Run | Refused, end.value)
        reply = error = None
        try:
            if isinstance(request, Commit):
                reply = await store.awrite(request.item, durable=True)
            elif isinstance(request, EndStarted):
                await in_thread(end_of_attempts, request.uid, request.tags, store.world)
            else:
                reply = await in_thread(load, store, request.run_id, request.loop, request.since)
        except REFUSALS as problem:
            error = problem


def _cut_short(run: Run) -> frozenset[str]:
    """Tags of attempts that ended with their process, or with the run's stay there. What they have
    started must not work on beside what follows."""
    return frozenset(
        tag(run.row.uid, past.key, past.attempts)
        for past in (*run.history.calls.values(), *run.history.undoes.values())
        if past.kind == "step"
        and (past.open or (past.outcome is None and past.retry_at is None and past.attempts))
        and not past.abandoned
    )


def _interruptions(run: Run, got: Claimed) -> tuple[tuple[Entry, ...], tuple[Along, ...]]:
    """Attempts that an earlier owner opened and did not end, and what they cost."""
    entries: list[Entry] = []
    along: list[Along] = []
    crash, ended = got.crash, set[tuple[str, int]]()
    calls = [*run.history.calls.values(), *run.history.undoes.values()]
    opened = [past.opened for past in calls if past.open]
    if opened and run.purse.account is not None and run.purse.account.limits.seconds is not None:
        along.append(guards.worked(run, run.epoch - 1, min(opened), got.alive_until))
    for past in calls:
        if past.open:
            bill = guards.died(run, past.key, past.attempts)
            interrupted = events.StepInterrupted(past.attempts, crash)
            entries += [Entry(event, past.key) for event in (*bill.events, interrupted)]
            along += bill.along
            ended.add((past.key, past.attempts))
            past.crashes += crash
            past.failures += crash
            past.cut_off(ENDED_WITH_PROCESS)
    # Of others nobody has told how they ended: an operator has decided about them, or dropped them.
    # They are paid for all the same; of one that was dropped there is no call any more.
    for ticket in () if run.purse.account is None else map(Ticket.parse, run.purse.account.open):
        if ticket.run_id == run.run_id and (ticket.key, ticket.attempt) not in ended:
            bill = guards.died(run, ticket.key, ticket.attempt)
            known = ticket.key in {past.key for past in run.history.calls.values()}
            key = ticket.key if known else None
            entries += [Entry(event, key) for event in bill.events]
            along += bill.along
    return tuple(entries), tuple(along)


def _died_too_often(run: Run) -> Hold:
    for past in (*run.history.calls.values(), *run.history.undoes.values()):
        if past.crashes >= run.settings.max_crashes:
            return crash_loop(run, past)
    return Hold(
        "crash-loop",
        f"the process died {run.history.claims_without_progress} times in a row without a step "
        "being completed",
        f"Find out why the process ends, then: outlast resume {run.run_id}",
    )
