"""The step algorithm: what happens to one call of a step, in which order.

It is a generator without any I/O. It yields *requests* (requests.py) and gets their replies; a
driver (drive.py) performs them, one for plain code and one for asyncio. So there is one algorithm,
and a simulator or a fault injector is just another driver.

    recorded?  return it
    in doubt?  reconcile, else hold or raise
    else       open -> body -> complete, or classify -> retry or fail
"""

from collections.abc import Generator

from outlast import codec, events
from outlast.engine import holds
from outlast.engine.doubt import apply_settlement, resolve_doubt
from outlast.engine.ended import Ended, Returned
from outlast.engine.history import Past
from outlast.engine.holds import Asked
from outlast.engine.outcomes import after_error, complete
from outlast.engine.requests import (
    Body,
    Call,
    Cancelled,
    Deliver,
    Flow,
    Reply,
    Request,
    Sleep,
    Write,
)
from outlast.engine.run import AttemptInfo, Run
from outlast.engine.spec import return_hint
from outlast.engine.stopping import abandon, cancelled_again, check_next, hold
from outlast.errors import StopRun, Unreadable
from outlast.journal import Entry
from outlast.policy.gate import Attempt as GateQuestion
from outlast.policy.gate import Deny


def run_step(run: Run, call: Call) -> Flow:
    """One call of a step, from its record or by executing it. Returns its value.

    Raises:
        StopRun: the run must stop.
        Exception: the step's recorded error.
    """
    run.check()
    past = run.history.at(call.position)
    if past is None:
        past = Past(call.key, call.spec.name)
        yield from check_next(run, call.position, _asked(call))
    else:
        if not past.fits("step", call.spec.name, call.digest):
            asked = _asked(call)
            yield from hold(run, holds.misfit(run, past, asked))
        in_doubt = past.outcome is None and past.doubt is not None and _holds_doubt(call, past)
        if past.abandoned and not in_doubt:
            yield from cancelled_again(run, past)
    try:
        if past.outcome is not None:
            yield Deliver(past.order)
            return (yield from _recorded(run, call, past))
        if past.settled is not None:
            yield from apply_settlement(run, call, past)
        if past.outcome is None:
            yield from _attempts(run, call, past)
        return (yield from _recorded(run, call, past))
    except Cancelled:
        doubtful = call.key in run.open or past.doubt is not None
        yield from abandon(run, call.key, past)
        if doubtful and past.outcome is None and _holds_doubt(call, past):
            run.request_stop(holds.in_doubt(run, call, past, "the workflow cancelled it", None))
        raise
    except Exception:
        run.closed(call.key)  # for an error of ours; a recorded one has closed the attempt
        raise


def _asked(call: Call) -> Asked:
    return Asked("step", call.spec.name, call.site, call.preview)


def _holds_doubt(call: Call, past: Past) -> bool:
    """Whether a doubt about the latest attempt is for an operator, not for the workflow."""
    return past.effect == "once" and call.spec.in_doubt == "hold"


def _recorded(run: Run, call: Call, past: Past) -> Flow:
    """The outcome that is in the journal: live and on replay, the workflow sees this form."""
    outcome = past.outcome
    try:
        if isinstance(outcome, events.StepCompleted):
            hints = (return_hint(call.spec.fn), *run.history.moved)
            return codec.decode(bytes(outcome.value), hints=hints)
        assert isinstance(outcome, events.StepFailed)
        error = codec.rebuild_error(outcome.error, hints=run.history.moved)
        traceback = outcome.error.traceback
    except Unreadable as problem:
        yield from hold(run, holds.unreadable(run, f"the result of step {call.key}: {problem}"))
    if traceback:
        error.add_note(f"step {call.key}, original traceback:\n{traceback}")
    raise error


def _attempts(run: Run, call: Call, past: Past) -> Flow:
    """Open attempts until one has an outcome."""
    while past.outcome is None:
        if past.doubt is not None:
            yield from resolve_doubt(run, call, past)
            continue
        if past.crashes >= run.settings.max_crashes:
            yield from hold(run, holds.crash_loop(run, past))
        if past.retry_at is not None:
            yield from wait_until(run, call.key, past.retry_at, past.longest)
            past.retry_at = None
        run.check_opening()
        ended = yield from _attempt(run, call, past)
        if isinstance(ended, Returned):
            yield from complete(run, call, past, ended.value)
        else:
            yield from after_error(run, call, past, ended)
    return None


def _attempt(run: Run, call: Call, past: Past) -> Generator[Request, Reply, Ended]:
    """Ask the gate, open one attempt, run the body."""
    spec, number = call.spec, past.attempts + 1
    verdict = run.gate(GateQuestion(run.run_id, call.key, spec.name, number, spec.effect))
    if isinstance(verdict, Deny):
        decided = events.PolicyDecided(decision="deny", rule=verdict.rule)
        yield Write((Entry(decided, call.key),), "open")
        yield from hold(run, holds.denied(run, call, verdict))
    deadline = None if spec.timeout is None else run.world.wall() + spec.timeout
    if number == 1:
        known, past.variant = run.history.spare.take(call.key, call.digest)
        past.alias = "" if known == call.key else known
    info = AttemptInfo(run, call.key, number, spec.effect, deadline, past.alias, past.variant)
    started = events.StepStarted(
        attempt=number,
        effect=spec.effect,
        digest=call.digest,
        preview=call.preview(),
        site="" if call.site is None else call.site.short,
        alias=past.alias,
        variant=past.variant,
    )
    run.opened(info)
    # Now: the caller may be cancelled while the opening is written.
    past.attempts, past.effect = number, spec.effect
    try:
        yield Write((Entry(started, call.key),), "open", durable=spec.effect == "once")
    except StopRun:
        run.closed(call.key)  # it never opened
        raise
    if run.lease_is_over():  # the process was stopped in between: is the run still ours?
        yield Write((), "open", durable=False)
    ended = yield Body(spec.fn, call.args, call.kwargs, info, spec.timeout)
    assert isinstance(ended, Ended)
    return ended


def wait_until(run: Run, key: str, due: float, longest: float) -> Flow:
    """Sleep, shown to the outside as `waiting` if nothing else goes on in the run.

    Even if the wall clock was set back since `due` was recorded, the wait is not above `longest`.
    """
    due = min(due, run.world.wall() + longest)
    if run.dues.get(key) != due:  # a wait from an earlier life of the run
        run.dues[key] = due
        yield Write((), "record", durable=False)
    yield Sleep(due)
    run.dues.pop(key, None)
    return None
