"""Executing a child for its parent: in the same process, in the same loop or thread."""

import asyncio
import dataclasses
from typing import cast

from msgspec import Struct

from outlast import codec, events
from outlast.control import UndoChild
from outlast.engine.requests import ChildCall, ChildHeld, ChildLeft, ChildNews, ChildSleeps
from outlast.engine.run import Run
from outlast.engine.scope import create_unscoped_task
from outlast.engine.stop import Broken
from outlast.engine.threads import in_thread
from outlast.errors import (
    ChildKilled,
    LostRun,
    OutlastError,
    RunFailed,
    RunHeld,
    RunKilled,
    RunReleased,
    RunWaiting,
    StoreError,
    StoreStopped,
    Unreadable,
    UsageError,
)
from outlast.events import ChildEnded, Parent
from outlast.journal import Along, to_event
from outlast.leases import Create, NewRun
from outlast.records import HoldReason
from outlast.store.base import Tx
from outlast.store.writer import Store
from outlast.views import read_run
from outlast.worker.execution import Caller, Plan, creation, execute_plan, run_plain, source_of
from outlast.worker.stores import OpenStore


class _Birth(Struct, frozen=True):
    """Creates a child in the transaction in which its parent records the call."""

    create: Create

    def check(self, tx: Tx) -> None:
        """See `journal.Along.check`.

        Raises:
            UsageError: a run has the child's id.
        """
        run_id = self.create.new.run_id
        if tx.run("read_run", run_id=run_id):
            raise UsageError(
                f"there is a run {run_id!r} already, which is the id that a child gets here; give "
                "that run another id, or the parent"
            )

    def apply(self, tx: Tx) -> None:
        """See `journal.Along.apply`."""
        self.create.apply(tx)


class Clan:
    """`engine.kin.Family`, for the runs of one store that are executed in the same way."""

    __slots__ = ("_opened", "_plan")

    def __init__(self, opened: OpenStore, plan: Plan) -> None:
        self._opened = opened
        self._plan = plan

    def birth(self, run: Run, call: ChildCall) -> Along:
        """See `engine.kin.Family`."""
        new = NewRun(
            run_id=call.run_id,
            workflow=call.spec.name,
            args=codec.pack(call.args),
            digest=call.digest,
            source=source_of(call.spec.fn, call.spec.module),
            tags=dict(run.row.tags),
            preview=call.preview(),
        )
        parent = Parent(run.run_id, call.key, run.account_id)
        create = creation(new, self._opened)
        return _Birth(dataclasses.replace(create, trace_id=run.row.trace_id, parent=parent))

    def undoing(self, run: Run, child: str) -> Along:
        """See `engine.kin.Family`."""
        world, asked = run.world, run.history.undoing
        by = "" if asked is None else asked.by
        return UndoChild(child, world.wall(), world, self._opened.heart.claims, by)

    def execute(self, run: Run, call: ChildCall) -> ChildNews:
        """See `engine.kin.Family`."""
        with _UnderWay(run, call) as child:
            try:
                run_plain(self._plan_of(run, call), self._opened, child.caller)
            except OutlastError as problem:
                return child.news_of(problem)
            return child.ended()

    async def execute_async(self, run: Run, call: ChildCall) -> ChildNews:
        """See `engine.kin.Family`. A plain workflow gets a thread."""
        if not call.spec.is_async:
            return await self._in_thread(run, call)
        with _UnderWay(run, call) as child:
            try:
                await execute_plan(self._plan_of(run, call), self._opened, child.caller)
            except OutlastError as problem:
                return child.news_of(problem)
            return child.ended()

    async def _in_thread(self, run: Run, call: ChildCall) -> ChildNews:
        work = create_unscoped_task(in_thread(self.execute, run, call))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            run.kin.dismiss("cancelled", [call.key])
            await asyncio.wait({work}, timeout=run.settings.grace)
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    def _plan_of(self, run: Run, call: ChildCall) -> Plan:
        # No hold is lifted here: the parent's claim has done that, if an operator wanted it.
        return Plan(
            spec=call.spec,
            run_id=call.run_id,
            wait=self._plan.wait,
            if_owned="wait",
            settings=run.settings,
            parent=run,
        )


class _Executed(Caller):
    """A child under way, see `engine.kin.Executed`."""

    def goes_its_way(self) -> None:
        """See `engine.kin.Executed`."""
        self.gone.set()


class _UnderWay:
    """A child counts as executed until the block ends; one that has ended, until its parent has
    recorded that."""

    def __init__(self, run: Run, call: ChildCall) -> None:
        self.caller = _Executed()
        self._run = run
        self._call = call
        self._ended = False

    def __enter__(self) -> "_UnderWay":
        run = self._run
        run.kin.begins(self._call.key, self.caller)
        if run.stop is not None:  # only now: whoever stops it from here on stops the child too
            run.kin.stop(run.stop)
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._ended:
            self._run.kin.ends(self._call.key)

    def ended(self) -> ChildEnded:
        """How it has ended, as its parent records it."""
        self._ended = True
        return _ended(self._run.store, self._call.run_id)

    def news_of(self, problem: OutlastError) -> ChildNews:
        """What an end without a result means for the parent."""
        match problem:
            case RunFailed() | RunKilled() | Unreadable():
                return self.ended()
            case RunHeld(reason=reason, detail=detail, fix=fix):
                # The store's own text, from a hold of the child.
                return ChildHeld(cast(HoldReason, reason), detail, fix)
            case RunWaiting(due=due):
                return ChildSleeps(due)
            case RunReleased() | LostRun() | StoreStopped():
                return ChildLeft()
            case StoreError():
                self._run.request_stop(Broken(problem))
                return ChildLeft()
            case _:
                raise problem


def _ended(store: Store, run_id: str) -> ChildEnded:
    """How a child has ended, as its parent records it."""
    row = read_run(store, run_id)
    assert row is not None
    if row.status == "killed":
        error = codec.encode_error(ChildKilled(run_id, row.detail or ""), "killed")
        return ChildEnded("killed", error=error)
    (last,) = store.read("read_last_of_kind", run_id=run_id, kind=f"run.{row.status}")
    stored = to_event(last)
    match events.decode(stored.kind, stored.data):
        case events.RunCompleted(result):
            return ChildEnded("completed", value=result)
        case events.RunFailed(error):
            return ChildEnded("failed", error=error)
        case other:
            raise AssertionError(f"run {run_id} is {row.status}, and says {other}")
