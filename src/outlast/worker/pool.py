"""Executing many runs in one process, as they come.

A pool looks for runs of its workflows that can go on, and executes as many at once as it was told:
asynchronous ones as tasks of its event loop, plain ones in threads. Claims are conditional, so that
pools of several processes may look at the same runs.
"""

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from outlast.control import HandBack
from outlast.emergency import read_stop
from outlast.engine.ending import begin_ending
from outlast.engine.interrupts import interrupt
from outlast.engine.run import EMERGENCY
from outlast.engine.scope import create_unscoped_task
from outlast.engine.spec import Settings, WorkflowSpec
from outlast.errors import (
    LostRun,
    OutlastError,
    RunFailed,
    RunHeld,
    RunKilled,
    RunOwned,
    RunReleased,
    RunWaiting,
    StoreError,
    StoreStopped,
    UnknownRun,
)
from outlast.leases import LetGo
from outlast.records import StopView
from outlast.views import abandoned, may_end_its_process, ready
from outlast.worker.execution import Caller, Plan, execute_plan, run_plain
from outlast.worker.stores import OpenStore, in_place_of

LOOK = 0.2
"""Seconds between two looks for runs that other processes have queued, or that are due."""

SEARCH = 1.0
"""Seconds between two looks for runs whose process has died: that takes a look at each owner. Those
that were handed back before are looked for with the others."""

PATIENCE = 5.0
"""A run that waits for more seconds than that leaves the process until it is due."""

RESTS = (1.0, 60.0)
"""Shortest and longest time, in seconds, for which a run is left alone that could not go on."""

SUSPICION = 60.0
"""Of the runs that have died with their process twice in a row one may be what ends it, and the
others only share its fate. Until one of them has come further, or for so many seconds, none of the
others is executed beside it, so that they come through before they count as crash loops too."""

MARGIN = 0.5
"""Seconds beyond the grace periods that runs get to write how they ended."""

ENDS = (RunFailed, RunHeld, RunKilled, RunWaiting, RunOwned, LostRun, UnknownRun)
"""What becomes of a run as a matter of course: the store tells whoever waits for it."""

_log = logging.getLogger("outlast")

_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def poke_pools(path: str) -> None:
    """A run was queued in the store of that path: pools of this process look at once."""
    for pool in list(_pools):
        if pool.path == path:
            pool.poke()


@dataclass(frozen=True, slots=True)
class _Work:
    """A run that is executed."""

    caller: Caller
    task: "asyncio.Task[None]"
    is_async: bool


