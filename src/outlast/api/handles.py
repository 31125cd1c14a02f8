"""A handle on a run: its result, how it stands, and its events as they come."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Generic, TypeVar, cast

from outlast.engine.emitting import Emitted, Listener
from outlast.engine.spec import WorkflowSpec, workflow_spec
from outlast.engine.threads import in_thread
from outlast.errors import UnknownRun, UsageError
from outlast.journal import to_event
from outlast.records import FINAL, RunRow, RunView, StoredEvent
from outlast.store.writer import Store
from outlast.views import read_run, run_view
from outlast.worker.outcome import result_of_row
from outlast.worker.stores import OpenStore, get_store

R_co = TypeVar("R_co", covariant=True)

POLL = (0.05, 1.0)
"""First and longest pause, in seconds, between two looks at a run that another process executes.
What is executed in this process is heard of at once."""


class Handle(Generic[R_co]):
    """A run that was started, here or elsewhere, now or in an earlier process.

    `outlast.start` and `outlast.submit` return one. `outlast.Handle("ticket-81")` finds it again.

    Args:
        run_id: its id.
        store: URL of the store; `$OUTLAST_STORE` by default, else `sqlite:///outlast.db`.
        workflow: what it runs. It helps to find the classes in the result.

    Raises:
        UnknownRun: there is no such run.
        UsageError: this is no workflow.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        run_id: str,
        store: str | None = None,
        workflow: Callable[..., R_co] | Callable[..., Awaitable[R_co]] | None = None,
    ) -> None:
        spec = workflow_spec(workflow)
        if workflow is not None and spec is None:
            raise UsageError(f"{workflow!r} is not a workflow; decorate it with @outlast.workflow")
        self._opened = get_store(store)
        self._spec = spec
        self.run_id = run_id
        _row(self._opened.store, run_id)

    def result(self, timeout: float | None = None) -> "Result[R_co]":
        """What the run comes to: `await handle.result()`, or `handle.result().result()` in plain
        code. A run that is queued or waits is waited for: somebody may yet take it up.

        Args:
            timeout: seconds after which TimeoutError is raised.
        """
        return Result(self._opened, self._spec, self.run_id, timeout)

    def status(self) -> RunView:
        """How the run stands, with its steps."""
        store = self._opened.store
        return run_view(store, _row(store, self.run_id))

    def events(self, after: int = 0) -> "Events":
        """The run's journal from the event behind number `after` on, live, in `async for` or a
        plain `for`. It ends behind the event that ends the run; a held or waiting run is listened
        to until it goes on.

        Between them stands what steps of the run emit from now on in this process (`Emitted`).
        """
        return Events(self._opened.store, self.run_id, after)

    def __repr__(self) -> str:
        return f"<outlast.Handle {self.run_id!r}>"


def handle_for(opened: OpenStore, spec: WorkflowSpec, run_id: str) -> "Handle[object]":
    """The handle on a run that was just created."""
    handle: Handle[object] = Handle.__new__(Handle)
    handle.run_id, handle._opened, handle._spec = run_id, opened, spec
    return handle


def _row(store: Store, run_id: str) -> RunRow:
    row = read_run(store, run_id)
    if row is None:
        raise UnknownRun(f"there is no run {run_id!r} in {store.url}; see: outlast ls")
    return row


def _pauses() -> Iterator[float]:
    pause, longest = POLL
    while True:
        yield pause
        pause = min(longest, pause * 1.5)


class Result(Generic[R_co]):
    """The result of a run, to be waited for by `await`, or by `.result()` in plain code.

    Both raise RunFailed, RunHeld or RunKilled, as `outlast.run` does, and TimeoutError.
    """

    def __init__(
        self, opened: OpenStore, spec: WorkflowSpec | None, run_id: str, timeout: float | None
    ) -> None:
        self._store = opened.store
        self._spec = spec
        self._run_id = run_id
        self._timeout = timeout

    def __await__(self) -> Generator[object, None, R_co]:
        return self._wait().__await__()

    def result(self) -> R_co:
        """Wait for it in plain code; blocks."""
        listener, looks = self._listen(), self._looks()
        for pause in looks:
            listener.wait(pause)
        return self._told()

    async def _wait(self) -> R_co:
        listener, looks = self._listen(), self._looks()
        for pause in looks:
            await listener.wait_in_loop(pause)
        return await in_thread(self._told)  # which waits for the disk

    def _listen(self) -> Listener:
        return Listener(self._store.path, self._run_id, self._store.world)

    def _looks(self) -> Iterator[float]:
        """Look at the run until there is something to tell; yields how long to wait in between."""
        world = self._store.world
        end = None if self._timeout is None else world.boot() + self._timeout
        pauses = _pauses()
        while (row := _row(self._store, self._run_id)).status not in FINAL:
            if row.status == "held":
                return
            pause = next(pauses)
            if end is not None:
                left = end - world.boot()
                if left <= 0:
                    text = f"run {row.run_id} is still {row.status} after {self._timeout:g} s"
                    raise TimeoutError(text)
                pause = min(pause, left)
            yield pause

    def _told(self) -> R_co:
        row = _row(self._store, self._run_id)
        return cast(R_co, result_of_row(self._store, row, self._spec))


class Events:
    """What happens in a run, see `Handle.events`. It can be iterated once.

    Attributes:
        seq: number of the last event that was given out. Listen again with `after=seq`.
    """

    def __init__(self, store: Store, run_id: str, after: int) -> None:
        self.seq = after
        self._store = store
        self._run_id = run_id
        self._over = False
        self._emitted: list[Emitted] = []
        self._listener = Listener(store.path, run_id, store.world)

    @property
    def dropped(self) -> int:
        """How many emitted things were forgotten, since they were not taken in time."""
        return self._listener.dropped

    def __iter__(self) -> Iterator[StoredEvent | Emitted]:
        pauses = _pauses()
        while True:
            for item in self._look():
                pauses = _pauses()
                yield item
            if self._over:
                return
            self._listener.wait(0.0 if self._emitted else next(pauses))

    async def __aiter__(self) -> AsyncIterator[StoredEvent | Emitted]:
        pauses = _pauses()
        while True:
            for item in self._look():
                pauses = _pauses()
                yield item
            if self._over:
                return
            await self._listener.wait_in_loop(0.0 if self._emitted else next(pauses))

    def _look(self) -> Iterator[StoredEvent | Emitted]:
        """What is new. An emitted thing comes behind the start of its attempt and before its end,
        as the clock has it."""
        before = len(self._emitted) + len(taken := self._listener.take())
        # First the status: what the journal has once it is final is all there is.
        over = _row(self._store, self._run_id).status in FINAL
        rows = self._store.read("read_events_after", run_id=self._run_id, seq=self.seq)
        self._emitted += [*taken, *self._listener.take()]
        told = 0
        for event in map(to_event, rows):
            while told < len(self._emitted) and self._emitted[told].at < event.at:
                told += 1
                yield self._emitted[told - 1]
            self.seq = event.seq
            yield event
        # Of what came during the look, the start of the attempt may not have been read yet.
        while told < (len(self._emitted) if over else before):
            told += 1
            yield self._emitted[told - 1]
        del self._emitted[:told]
        self._over = over
