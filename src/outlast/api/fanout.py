"""`start_child` and `map`: several things at a time in a run, each of which outlasts a crash."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Generic, Literal, TypeVar, TypeVarTuple, cast, overload

from outlast.api.options import is_async, name_of
from outlast.engine.children import (
    CANCELLED,
    await_child,
    begin_child,
    make_child_call,
    refuse_async,
)
from outlast.engine.drive import drive_async, drive_sync
from outlast.engine.fanout import MapCall, OnError, item_keys, run_map
from outlast.engine.run import Run
from outlast.engine.scope import ATTEMPT, SCOPE, Scope, create_unscoped_task
from outlast.engine.sites import call_site
from outlast.engine.spec import workflow_spec
from outlast.engine.waits import Pending
from outlast.errors import ChildKilled, OutsideRun, UsageError

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class ChildHandle(Generic[R]):
    """A child under way. `await handle`, or `handle.result()` in plain code, gives its result or
    raises its error, as often as it is asked.

    Attributes:
        run_id: of the child.
    """

    __slots__ = ("_work", "run_id")

    def __init__(self, run_id: str, work: "_Work") -> None:
        self.run_id = run_id
        self._work = work

    def __await__(self) -> Generator[object, object, R]:
        return cast(Generator[object, object, R], self._work.__await__())

    def result(self) -> R:
        """Wait for it in plain code."""
        return cast(R, self._work.result())


class _Work:
    """What goes on for a handle, in a thread or in a task."""

    def __init__(
        self, run: Run, run_id: str, coroutine: Coroutine[object, object, object] | None
    ) -> None:
        self._run = run
        self._run_id = run_id  # of the child
        self.task = None if coroutine is None else create_unscoped_task(coroutine)
        self._over = threading.Event()
        self._value: object = None
        self._error: BaseException | None = None

    def __await__(self) -> Generator[object, object, object]:
        if self.task is None:
            raise UsageError("this child was started in plain code: use handle.result()")
        try:
            return (yield from cast(Generator[object, object, object], self.task.__await__()))
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if not self.task.cancelled() or (here is not None and here.cancelling()):
                raise
            self._run.check()
            raise ChildKilled(self._run_id, CANCELLED) from None

    def perform(self, work: Callable[[], object]) -> None:
        """Body of the thread, which counts as a strand already."""
        kin = self._run.kin
        try:
            with kin.awaiting():  # or a run whose children all sleep would seem to do something
                kin.places.acquire()
            try:
                self._value = work()
            finally:
                kin.places.release()
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()
            kin.strand(begins=False)

    def result(self) -> object:
        """Wait in plain code."""
        if self.task is not None:
            raise UsageError("this child was started in asynchronous code: use `await handle`")
        run = self._run
        with run.kin.awaiting(), run.watch(self._over.set):
            while not self._over.is_set():
                run.world.pause(run.settings.max_sleep, self._over)
        if self._error is not None:
            raise self._error
        run.check()
        return self._value


@overload
def start_child(workflow: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> ChildHandle[R]: ...
@overload
def start_child(workflow: Callable[[*Ts], R], *args: *Ts) -> ChildHandle[R]: ...
def start_child(workflow: Callable[..., object], *args: object) -> object:
    """Begin a child run and go on; in workflow code.

    The child is created and recorded before this returns. It is executed beside the calling code:
    as a task in asynchronous code, in a thread in plain code, where only plain workflows can be
    started. What nobody has waited for when the workflow ends gets the grace period to come to its
    end, and is killed then.

    Args:
        workflow: a function decorated with `@workflow`. Keyword arguments go through
            `functools.partial`.
        args: its arguments; they are stored.

    Raises:
        OutsideRun: not in workflow code.
        UsageError: this is no workflow, its arguments do not fit, or its colour.
        NotStorable: an argument cannot be stored.
    """
    scope = _scope("start_child")
    fn, kwargs = workflow, dict[str, object]()
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    spec = workflow_spec(fn)
    if spec is None:
        raise UsageError(f"{fn!r} is not a workflow; decorate it with @outlast.workflow")
    run = scope.run
    run.check()
    in_loop = run.sequencer is not None and _in_loop()
    if spec.is_async and not in_loop:
        refuse_async(spec, run)
        raise UsageError(f"workflow {spec.name} is asynchronous: start it in the event loop")
    call = make_child_call(spec, scope, args, kwargs)
    past = drive_sync(begin_child(run, call), run)
    if in_loop:
        work = _Work(run, past.child, drive_async(await_child(run, call, past), run))
        assert work.task is not None
        run.add_task(work.task, f"{call.position}.")
    else:
        work, context = _Work(run, past.child, None), contextvars.copy_context()
        run.kin.strand(begins=True)
        flow = await_child(run, call, past)
        threading.Thread(
            target=context.run,
            args=(work.perform, lambda: drive_sync(flow, run)),
            name=f"outlast {call.key}",
            daemon=True,
        ).start()
    return ChildHandle[object](past.child, work)


@overload
def map(
    fn: Callable[[T], Awaitable[R]],
    items: Iterable[T],
    *,
    limit: int = 20,
    key: Callable[[T], object] | None = None,
    on_error: Literal["raise"] = "raise",
) -> Pending[list[R]]: ...
@overload
def map(
    fn: Callable[[T], Awaitable[R]],
    items: Iterable[T],
    *,
    limit: int = 20,
    key: Callable[[T], object] | None = None,
    on_error: Literal["collect"],
) -> Pending[list[R | Exception]]: ...
@overload
def map(
    fn: Callable[[T], R],
    items: Iterable[T],
    *,
    limit: int = 20,
    key: Callable[[T], object] | None = None,
    on_error: Literal["raise"] = "raise",
) -> Pending[list[R]]: ...
@overload
def map(
    fn: Callable[[T], R],
    items: Iterable[T],
    *,
    limit: int = 20,
    key: Callable[[T], object] | None = None,
    on_error: Literal["collect"],
) -> Pending[list[R | Exception]]: ...
def map(
    fn: Callable[..., object],
    items: Iterable[object],
    *,
    limit: int = 20,
    key: Callable[..., object] | None = None,
    on_error: OnError = "raise",
) -> object:
    """Call a function for each item, several at a time: `await outlast.map(fetch, urls)`, or
    `.result()` in plain code. The results come in the order of the items.

    What is recorded of an item belongs to its key. So after a crash the list may be in another
    order or have more items, and what is done is not done again.

    Args:
        fn: a step, a workflow (each item is a child then), or a function that calls some. A plain
            one is called in threads.
        items: the items; they are told apart by their values, and equal ones by their order.
        limit: how many are under way at a time.
        key: gives what tells an item apart, if that is not its value, such as its id.
        on_error: `raise`: with the first error no further item begins, those under way go no
            further than to the end of the step that they have open, and the error is raised.
            `collect`: an error takes the place of the item's result.

    Raises:
        OutsideRun: not in workflow code.
        UsageError: the options are not what they should be, or `fn` is asynchronous in plain code.
        NotStorable: an item has no fingerprint; give a `key`.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise UsageError(f"outlast.map(limit={limit!r}): a whole number above 0 is expected")
    if on_error not in ("raise", "collect"):
        raise UsageError(f"outlast.map(on_error={on_error!r}): expected 'raise' or 'collect'")
    scope = _scope("map")
    run, colour = scope.run, is_async(fn)
    run.check()
    name = getattr(fn, "__name__", None) or name_of(fn, type(fn).__name__)
    if colour and run.sequencer is None:
        raise UsageError(
            f"outlast.map: {name} is asynchronous, and the workflow is plain; make it `async def`"
        )
    every = tuple(items)
    told = every if key is None else [key(item) for item in every]
    keys = item_keys(told, run.settings.max_value_bytes)
    position, site = scope.take(), call_site(scope)
    call = MapCall(position, fn, name, every, keys, limit, on_error, not colour, site)
    return Pending[list[object]](run, scope, "map", run_map(run, call))


def _scope(name: str) -> Scope:
    scope = SCOPE.get()
    if scope is None or ATTEMPT.get() is not None:
        raise OutsideRun(f"outlast.{name}() is for workflow code, in a run")
    return scope


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
