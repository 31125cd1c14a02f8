"""What becomes of a call whose attempt did not open: its tool's breaker or the run's budget was
against it."""

import math

from msgspec import structs

from outlast import codec, events
from outlast.breakers import AdmissionRefused
from outlast.budgets import OverBudget
from outlast.engine import guards, holds
from outlast.engine.history import Past
from outlast.engine.requests import Call, Cancelled, Flow, InLine, Write
from outlast.engine.run import Run
from outlast.engine.stopping import hold
from outlast.errors import BreakerOpen
from outlast.journal import Entry
from outlast.policy.budget import Short


def refused(run: Run, call: Call, past: Past, problem: AdmissionRefused) -> Flow:
    """The breaker is open: tell the workflow, or wait for it. A refused call costs no attempt, and
    counts as a call all the same, or a loop could spin for nothing."""
    breaker, refusal = problem.breaker, problem.refused
    name = breaker.name or call.spec.name
    event = events.StepRefused(
        breaker=name,
        until=refusal.until,
        fault=refusal.fault,
        effect=call.spec.effect,
        digest=call.digest,
        preview=call.preview(),
        site="" if call.site is None else call.site.short,
    )
    try:
        if breaker.on_open == "wait" and not refusal.final:
            yield from _wait(run, call, past, event, refusal.retry_in)
        else:
            error = codec.encode_error(BreakerOpen(name, refusal.until, refusal.fault), "refused")
            yield from _fail(run, call, past, structs.replace(event, error=error))
    except OverBudget as short:
        yield from short_of(run, call, short.short, short.short)
    return None


def _fail(run: Run, call: Call, past: Past, event: events.StepRefused) -> Flow:
    """The workflow gets the error, which may catch it and go another way."""
    entry, along = Entry(event, call.key), guards.refusal(run)
    try:
        order = yield Write((entry,), "open", deliver=True, along=along)
        assert isinstance(order, int)
        past.order = order
    except Cancelled:  # after the commit, before the workflow saw it
        past.outcome = event
        raise
    past.outcome = event
    return None


def _wait(run: Run, call: Call, past: Past, event: events.StepRefused, seconds: float) -> Flow:
    """Until the cool-down is over, without a worker."""
    due = run.world.wall() + seconds
    run.dues[call.key] = due
    try:
        entry = Entry(structs.replace(event, retry_at=due), call.key)
        yield Write((entry,), "open", along=guards.refusal(run))
    except OverBudget:
        run.dues.pop(call.key, None)
        raise
    past.retry_at, past.longest, past.refused_by = due, math.inf, event.breaker
    return None


def short_of(run: Run, call: Call, short: Short, before: Short | None) -> Flow:
    """A limit of the run's budget does not allow the call. If what attempts under way have
    reserved may be left over, it is asked again once one of them has ended; otherwise the run is
    held.

    Args:
        before: what it was short of when it was asked last.
    """
    if short.transient:
        purse, mark = run.purse, (run.run_id, call.key)
        ours = {(ticket.run_id, ticket.key) for ticket in short.waits_for}
        purse.queue_up(mark)
        waiting = InLine(mark, frozenset(ours & purse.unsettled.keys()))
        if waiting.until:
            yield waiting
            run.check()
            if waiting.over(run):  # else nobody can end while this plain call blocks the loop
                return None
        elif short != before:  # one has ended since
            return None
    yield from hold(run, holds.over_budget(run, call.key, short))
    return None
