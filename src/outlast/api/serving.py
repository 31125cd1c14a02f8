"""`serving` and `emit`: workers in one's own process, and what their steps tell it."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Self

from outlast.engine.emitting import emit as emit_from
from outlast.engine.scope import ATTEMPT, SCOPE, create_unscoped_task
from outlast.engine.spec import Settings, WorkflowSpec, workflow_spec
from outlast.errors import OutsideRun, UsageError
from outlast.worker.pool import Pool, run_through
from outlast.worker.stores import OpenStore, get_store


def serving(
    *workflows: Callable[..., object],
    concurrency: int = 50,
    store: str | None = None,
    settings: Settings | None = None,
) -> "Serving":
    """Execute runs of these workflows in this process while a block lives:

        async with outlast.serving(desk, other):
            ...

    It takes up what is queued, interrupted or due, from the start on and as it comes, whoever
    started it. In `async with` asynchronous workflows run in the running loop; in a plain `with`,
    in a thread with a loop of its own. Plain workflows have threads.

    At the end of the block nothing more is taken up. What is open may end within the grace period;
    the runs are released and can be resumed. None of them fails of it.

    Args:
        workflows: functions decorated with `@workflow`.
        concurrency: how many runs are executed at once.
        store: URL of the store; `$OUTLAST_STORE` by default, else `sqlite:///outlast.db`.
        settings: how runs are executed.

    Raises:
        UsageError: something is no workflow, two have one name, or `concurrency` is below 1.
        StoreError: the store cannot be opened.
    """
    if not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError(f"outlast.serving(concurrency={concurrency!r}): 1 or more is expected")
    if SCOPE.get() is not None:
        raise UsageError("outlast.serving() executes runs, and cannot be used inside one")
    return Serving(get_store(store), _specs(workflows), concurrency, settings or Settings())


def _specs(workflows: tuple[Callable[..., object], ...]) -> dict[str, WorkflowSpec]:
    specs: dict[str, WorkflowSpec] = {}
    for fn in workflows:
        spec = workflow_spec(fn)
        if spec is None:
            raise UsageError(f"{fn!r} is not a workflow; decorate it with @outlast.workflow")
        if specs.setdefault(spec.name, spec).fn is not spec.fn:
            raise UsageError(f"two workflows are called {spec.name!r}; give one another name")
    if not specs:
        raise UsageError("outlast.serving() needs workflows: outlast.serving(desk, other)")
    return specs


class Serving:
    """Executes runs while its block lives, see `serving`. A block is entered once."""

    def __init__(
        self,
        opened: OpenStore,
        specs: dict[str, WorkflowSpec],
        concurrency: int,
        settings: Settings,
    ) -> None:
        self._pool = Pool(opened, specs, concurrency, settings)
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._entered = False

    async def __aenter__(self) -> Self:
        self._enter()
        self._task = create_unscoped_task(self._pool.serve(), name="outlast serving")
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        closing = create_unscoped_task(_end(self._pool, self._task))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait({closing})  # it is bounded, and the runs are to be let go of
            raise

    def __enter__(self) -> Self:
        self._enter()
        self._loop: asyncio.AbstractEventLoop | None = None
        begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=self._work, args=(begun,), name="outlast-serving", daemon=True
        )
        self._thread.start()
        begun.result()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._thread is not None
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _work(self, begun: "concurrent.futures.Future[None]") -> None:
        """Body of the thread."""
        loop = asyncio.new_event_loop()
        try:
            run_through(loop, loop.create_task(self._serve_until_over(begun)))
        finally:
            # Not asyncio.run: it would wait for threads of steps that do not end.
            loop.close()

    async def _serve_until_over(self, begun: "concurrent.futures.Future[None]") -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        task = asyncio.create_task(self._pool.serve())
        begun.set_result(None)
        await self._over.wait()
        await _end(self._pool, task)

    def _enter(self) -> None:
        if self._entered:
            raise UsageError("this outlast.serving() was used already; make a new one")
        self._entered = True


async def _end(pool: Pool, task: "asyncio.Task[None]") -> None:
    await pool.close("the process ends")
    await task


def emit(name: str, data: object = None) -> None:
    """Tell whoever listens to the run in this process (`handle.events()`) what a step is doing,
    such as the tokens of an answer as they come:

        outlast.emit("token", text)

    It is not journaled, and it never waits: a listener that is too slow misses the oldest. Each
    thing is tagged with the step and the number of the attempt, since a later attempt begins anew.

    Args:
        name: what it is.
        data: anything. It is handed on as it is, so do not change it afterwards.

    Raises:
        OutsideRun: not in the body of a step of a run.
    """
    attempt = ATTEMPT.get()
    if attempt is None:
        raise OutsideRun("outlast.emit() is for the body of a step, in a run")
    emit_from(attempt, name, data)