class Pool:
    """Takes up runs of some workflows, and executes them in the event loop that calls `serve`.

    Args:
        opened: the store that they are in.
        specs: the workflows, by name.
        concurrency: how many runs are executed at once.
        settings: how.

    Attributes:
        stuck: set once a run was held here since a body of it does not end; only the end of the
            process ends that.
    """

    def __init__(
        self,
        opened: OpenStore,
        specs: Mapping[str, WorkflowSpec],
        concurrency: int,
        settings: Settings,
    ) -> None:
        self.stuck = asyncio.Event()
        self.path = opened.store.path
        self._opened = opened
        self._store = opened.store
        self._specs = specs
        self._concurrency = concurrency
        self._settings = settings
        self._world = opened.store.world
        self._works: dict[str, _Work] = {}
        self._handed_back: set[str] = set()
        self._rests: dict[str, tuple[float, float]] = {}  # until when, and how long that was
        self._next_search = 0.0  # by the boot clock, as the former
        self._suspect = ("", 0.0)  # and until when it is one
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._closing = False
        self._said: object = None  # the trouble that was told of last

    def poke(self) -> None:
        """There may be something to do. Called in any thread."""
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._changed.set)

    async def serve(self) -> None:
        """Take up runs until `close`. Trouble with the store or with a run does not end it."""
        self._loop = asyncio.get_running_loop()
        _pools.add(self)
        try:
            while not self._closing:
                self._changed.clear()
                pause = LOOK
                try:
                    self._take_up()
                except StoreError as problem:
                    self._say(problem.problem, f"no run can be taken up now: {problem}")
                    self._opened = in_place_of(self._opened, problem)
                    self._store = self._opened.store
                    pause = SEARCH
                except Exception as problem:  # nobody would learn that nothing is taken up any more
                    self._say(repr(problem), f"no run can be taken up now: {problem!r}")
                    pause = SEARCH
                timer = self._loop.call_later(pause, self._changed.set)
                await self._changed.wait()
                timer.cancel()
        finally:
            _pools.discard(self)

    async def close(self, why: str) -> bool:
        """Take up nothing more, and let go of all runs: what is open in them may end within the
        grace period. What has not ended then is handed back, and ends with the process.

        Args:
            why: for the record.

        Returns:
            Whether nothing is executed here any more.
        """
        self._closing = True
        self._changed.set()
        works = dict(self._works)
        for work in works.values():
            work.caller.leaves(why)
        tasks = [work.task for work in works.values()]
        if tasks:
            # An asynchronous workflow that swallows its cancellation has the grace once more.
            await asyncio.wait(tasks, timeout=self._settings.grace + MARGIN)
            if any(not w.task.done() and w.is_async for w in works.values()):
                await asyncio.wait(tasks, timeout=self._settings.grace + MARGIN)
        await self._interrupt(works.values())
        left = {run_id: work for run_id, work in works.items() if not work.task.done()}
        if left:
            self._handed_back.update(left)
            self._hand_back(why, left.keys())
            for work in left.values():
                work.task.cancel()
        callers = [work.caller.run for work in works.values()]
        return not left and not any(run.keeps_owner for run in callers if run is not None)

    async def _interrupt(self, works: Collection[_Work]) -> None:
        """The time of what is open is over: end it as far as Python allows."""
        left = [work for work in works if not work.task.done()]
        for work in left:
            if work.caller.run is not None:
                interrupt(work.caller.run)
        if left:
            await asyncio.wait([work.task for work in left], timeout=MARGIN)

    def _hand_back(self, why: str, only: Set[str]) -> None:
        """Give up runs whose code does not end, without a word of theirs."""
        item = HandBack(self._world.identity(), self._world.wall(), why, only)
        try:
            self._store.write_now(item, durable=True)
        except StoreError as problem:  # they count as interrupted once this process has ended
            _log.warning("runs could not be handed back: %s", problem)

    # ---- taking up

    def _take_up(self) -> None:
        free = self._concurrency - len(self._works)
        if free <= 0:
            return
        stop = read_stop(self._store)
        if stop is not None:
            self._say_stopped(stop)
            return
        now = self._world.boot()
        self._rests = {r: rest for r, rest in self._rests.items() if now < rest[0] + RESTS[1]}
        resting = [run_id for run_id, (until, _) in self._rests.items() if now < until]
        without = {*resting, *self._works}
        everywhere = now >= self._next_search
        if everywhere:
            self._next_search = now + SEARCH
        claims = self._opened.heart.claims
        died = abandoned(self._store, self._specs, claims, released=not everywhere)
        for run_id, workflow in died:
            if free and run_id not in without and self._is_safe(run_id, now):
                self._begin(run_id, self._specs[workflow])
                without.add(run_id)
                free -= 1
        for run_id, workflow in ready(self._store, self._specs, free, without):
            self._begin(run_id, self._specs[workflow])
        self._said = None

    def _is_safe(self, run_id: str, now: float) -> bool:
        """Whether a run whose process has died can be taken up beside the others, see SUSPICION."""
        if not may_end_its_process(self._store, run_id):
            return True
        suspect, until = self._suspect
        here = suspect in self._works and now < until
        if here and may_end_its_process(self._store, suspect):
            return False
        self._suspect = run_id, now + SUSPICION
        return True

    def _begin(self, run_id: str, spec: WorkflowSpec) -> None:
        caller = Caller()
        plan = Plan(spec, run_id, wait=PATIENCE, settings=self._settings)
        task = create_unscoped_task(self._execute(plan, caller), name=f"outlast pool {run_id}")
        self._works[run_id] = _Work(caller, task, spec.is_async)
        task.add_done_callback(lambda _: self._ended(run_id))

    def _ended(self, run_id: str) -> None:
        self._works.pop(run_id, None)
        self._changed.set()

    async def _execute(self, plan: Plan, caller: Caller) -> None:
        try:
            if plan.spec.is_async:
                await execute_plan(plan, self._opened, caller)
            else:
                await _in_thread(lambda: self._run_plain(plan, caller), plan.run_id)
            self._rests.pop(plan.run_id, None)
        except ENDS as end:
            self._rests.pop(plan.run_id, None)
            if isinstance(end, RunHeld) and end.reason == "stuck":
                self.stuck.set()
        except StoreStopped as stop:
            self._say_stopped(StopView(stop.since, stop.by, stop.why))
        except RunReleased as released:
            stopped = caller.run is not None and caller.run.stop == EMERGENCY
            if not (caller.gone.is_set() or stopped):
                self._rest(plan.run_id, released)
        except asyncio.CancelledError:
            raise
        except BaseException as problem:  # a workflow may raise SystemExit, or what it likes
            self._rest(plan.run_id, problem)
            if isinstance(problem, KeyboardInterrupt):  # of whoever sits before the program
                raise

    def _run_plain(self, plan: Plan, caller: Caller) -> None:
        try:
            run_plain(plan, self._opened, caller)
        finally:
            run = caller.run
            if run is not None and run.run_id in self._handed_back:
                # The body has ended after all, so others may go on with the run.
                killed = self._store.write_now(LetGo(run.run_id, run.epoch + 1))
                if killed:
                    begin_ending(run).left()

    def _rest(self, run_id: str, why: BaseException) -> None:
        """Leave a run alone for a while, for longer each time."""
        _, former = self._rests.get(run_id, (0.0, 0.0))
        seconds = min(RESTS[1], former * 2 or RESTS[0])
        self._rests[run_id] = (self._world.boot() + seconds, seconds)
        text = str(why) if isinstance(why, OutlastError) else f"{type(why).__name__}: {why}"
        _log.warning("run %s could not go on; tried again in %g s: %s", run_id, seconds, text)

    # ---- saying

    def _say_stopped(self, stop: StopView) -> None:
        self._say(stop, str(StoreStopped(stop.since, stop.by, stop.why)))

    def _say(self, trouble: object, text: str) -> None:
        """Tell of a trouble once, however often it is met."""
        if trouble != self._said:
            _log.warning("%s: %s", self._store.path, text)
        self._said = trouble


def run_through(loop: asyncio.AbstractEventLoop, work: "asyncio.Task[None]") -> None:
    """Run a loop that executes a pool until `work` is done. What breaks it off before, such as
    SystemExit in a task of a workflow, ends that run's stay here; the others need the loop."""
    while not work.done():
        try:
            loop.run_until_complete(work)
        except (SystemExit, KeyboardInterrupt) as leaving:
            _log.warning("the program raised %s(%s)", type(leaving).__name__, leaving)


async def _in_thread(work: Callable[[], object], run_id: str) -> None:
    """Do a run's work in a thread of its own, which does not keep the process from ending.

    Raises:
        Exception: what it raised. SystemExit and the like end a thread, not the pool.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def settle(problem: BaseException | None) -> None:
        if over.done():
            return
        if isinstance(problem, Exception):
            over.set_exception(problem)
        elif problem is not None:
            name = type(problem).__name__
            over.set_exception(RunReleased(run_id, f"run {run_id} was released: it raised {name}"))
        else:
            over.set_result(None)

    def body() -> None:
        problem: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(settle, problem)

    threading.Thread(target=body, name=f"outlast {run_id}", daemon=True).start()
    await over
