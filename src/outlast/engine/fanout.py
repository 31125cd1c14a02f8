"""Fan-out: one function for many items, each of which is a scope of its own.

The calls of an item stand behind its key, not behind its place in the list. So a list may be put in
another order, or grow, and what is recorded of its items still counts.

`run_map` is the algorithm, one generator (see flow.py). A `Fan` has the items that are under way:
as tasks in asynchronous code, as threads in plain code.
"""

import asyncio
import contextlib
import contextvars
import inspect
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, cast

from msgspec import Struct

from outlast import codec
from outlast.engine.bodies import leave_behind
from outlast.engine.ended import Raised, Returned
from outlast.engine.history import Past, key_of, position_of
from outlast.engine.holds import Asked, item_gone, lost_item, misfit
from outlast.engine.order import PASSES
from outlast.engine.requests import Advance, Cancelled, Flow, Unwind, Write
from outlast.engine.run import Run
from outlast.engine.scope import ATTEMPT, SCOPE, Scope, create_unscoped_task
from outlast.engine.sites import Site
from outlast.engine.stop import Release
from outlast.engine.stopping import check_next, hold
from outlast.engine.threads import in_thread
from outlast.errors import BodyCancelled, StopRun
from outlast.events import MapEnded, MapProgressed, MapStarted
from outlast.journal import Entry

MAP = "map"
"""The name in the key of a fan-out."""

REPORTS = 100
"""How often its progress is written at most."""

DIGITS = 12
"""Of an item's fingerprint, in the positions of its calls."""

LANDINGS = 1000
"""Looks at results on their way before the rest of a fan-out is cancelled all the same."""

OnError = Literal["raise", "collect"]


class MapCall(Struct, frozen=True):
    """One fan-out: where it stands, and over what. `keys` name the items in positions."""

    position: str
    fn: Callable[[object], object]
    name: str
    items: Sequence[object]
    keys: Sequence[str]
    limit: int
    on_error: OnError
    in_threads: bool
    site: Site | None = None

    @property
    def key(self) -> str:
        return key_of(MAP, self.position)

    def preview(self) -> str:
        """It as a short text."""
        return f"{self.name} over {len(self.items)} items"


def item_keys(values: Sequence[object], limit: int) -> list[str]:
    """Names of items for positions: fingerprints, and for equal ones a number.

    Args:
        values: what tells the items apart. limit: bytes that one may take.

    Raises:
        NotStorable: one has no fingerprint.
    """
    seen: dict[str, int] = {}
    keys = []
    for value in values:
        where = "item of outlast.map (key= can name another value that tells items apart)"
        key = "k" + codec.digest(value, where=where, limit=limit)[:DIGITS]
        seen[key] = seen.get(key, 0) + 1
        keys.append(key if seen[key] == 1 else f"{key}-{seen[key]}")
    return keys


def run_map(run: Run, call: MapCall) -> Flow:
    """One fan-out. Returns the results in the order of the items, with `collect` errors among them.

    Raises:
        StopRun: the run must stop.
        Exception: with `raise`, the first error of an item.
    """
    run.check()
    past = run.history.at(call.position)
    asked = Asked("map", MAP, call.site, call.preview)
    if past is None:
        past = Past(call.key, MAP)
        yield from check_next(run, call.position, asked)
    elif not past.fits("map", MAP):
        yield from hold(run, misfit(run, past, asked))
    elif past.raised and past.raised not in call.keys:
        yield from hold(run, lost_item(run, past, asked))
    elif (lost := _lost(run, call)) is not None:
        yield from hold(run, item_gone(run, lost, asked))
    if past.kind is None:
        run.check_opening()
        where = "" if call.site is None else call.site.short
        started = MapStarted(len(call.items), call.limit, call.name, where)
        past.kind = "map"
        yield Write((Entry(started, call.key),), "open", durable=False)
    fan = Fan(run, call, past)
    try:
        yield from _to_its_end(fan, call, past)
    except Cancelled:
        yield Unwind(fan)
        raise
    if not past.all_done:
        past.all_done = True
        ended = MapEnded(fan.failed, fan.raised)
        yield Write((Entry(ended, call.key),), "record", durable=False)
    if not fan.raised:
        return fan.results
    error = fan.results[call.keys.index(fan.raised)]
    if isinstance(error, Exception):
        raise error
    return (yield from hold(run, lost_item(run, past, asked)))


