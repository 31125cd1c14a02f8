"""A worker process that takes runs up until it is asked to stop."""

import asyncio
import contextlib
import os
import signal
import sys

from outlast.engine.spec import Settings
from outlast.errors import OutlastError
from outlast.worker.loader import load_workflows
from outlast.worker.order import INTERRUPTED, STUCK, TERMINATED, Serve
from outlast.worker.pool import Pool, run_through
from outlast.worker.stores import get_store, reaching
from outlast.worker.work import exit_code, say, warnings_in_a_line


def serve(order: Serve) -> int:
    """Take up runs of all workflows in the modules that the order names. Returns the exit code."""
    with warnings_in_a_line():
        try:
            specs = load_workflows(order.places)
            opened = get_store(order.store)
        except OutlastError as problem:
            say(reaching(str(problem), order.named))
            return exit_code(problem)
        settings = Settings(grace=order.grace)
        pool = Pool(opened, specs, order.concurrency, settings)
        many = f"up to {order.concurrency} runs at once" if order.concurrency > 1 else "one run"
        say(f"worker {os.getpid()} serves {', '.join(sorted(specs))}; {many}")
        if order.ready >= 0:
            os.write(order.ready, b"1")
            os.close(order.ready)
        return _Served(pool).run()


class _Served:
    """A pool in the main thread, and the signals that end it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asked: signal.Signals | None = None
        self._clean = True

    def run(self) -> int:
        """Serve until a signal comes, or a body does not end."""
        loop = asyncio.new_event_loop()
        work = loop.create_task(self._serve(), name="outlast worker")
        run_through(loop, work)
        code = STUCK if self._asked is None else _code(self._asked)
        work.result()
        if not self._clean:  # the interpreter would wait for code that does not end
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        with contextlib.suppress(RuntimeError):
            loop.close()
        return code

    async def _serve(self) -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ask(number: signal.Signals) -> None:
            # A second one tells nothing new: whoever stops a service signals all its processes, and
            # the supervisor passes it on. If it is in a hurry, it ends this process from outside.
            self._asked = self._asked or number
            over.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask, number)
        serving = loop.create_task(self._pool.serve())
        ends = [loop.create_task(event.wait()) for event in (over, self._pool.stuck)]
        await asyncio.wait([serving, *ends], return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        why = "a step outlived its timeout" if self._asked is None else self._asked.name
        self._clean = await self._pool.close(why) and self._asked is not None
        await serving


def _code(number: signal.Signals) -> int:
    return INTERRUPTED if number == signal.SIGINT else TERMINATED
