"""The step algorithm: what happens to one call of a step, in which order.

It is a generator without any I/O. It yields *requests* (requests.py) and gets their replies; a
driver (drive.py) performs them, one for plain code and one for asyncio. So there is one algorithm,
and a simulator or a fault injector is just another driver.

    recorded?  return it
    approval?  ask, and wait for the answer
    in doubt?  reconcile, else hold or raise
    else       open -> body -> complete, or classify -> retry or fail
    refused?   the breaker: fail or wait; the budget: hold
"""

from collections.abc import Callable, Generator

from msgspec import Raw

from outlast import codec, events
from outlast.breakers import AdmissionRefused, SettingsClash
from outlast.budgets import OverBudget
from outlast.engine import guards, holds
from outlast.engine.asking import leave
from outlast.engine.doubt import apply_settlement, resolve_doubt
from outlast.engine.ended import Ended, Returned
from outlast.engine.history import Past
from outlast.engine.holds import Asked
from outlast.engine.outcomes import after_error, complete, pack
from outlast.engine.refusals import refused, short_of
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
from outlast.policy.budget import Short
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
        yield from _check_repeats(run, call)
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
    finally:
        run.purse.leave_line((run.run_id, call.key))


def _check_repeats(run: Run, call: Call) -> Flow:
    """The loop guard, for a call that is not recorded."""
    if run.max_repeats is None or not _is_watched(call) or run.dry is not None:
        return None
    if run.repeats.times(call.spec.name, call.digest) >= run.max_repeats:
        yield from hold(run, holds.looping(run, call))
    return None


def _is_watched(call: Call) -> bool:
    """Whether the loop guard can tell its arguments from others, and is to."""
    return bool(call.digest) and not call.spec.poll


def _asked(call: Call) -> Asked:
    return Asked("step", call.spec.name, call.site, call.preview)


def _holds_doubt(call: Call, past: Past) -> bool:
    """Whether a doubt about the latest attempt is for an operator, not for the workflow."""
    return past.effect == "once" and call.spec.in_doubt == "hold"


def _recorded(run: Run, call: Call, past: Past) -> Flow:
    """The outcome that is in the journal: live and on replay, the workflow sees this form."""
    outcome = past.outcome
    assert outcome is not None
    if past.order > run.history.repeats_to and run.max_repeats is not None and _is_watched(call):
        run.repeats.note(call.spec.name, call.digest, outcome, call.key)
    try:
        if isinstance(outcome, events.StepCompleted):
            hints = (return_hint(call.spec.fn), *run.history.moved)
            return codec.decode(bytes(outcome.value), hints=hints)
        assert isinstance(outcome, events.StepFailed | events.StepRefused)
        assert outcome.error is not None
        error = codec.rebuild_error(outcome.error, hints=run.history.moved)
        traceback = outcome.error.traceback
    except Unreadable as problem:
        yield from hold(run, holds.unreadable(run, f"the result of step {call.key}: {problem}"))
    if traceback:
        error.add_note(f"step {call.key}, original traceback:\n{traceback}")
    raise error


def _attempts(run: Run, call: Call, past: Past) -> Flow:
    """Open attempts until one has an outcome."""
    short: Short | None = None
    while past.outcome is None:
        if past.doubt is not None:
            yield from resolve_doubt(run, call, past)
            continue
        if past.crashes >= run.settings.max_crashes:
            yield from hold(run, holds.crash_loop(run, past))
        if past.retry_at is not None:
            over = guards.may_be_called(run, call, past.refused_by) if past.refused_by else None
            yield from wait_until(run, call.key, past.retry_at, past.longest, over)
            past.retry_at, past.refused_by = None, ""
        if call.spec.approval is not False:
            yield from leave(run, call, past)
            if past.outcome is not None:
                return None
        if call.spec.undoes:  # that is done once the workflow has ended
            run.check()
        else:
            run.check_opening()
        try:
            ended = yield from _attempt(run, call, past)
        except AdmissionRefused as refusal:
            yield from refused(run, call, past, refusal)
        except OverBudget as problem:
            yield from short_of(run, call, problem.short, short)
            short = problem.short
        else:
            if isinstance(ended, Returned):
                yield from complete(run, call, past, ended.value)
            else:
                yield from after_error(run, call, past, ended)
    return None


