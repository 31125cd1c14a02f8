"""`outlast resume --all`: many runs, one at a time; none holds the others up by waiting."""

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import structs
from rich.text import Text

from outlast.api.client import Client
from outlast.cli.executing import RELEASED, execute, headline, report
from outlast.cli.jsonout import run_json
from outlast.cli.output import err, printable, write_json
from outlast.cli.wording import Caller, clock, duration, stop_words, waits_for
from outlast.errors import OutlastError, StoreError, Unreadable
from outlast.records import FINAL, RunView
from outlast.worker.order import HELD, INTERRUPTED, TERMINATED, WAITING, Order
from outlast.worker.work import exit_code
from outlast.world import World

PATIENCE = 5.0
"""Seconds that a run is waited for while it is at hand; for longer waits it is left alone."""

PAUSE = 1.0
"""Longest pause, in seconds, between two looks at what is due: the clock may be set meanwhile, and
other runs may come."""


_LEFT = Text("outlast: interrupted; the runs that wait were left as they are")


def resume_all(client: Client, order: Order, caller: Caller, as_json: bool) -> int:
    """Go on with all runs that need nobody, the one that is due first before the others, and again
    with those that wait for a time, until none is left; without waiting, with each once.

    Args:
        order: what is asked for each run, its `run_id` aside.

    Returns:
        The exit code for the signal that ended this; else that of the first run that came to
        another end than its completion, else 0.
    """
    round_ = _Round(client, caller, as_json)
    patient = order.wait is not False
    order = structs.replace(order, wait=PATIENCE if patient else False)
    try:
        _check_allowed(client, caller)
        if patient:
            while (run_id := _next(client, round_.over)) is not None:
                round_.execute(structs.replace(order, run_id=run_id))
        else:
            for run_id in client.unfinished():
                round_.execute(structs.replace(order, run_id=run_id))
        stopped = None
    except _Stopped as stop:
        stopped = stop.code
        err().lines([stop.said])
    if as_json:
        write_json([run_json(view) for view in round_.views.values()])
    elif not round_.codes and stopped is None:
        err().lines([Text("no run waits for a process")])
    if stopped is not None:
        return stopped
    return next((code for code in round_.codes.values() if code), 0)


class _Stopped(BaseException):
    """A signal, or the emergency stop, asked this command to end; `said` says so."""

    def __init__(self, code: int, said: Text = _LEFT) -> None:
        super().__init__(code)
        self.code, self.said = code, said


def _check_allowed(client: Client, caller: Caller) -> None:
    """Go on only if no emergency stop is in force.

    Raises:
        _Stopped: it is.
    """
    stop = client.stopped()
    if stop is not None:
        raise _Stopped(HELD, stop_words(stop, caller))


class _Round:
    """What became of the runs so far.

    Attributes:
        codes: the last exit code of each run; `views`: how each run stood then.
        over: the runs that are not taken up again.
    """

    def __init__(self, client: Client, caller: Caller, as_json: bool) -> None:
        self._client = client
        self._caller = caller
        self._as_json = as_json
        self.codes: dict[str, int] = {}
        self.views: dict[str, RunView] = {}
        self.over: set[str] = set()

    def execute(self, order: Order) -> None:
        """Go on with one run. One that cannot be read does not keep the others from theirs.

        Raises:
            _Stopped: a signal or the emergency stop has come meanwhile; the run was released.
        """
        run_id = order.run_id
        try:
            code, view = execute(self._client, order, self._as_json)
        except (StoreError, Unreadable) as problem:
            if isinstance(problem, StoreError) and problem.problem != "damaged":
                raise
            self._fails(run_id, problem)
            return
        self.codes[run_id] = code
        if view is not None:
            self.views[run_id] = view
        if code == WAITING and order.wait and view is not None and view.due_at is not None:
            lines = [headline(view, code), *map(Text, waits_for(view, World().wall()))]
            err().lines(lines)
            return
        if view is not None and view.stopped is not None and view.status not in FINAL:
            raise _Stopped(HELD, stop_words(view.stopped, self._caller))
        self.over.add(run_id)
        if view is not None:
            report(view, code, self._caller, self._as_json)
        if code in RELEASED:
            raise _Stopped(code)

    def _fails(self, run_id: str, problem: OutlastError) -> None:
        self.over.add(run_id)
        self.codes[run_id] = exit_code(problem)
        said = printable(self._caller.ready(str(problem)))
        err().lines([Text(f"outlast: {said}")])


def _next(client: Client, over: Collection[str]) -> str | None:
    """The run that can go on, once there is one; None if there will be none.

    Raises:
        _Stopped: a signal asked this command to end.
    """
    world, told = World(), None
    with _raising_on_signals():
        while True:
            try:
                waiting = [one for one in client.upcoming() if one[0] not in over]
            except StoreError as problem:
                if problem.problem != "busy":
                    raise
                world.pause(PAUSE)  # it may have been waiting for hours, and can wait a little more
                continue
            if not waiting:
                return None
            run_id, due = waiting[0]
            now = world.wall()
            if due <= now:
                return run_id
            if told != waiting[0]:
                told = waiting[0]
                err().lines([_idle(len(waiting), run_id, due, now)])
            world.pause(min(PAUSE, due - now))


def _idle(count: int, run_id: str, due: float, now: float) -> Text:
    which = "1 run waits" if count == 1 else f"{count} runs wait"
    when = f"{clock(due)} (in {duration(due - now)})"
    return Text(f"{which} for a time; {printable(run_id)} goes on at {when}")


@contextmanager
def _raising_on_signals() -> Iterator[None]:
    """Within the block, in which nothing is executed, SIGTERM and Ctrl-C end it at once. A signal
    that this process ignores, or that somebody handles otherwise, is left alone."""
    natural = (
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
    )
    before = [(number, how) for number, how in natural if signal.getsignal(number) is how]
    if threading.current_thread() is not threading.main_thread():
        before = []

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Stopped(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    try:
        for number, _ in before:
            signal.signal(number, leave)
        yield
    finally:
        for number, how in before:
            signal.signal(number, how)