def _lost(run: Run, call: MapCall) -> Past | None:
    """Something that is recorded of an item that is not in the list any more."""
    prefix = f"{call.position}."
    left = run.history.left_below(prefix)
    known = set(call.keys) if left else ()
    names = (position_of(past.key)[len(prefix) :].partition(".")[0] for past in left)
    return next((past for past, name in zip(left, names, strict=True) if name not in known), None)


def _to_its_end(fan: "Fan", call: MapCall, past: Past) -> Flow:
    stride = math.ceil(max(len(call.items), 1) / REPORTS)
    while not fan.over:
        yield Advance(fan, (fan.done // stride + 1) * stride)
        if not fan.over and fan.done > past.done:
            past.done = fan.done
            progress = MapProgressed(fan.done, fan.failed)
            yield Write((Entry(progress, call.key),), "record", durable=False)
    fan.check()  # it may have stopped while its progress was written
    return None


class Fan:
    """The items of one fan-out in this process.

    When an item fails and that ends the fan-out, no other begins, and those under way go no further
    than to the end of what they have open.

    Attributes:
        results: of the items, by place; an error is one too.
        done: how many items have ended, `failed` of them with an error.
        raised: key of the item whose error ends the fan-out; empty if none has.
    """

    def __init__(self, run: Run, call: MapCall, past: Past) -> None:
        self.results: list[object] = [None] * len(call.items)
        self.done = 0
        self.failed = 0
        self.raised = ""
        self._run = run
        self._call = call
        self._lock = threading.Lock()
        self._context = contextvars.copy_context()
        self._closed = False
        self._stopped: StopRun | None = None  # how an item has ended that must not go on
        self._active: dict[int, asyncio.Task[None] | None] = {}
        self._waiting = deque(range(len(call.items)))
        self._changed: asyncio.Future[None] | None = None
        self._replays = bool(past.raised)
        if past.raised:  # as recorded: the same items go as far as they have gone
            self.raised = past.raised
            self._waiting = deque(
                n
                for n in self._waiting
                if call.keys[n] == past.raised or run.history.replaying(self._prefix(n))
            )
            self._close()

    @property
    def over(self) -> bool:
        """Nothing of it goes on any more."""
        with self._lock:  # between two looks, an item would go from those that wait to those active
            return not self._active and (not self._waiting or self._ends_early)

    @property
    def _ends_early(self) -> bool:
        # In a replay an item has come to the end of its record, and the others go as far as theirs.
        stopped = self._stopped is not None and self._run.dry is None
        return stopped or (self._closed and not self._replays)

    def _prefix(self, index: int) -> str:
        return f"{self._call.position}.{self._call.keys[index]}."

    def _close(self) -> None:
        self._closed = True
        self._run.kin.close(f"{self._call.position}.")

    def _next(self) -> tuple[int, Scope] | None:
        """The next item that may begin, if there is one."""
        with self._lock:
            free = len(self._active) < self._call.limit
            if not (free and self._waiting) or self._ends_early or self._run.stop is not None:
                return None
            index = self._waiting.popleft()
            self._active[index] = None  # from now on, as threads that end may ask for the next too
        prefix = self._prefix(index)
        self._run.history.begins(prefix)
        return index, Scope(self._run, prefix, self._call.site)

    def _ended(self, index: int, how: Returned | Raised | StopRun) -> None:
        """An item has come to its end."""
        call = self._call
        with self._lock:
            self._active.pop(index, None)
            match how:
                case StopRun():
                    if not self._closed or self._run.stop is not None:
                        self._stopped = how
                case Returned(value):
                    self.results[index] = value
                    self.done += 1
                case Raised(exc):
                    self.results[index] = exc
                    self.done += 1
                    self.failed += 1
                    if call.on_error == "raise" and not self._closed:
                        self.raised = call.keys[index]
                        self._close()

    def _is_at(self, until: int) -> bool:
        if self._stopped is not None and self._run.stop is not None:
            return True  # the run unwinds, and with it what is left here
        return self.over or (self.done >= until and not self._closed)

    def check(self) -> None:
        """For one who leaves it: not as if it had come to its end.

        Raises:
            StopRun: an item must not go on.
        """
        if self._stopped is not None:
            self._run.check()
            raise self._stopped

    # ---- asynchronous code

    async def advance_async(self, until: int) -> None:
        """See `requests.Advance`."""
        while not self._is_at(until):
            while (begins := self._next()) is not None:
                self._begin_task(*begins)
            if self._closed and self._active:
                await self._wind_down()
            elif not self._is_at(until):
                self._changed = asyncio.get_running_loop().create_future()
                await self._changed
        self.check()

    def _begin_task(self, index: int, scope: Scope) -> None:
        name = f"outlast {self._call.key} {self._call.keys[index]}"
        task = create_unscoped_task(self._execute_async(index, scope), name)
        self._active[index] = task
        self._run.add_task(cast("asyncio.Future[object]", task), scope.prefix)

    async def _execute_async(self, index: int, scope: Scope) -> None:
        SCOPE.set(scope)
        ATTEMPT.set(None)
        how: Returned | Raised | StopRun = StopRun("cancelled")
        try:
            how = Returned(await self._call_item(self._call.items[index], scope))
        except StopRun as stop:
            how = stop
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            how = Raised(BodyCancelled("something that the item awaited was cancelled"))
        except Exception as exc:
            how = Raised(exc)
        except BaseExceptionGroup as group:
            if self._run.stop is None or group.subgroup(StopRun) is None:
                raise
        finally:
            self._ended(index, how)
            if self._changed is not None and not self._changed.done():
                self._changed.set_result(None)

    async def _call_item(self, item: object, scope: Scope) -> object:
        if self._call.in_threads and self._run.dry is None:
            with self._strand():
                result = await in_thread(self._call.fn, item)
        else:
            result = self._call.fn(item)
        if not inspect.isawaitable(result):
            return result
        scope.coro = result
        return await result

    async def _wind_down(self) -> None:
        """Let items that go no further come to the end of what they have open; what waits for
        anything else is cancelled."""
        quiet = looks = 0
        while self._active and quiet < PASSES:
            await asyncio.sleep(0.001 if self._run.arriving or quiet == 0 else 0)
            looks = looks + 1 if self._run.arriving else 0
            busy = self._has_open() or 0 < looks < LANDINGS
            quiet = 0 if busy else quiet + 1
        await self._cancel()

    def _has_open(self) -> bool:
        prefixes = tuple(self._prefix(index) for index in self._active)
        keys = [*self._run.open, *self._run.kin.keys()]
        return any(position_of(key).startswith(prefixes) for key in keys)

    async def _cancel(self) -> None:
        tasks = {task for task in self._active.values() if isinstance(task, asyncio.Task)}
        for task in tasks:
            task.cancel()
        if tasks:
            _, alive = await asyncio.wait(tasks, timeout=self._run.settings.grace)
            for task in alive:
                leave_behind(task)  # it swallowed the cancellation
        self._active.clear()

    async def unwind_async(self) -> None:
        """See `requests.Unwind`."""
        self._close()
        ending = create_unscoped_task(self._cancel())
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):  # the caller is cancelled already
                await asyncio.wait({ending})

    # ---- plain code

    def advance(self, until: int) -> None:
        """See `requests.Advance`."""
        run, wake = self._run, threading.Event()
        self._fill()
        with run.kin.awaiting(), run.watch(wake.set, idle=True):
            while True:
                wake.clear()
                if self._is_at(until) and not (run.stop and self._active and run.patience()):
                    break
                if run.stop is not None and not (self._active and run.patience()):
                    run.check()
                run.world.pause(run.settings.max_sleep, wake)
        self.check()

    def _fill(self) -> None:
        while (begins := self._next()) is not None:
            self._begin_thread(*begins)

    def _begin_thread(self, index: int, scope: Scope) -> None:
        name = f"outlast {self._call.key} {self._call.keys[index]}"
        thread = threading.Thread(target=self._execute, args=(index, scope), name=name, daemon=True)
        self._run.kin.strand(begins=True)
        thread.start()

    def _execute(self, index: int, scope: Scope) -> None:
        context = self._context.copy()
        context.run(SCOPE.set, scope)
        context.run(ATTEMPT.set, None)
        how: Returned | Raised | StopRun = StopRun("interrupted")
        try:
            how = Returned(context.run(self._call.fn, self._call.items[index]))
        except StopRun as stop:
            how = stop
        except Exception as exc:
            how = Raised(exc)
        except BaseException as leaving:  # such as SystemExit: it leaves the run, as anywhere in it
            self._run.request_stop(Release(type(leaving).__name__))
        finally:
            self._ended(index, how)
            self._fill()  # while this one counts still, or the run would seem to wait for nothing
            self._run.kin.strand(begins=False)

    @contextlib.contextmanager
    def _strand(self) -> Iterator[None]:
        self._run.kin.strand(begins=True)
        try:
            yield
        finally:
            self._run.kin.strand(begins=False)
