"""A run in which nothing is executed or written: the performer of its requests, for a replay.

Recorded outcomes are given out as live; what would be written gets a made-up number; and where a
body would be called or a timer waited for, the record has come to its end: that task goes no
further, and all others go on as far as they can. In the end it is noted what came of it.

A call that was under way when the run's process died had not returned by then, and had not been
cancelled, since both would be recorded. So it does neither here, whatever time-out strikes around
it; and all that is recorded was asked for beside it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from msgspec import Struct

from outlast import events
from outlast.engine.bodies import leave_behind
from outlast.engine.ended import Stopped
from outlast.engine.history import History, Past, position_of
from outlast.engine.lifecycle import execute_async, execute_sync
from outlast.engine.preparation import Commit, recall
from outlast.engine.requests import (
    Advance,
    Body,
    Child,
    Deliver,
    Drain,
    Forever,
    Late,
    Pack,
    Reply,
    Request,
    Sleep,
    Write,
)
from outlast.engine.run import Run, active
from outlast.engine.spec import LARGEST_VALUE, Settings, WorkflowSpec
from outlast.engine.stop import Release, Stop
from outlast.engine.virtual import NothingLeft, VirtualLoop
from outlast.errors import StopRun
from outlast.leases import Claimed
from outlast.records import RunRow, Source, StoredEvent
from outlast.store.base import Item, Row, SqlValue
from outlast.store.writer import Store
from outlast.world import World

JUMPS = 10_000
"""Jumps of the clock in a row after which code that only ever waits counts as waiting for good."""

NESTED = 10
"""Plain calls that may stand still within one another: each takes room on the stack."""

STUBBORN = 100
"""Cancellations of a call after which it gives way: anyio cancels again and again."""

SETTINGS = Settings(max_crashes=2**31, max_value_bytes=LARGEST_VALUE)
"""Neither how often a process died nor how it was set up says anything about the code."""

SOMETHING = "something that is no call"

RECORD_ENDS = Release("the record ends here")


class Record(Struct, frozen=True):
    """What is stored of a run.

    Attributes:
        args: the stored form of its arguments.
        damaged: the first event that was altered.
    """

    row: RunRow
    args: bytes
    events: Sequence[StoredEvent]
    damaged: StoredEvent | None = None


class _Nowhere:
    """The database of a store that nothing is written to, nor read from."""

    def transact(
        self, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        raise AssertionError("a replay was about to write")

    def sync(self) -> None:
        raise AssertionError("a replay was about to write")

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        raise AssertionError("a replay was about to read")

    def close(self) -> None:
        pass


class DryRun:
    """A run that is replayed.

    Attributes:
        ended: how the run has ended, by its record; None if it has not, or was killed.
        stop: the first reason to stop; `stop_at_end`: it came when the workflow had ended.
        event: the last word that a resume would write.
        problem: what left the workflow past all that; a bug, or KeyboardInterrupt and its like.
        left: how many recorded calls were not asked for when the run stopped; `first_left` is the
            first of them. `gone`: one of them stood in a task that has ended.
        beyond: the first call at the record's end.
        fresh: a task waits for a call that is not recorded.
        overtaken: the clock went on while a task waited at the record's end.
        unsure: a call at the record's end was left, although it might return in a resume.
        cancelled: one was cancelled, by workflow code or since the workflow had ended.
    """

    def __init__(
        self, record: Record, spec: WorkflowSpec, source: Source | None, world: World
    ) -> None:
        self._spec = spec
        store = Store(_Nowhere(), url="", path="", world=world)
        store.close()  # it tells the time, and nothing else is wanted of it
        self.run = Run(record.row, record.args, History(), store, SETTINGS)
        self.run.dry = self
        last = record.events[-1].seq if record.events else 0
        _recall(self.run, record, source, last)
        self.stop: Stop | None = self.run.stop
        self.stop_at_end = False
        self.ended = None if self.stop is not None else _end_of(record.events)
        self.event: events.Event | None = None
        self.problem: BaseException | None = None
        self.left = 0
        self.first_left = ""
        self.beyond = SOMETHING
        self.gone = False
        self.fresh = False
        self.overtaken = False
        self.unsure = False
        self.cancelled = False
        self._numbers = count(last + 2)  # above all that is recorded, and the claim
        self._asked_beyond = False
        self._arrived = False  # some task is at the end of the record
        self._fanned_out = 0  # fan-outs under way, within one another
        self._nested = 0  # plain calls that stand still
        self._expecting = 0  # recorded cancellations that are waited for
        self._jumps = 0

    # ---- requests

    def perform_sync(self, request: Request, live: Callable[[Request, Run], Reply]) -> Reply:
        """See `ports.Dry`."""
        match request:
            case Write():
                return self._number(request)
            case Pack():
                return request.data
            case Drain():
                return None
            case Body() | Sleep() | Late() | Child():
                under_way = self._arrive(request)
                if self.run.sequencer is None:
                    self._end_unless_fanned_out()
                else:
                    self._stand_still(under_way)
                raise StopRun(RECORD_ENDS)
            case Advance() if self.run.sequencer is None:
                return self._fan_out(request, live)
            case _:
                return live(request, self.run)

    def _fan_out(self, request: Request, live: Callable[[Request, Run], Reply]) -> Reply:
        """Items of a plain fan-out go as far as their records, each in a thread. Then it ends."""
        self._fanned_out += 1
        try:
            return live(request, self.run)
        finally:
            self._fanned_out -= 1
            if self._arrived:
                self._end_unless_fanned_out()

    def _end_unless_fanned_out(self) -> None:
        if not self._fanned_out:
            self._end()

    async def perform_async(
        self, request: Request, live: Callable[[Request, Run], Awaitable[Reply]]
    ) -> Reply:
        """See `ports.Dry`."""
        match request:
            case Write():
                number = self._number(request)
                if request.deliver:
                    await live(Deliver(number, request.shielded), self.run)
                return number
            case Pack():
                return request.data
            case Drain():
                return None
            case Body() | Sleep() | Late() | Child():
                await self._for_ever(self._arrive(request))
                return None
            case Forever():
                self._expecting += 1
                try:
                    return await live(request, self.run)
                finally:
                    self._expecting -= 1
            case _:
                self._jumps = 0
                return await live(request, self.run)

    def _number(self, request: Write) -> int:
        entry = request.entries[-1] if request.mode == "open" and request.entries else None
        if not self._asked_beyond and entry is not None and entry.key is not None:
            self._asked_beyond = True
            site: str = getattr(entry.event, "site", "")  # not all kinds of events have one
            self.beyond = f"{entry.key} ({site})" if site else str(entry.key)
        return next(self._numbers)

    def _arrive(self, request: Body | Sleep | Late | Child) -> bool:
        """A task is at the end of its record. Returns whether the call at which it stands was under
        way when the run's process died."""
        self._arrived = True
        if isinstance(request, Sleep):
            keys = [key for key, due in self.run.dues.items() if due == request.due]
        else:
            keys = [request.attempt.key if isinstance(request, Body) else request.key]
        under_way = any(position_of(key) in self.run.history.calls for key in keys)
        self.fresh |= not under_way
        if under_way and self.beyond == SOMETHING:
            self.beyond = keys[0]
        return under_way

    async def _for_ever(self, under_way: bool) -> None:
        """The end of the record, for an asynchronous call."""
        ignored = 0
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                goes_on = self.run.stop is None and not self.run.ended
                if goes_on and self.ended is None and under_way and ignored < STUBBORN:
                    ignored += 1
                    continue
                self.cancelled |= self.run.stop is None
                self.unsure |= goes_on and self.overtaken
                raise

    def _stand_still(self, under_way: bool) -> None:
        """The end of the record, for a plain call of an asynchronous workflow. The call keeps its
        task where it is until the verdict is reached."""
        loop = _running_loop()
        if loop is None:
            return  # in a thread of its own, whose end nobody gets to know
        if not isinstance(loop, VirtualLoop) or self._nested == NESTED:
            self.unsure = True
            return
        self._nested += 1
        try:
            loop.let_others_run(lambda: self.run.stop is not None or self.run.ended)
        finally:
            self._nested -= 1
        task = asyncio.current_task()
        cancelled = task is not None and task.cancelling() > 0
        self.unsure |= self.run.stop is None or (cancelled and not under_way)

    # ---- execution

    def execute(self) -> None:
        """Run the workflow as far as its record goes."""
        try:
            with active(self.run), self.run.watch(self._note_stop):
                if self._spec.is_async:
                    self._execute_async()
                else:
                    self.event = execute_sync(self.run, self._spec).event
        except BaseException as problem:
            self.problem = problem

    def _execute_async(self) -> None:
        loop = VirtualLoop(self._on_idle, self._hangs)
        try:
            concluded = loop.run_until_complete(execute_async(self.run, self._spec))
            self.event = concluded.event
            loop.run_until_complete(loop.shutdown_asyncgens())
        except NothingLeft:
            pass  # a task swallows its cancellation; what matters is noted
        finally:
            for task in asyncio.all_tasks(loop):
                leave_behind(task)
            loop.close()

    def _note_stop(self) -> None:
        if self.stop is None:
            self.stop, self.stop_at_end = self.run.stop, self.run.ended
            left = self.run.history.unconsumed()
            if left:
                self.left, self.first_left = len(left), left[0].key
                self.gone = self._some_are_gone(left)

    def _some_are_gone(self, left: Sequence[Past]) -> bool:
        """Whether the task in which a call stands has ended, so that it will not be made."""
        alive = {prefix for task, prefix in self.run.tasks.items() if not task.done()}
        inner = (self.run.history.innermost(position_of(past.key)) for past in left)
        return any(prefix and prefix not in alive for prefix in inner)

    def _hangs(self, outcome: object) -> bool:
        """Whether a task ends since a plain call in it has come to the end of the record: it is to
        wait there, as the tasks of asynchronous calls do."""
        if self.run.stop is not None:
            return False
        if isinstance(outcome, BaseExceptionGroup):
            return outcome.subgroup(StopRun) is not None
        return isinstance(outcome, StopRun | Stopped)

    def _on_idle(self, timeout: float | None) -> float:
        """Nothing is ready; see `VirtualLoop`. Time passes only for what the record needs: past its
        end a time-out would strike since a step takes for ever here."""
        if self.run.stop is None:
            waits = not self._arrived or self._expecting or self.run.history.replaying("")
            needed = self.ended is not None or waits
            first = self._arrived and self.ended is None and not self.overtaken
            lost = first and self._some_are_gone(self.run.history.unconsumed())
            if timeout is None or not needed or lost or self._jumps >= JUMPS:
                self._end()
                return 0.0
            self.overtaken |= self._arrived
        if timeout is None:
            raise NothingLeft
        self._jumps += 1
        return timeout

    def _end(self) -> None:
        self.run.request_stop(RECORD_ENDS)