def _attempt(run: Run, call: Call, past: Past) -> Generator[Request, Reply, Ended]:
    """Ask the gate, open one attempt, run the body.

    Raises:
        AdmissionRefused, OverBudget: it did not open.
    """
    spec, number = call.spec, past.attempts + 1
    verdict = run.gate(GateQuestion(run.run_id, call.key, spec.name, number, spec.effect))
    if isinstance(verdict, Deny):
        decided = events.PolicyDecided(decision="deny", rule=verdict.rule)
        yield Write((Entry(decided, call.key),), "open")
        yield from hold(run, holds.denied(run, call, verdict))
    if guards.has_no_money(run, spec):
        yield from hold(run, holds.no_budget(run, call))
    timeout = guards.timeout(run, spec)
    deadline = None if timeout is None else run.world.wall() + timeout
    if number == 1 and not past.named:
        known, past.variant = run.history.spare.take(call.key, call.digest)
        past.alias, past.named = "" if known == call.key else known, True
    info = AttemptInfo(run, call.key, number, spec.effect, deadline, past.alias, past.variant)
    yield from _open(run, call, past, info)
    ended = yield Body(spec.fn, call.args, call.kwargs, info, timeout)
    assert isinstance(ended, Ended)
    return ended


def _open(run: Run, call: Call, past: Past, info: AttemptInfo) -> Flow:
    """Count the attempt, before its body begins."""
    spec = call.spec
    args = yield from _args_for_undo(run, call, info.number)
    started = events.StepStarted(
        attempt=info.number,
        effect=spec.effect,
        digest=call.digest,
        preview=call.preview(),
        site="" if call.site is None else call.site.short,
        alias=past.alias,
        variant=past.variant,
        args=args,
        undo="" if spec.undo is None else spec.place,
    )
    guard = guards.guard_of(run, call, info.number)
    run.opened(info)
    # Now: the caller may be cancelled while the opening is written.
    before = past.attempts, past.effect, past.began
    past.attempts, past.effect = info.number, spec.effect
    past.began = min(past.began, run.world.wall())
    run.guards[call.key] = guard
    try:
        durable = spec.effect == "once"
        yield Write((Entry(started, call.key),), "open", durable=durable, along=guard.along)
    except (StopRun, AdmissionRefused, SettingsClash, OverBudget) as problem:  # it never opened
        past.attempts, past.effect, past.began = before
        run.closed(call.key)
        del run.guards[call.key]
        if isinstance(problem, SettingsClash):
            yield from hold(run, holds.clash(run, call, problem))
        raise
    guard.opened()
    run.purse.leave_line((run.run_id, call.key))
    if run.lease_is_over():  # the process was stopped in between: is the run still ours?
        yield Write((), "open", durable=False)
    return None


def _args_for_undo(run: Run, call: Call, number: int) -> Generator[Request, Reply, Raw]:
    """The arguments that the step's compensation will get, with its first attempt. Secrets are not
    among them: they are not to be stored."""
    spec = call.spec
    if spec.undo is None or number > 1:
        return events.ABSENT
    known = {name: value for name, value in call.recorded.items() if name not in spec.secret}
    data = run.encode(known, f"arguments of step {call.key}, which its undo needs", spec.fn)
    stored, cancelled = yield from pack(data)
    if cancelled is not None:
        raise cancelled
    return stored


def wait_until(
    run: Run,
    key: str,
    due: float,
    longest: float,
    over: Callable[[], bool] | None = None,
    *,
    news: bool = False,
) -> Flow:
    """Sleep, shown to the outside as `waiting` if nothing else goes on in the run; until `over`
    (for it and `news` see `Sleep`).

    Even if the wall clock was set back since `due` was recorded, the wait is not above `longest`.
    """
    due = min(due, run.world.wall() + longest)
    if run.dues.get(key) != due:  # a wait from an earlier life of the run
        run.dues[key] = due
        yield Write((), "record", durable=False)
    yield Sleep(due, over, news)
    run.dues.pop(key, None)
    return None
