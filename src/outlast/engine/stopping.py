"""How a call ends early: the run is held, or the workflow cancelled the call."""

from collections.abc import Generator
from typing import NoReturn

from outlast import events
from outlast.engine import guards
from outlast.engine.history import Past
from outlast.engine.holds import Asked, not_cancelled, not_recorded
from outlast.engine.requests import Cancelled, Deliver, Drain, Flow, Forever, Reply, Request, Write
from outlast.engine.run import Run
from outlast.engine.stop import Hold
from outlast.errors import StopRun
from outlast.journal import Entry
from outlast.mailbox import Withdraw


def hold(run: Run, stop: Hold) -> Generator[Request, Reply, NoReturn]:
    """Stop the run. Attempts that are open elsewhere in it come to their end first."""
    run.request_stop(stop)
    yield Drain()
    raise StopRun(stop)


def check_next(run: Run, position: str, asked: Asked) -> Flow:
    """For a call that is not recorded: hold the run unless it comes behind all that is."""
    if run.is_closed(position):
        raise StopRun("its fan-out has ended early")
    later = run.history.skipped_to(position)
    if later is not None:
        yield from hold(run, not_recorded(run, later, asked))
    return None


def abandon(run: Run, key: str, past: Past, also: guards.Bill = guards.NO_BILL) -> Flow:
    """Workflow code cancelled the call. Recorded, and given out in its order like an outcome,
    before the workflow can do anything that follows from it."""
    run.dues.pop(key, None)
    if run.stop is not None:
        return None  # the run unwinds; an open attempt is recorded as interrupted at its end
    run.wants.pop(key, None)
    run.shut(key)
    bill = guards.settled(run, key)
    said = (*bill.events, events.StepAbandoned(attempt=past.attempts))
    entries = (*map(Entry, also.events), *(Entry(event, key) for event in said))
    along = (*bill.along, *also.along)
    if past.wait is not None:
        along = (*along, Withdraw(run.run_id, key))
    try:
        yield Write(entries, "record", durable=False, deliver=True, shielded=True, along=along)
    finally:
        run.closed(key)
    return None


PATIENCE = 10.0
"""Seconds to wait for a recorded cancellation to come again, at least."""


def cancelled_again(run: Run, past: Past) -> Flow:
    """Wait for the recorded cancellation to come again. Nothing is executed meanwhile.

    A time-out in workflow code that cancelled the call had begun after its process took the run. So
    the run is held once twice as much time as there was between the two has passed: the code
    no longer cancels the call.

    Raises:
        Cancelled: it came; the workflow learns of it in its recorded order.
    """
    try:
        yield Forever(past.order, max(PATIENCE, 2 * past.patience))
    except Cancelled:
        yield Deliver(past.order, shielded=True)
        raise
    return (yield from hold(run, not_cancelled(run, past)))