def _recall(run: Run, record: Record, source: Source | None, last: int) -> None:
    """Let a run have the history that a resume would read, which begins with a claim."""
    got = Claimed(record.row, record.args, created=False, crash=False, loop=None, loop_since=0)
    seq, at = last + 1, run.world.wall()
    data = events.RunClaimed(owner=run.world.identity(), source=source).encode()
    claim = StoredEvent(run.run_id, seq, events.RunClaimed.kind, None, data, at, run.epoch, b"")
    steps = recall(run, got)
    reply: object = None
    try:
        while True:
            request = steps.send(reply)
            writes = isinstance(request, Commit)
            reply = None if writes else ([*record.events, claim], record.damaged)
    except StopIteration:
        pass


def _end_of(stored: Sequence[StoredEvent]) -> events.RunCompleted | events.RunFailed | None:
    """How the run has ended; None if it has not, or was killed. What came of it when somebody asked
    to undo it says nothing about its code."""
    asked = (n for n, event in enumerate(stored) if event.kind == events.RunUndoing.kind)
    for event in reversed(stored[: next(asked, None)]):
        if event.kind in (events.RunCompleted.kind, events.RunFailed.kind):
            ended = events.decode(event.kind, event.data)
            assert isinstance(ended, events.RunCompleted | events.RunFailed)
            return ended
    return None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
