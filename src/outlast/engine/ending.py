"""The end of what a killed run still executes in this process.

A thread interrupts its bodies, ends the processes that they have started, and notes in the store
when nothing is left. What does not end within the grace is left to the supervisor, or to whoever
asks for the end of this process.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import cast

from outlast.control import NoteStopped
from outlast.engine.interrupts import interrupt
from outlast.engine.run import Run
from outlast.engine.strays import has_strays
from outlast.errors import StoreError
from outlast.processes import Ended, end_tagged, family, tagged, terminate

PACES = (0.05, 1.0)
"""Seconds between two looks at what still runs: within the grace, and behind it."""


class Ending:
    """What is left of one killed run in this process."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._news = threading.Event()  # something has ended
        self._tasks: set[asyncio.Future[object]] = set()
        self._left = False
        self.over = threading.Event()
        """Nothing of it is executed here any more."""

    def left(self, alive: "Sequence[asyncio.Future[object]]" = ()) -> None:
        """The run has left its driver, apart from tasks that swallow their cancellation. Called in
        their event loop."""
        for task in alive:
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)
        self._left = True
        self._news.set()

    def _task_ended(self, task: "asyncio.Future[object]") -> None:
        self._tasks.discard(task)
        self._news.set()

    def _is_over(self) -> bool:
        running = self._tasks or self._run.executing or has_strays(self._run)
        return self._left and not running

    def watch(self) -> None:
        """Body of the thread."""
        run = self._run
        try:
            ended = self._end(run.world.boot() + _grace(run))
            _note(run, ended)
        finally:
            self.over.set()

    def _end(self, until: float) -> Ended:
        """Until nothing is executed any more; to be interrupted and asked up to a point in time."""
        run, uid = self._run, self._run.row.uid
        # Bodies first: what they make of the end of their processes must not pass for a result.
        interrupt(run)
        run.world.pause(PACES[0], self._news)
        terminate(family(tagged(uid)))
        while not self._is_over():
            self._news.clear()
            left = until - run.world.boot()
            if left > 0:
                interrupt(run)
            elif tagged(uid):
                end_tagged(uid, 0.0, run.world)
            run.world.pause(PACES[left <= 0], self._news)
        return end_tagged(uid, max(0.0, until - run.world.boot()), run.world)


def begin_ending(run: Run) -> Ending:
    """See to it that nothing of a killed run is executed here any more; once for each."""
    if run.ending is None:
        ending = Ending(run)
        with run.locked():
            if run.ending is None:  # the ear and the run itself may learn of the kill at once
                run.ending = ending
                threading.Thread(target=ending.watch, name="outlast-ending", daemon=True).start()
    assert run.ending is not None
    return run.ending


def await_ending(run: Run) -> None:
    """If the run was killed, wait until nothing of it is executed here any more, for the grace
    period at most."""
    if run.ending is not None:
        run.ending.over.wait(run.settings.grace)


def _note(run: Run, ended: Ended) -> None:
    owner = run.row.owner
    assert owner is not None
    at, said = run.world.wall(), (ended.ended, ended.survivors)
    item = NoteStopped(run.run_id, owner.nonce, at, "owner", *said)
    try:
        run.store.write_now(item, durable=True)
    except StoreError:
        return  # the row goes on naming this process until somebody sees that it has ended


def _grace(run: Run) -> float:
    """Seconds that the kill gives."""
    try:
        rows = run.store.read("read_grace", run_id=run.run_id)
    except StoreError:
        return run.settings.grace
    return cast(float, rows[0][0]) if rows else run.settings.grace
