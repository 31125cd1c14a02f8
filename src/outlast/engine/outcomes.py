"""Recording how an attempt ended: as an outcome, as a failure to be retried, or as doubt."""

import math
from collections.abc import Generator

from msgspec import Raw
from msgspec.structs import replace

from outlast import codec, events
from outlast.engine import guards
from outlast.engine.ended import Raised, TimedOut
from outlast.engine.history import Past
from outlast.engine.holds import out_of_time
from outlast.engine.requests import Call, Cancelled, Flow, Pack, Reply, Request, Write
from outlast.engine.run import Run
from outlast.engine.sites import warn_at
from outlast.engine.spec import return_hint
from outlast.engine.stopping import hold
from outlast.engine.verdict import hidden_retries, judge
from outlast.errors import NotStorable, StepTimeout, StopRun
from outlast.events import ErrorRecord, Event
from outlast.journal import Entry
from outlast.policy.retry import next_wait


def complete(run: Run, call: Call, past: Past, value: object, *before: Event) -> Flow:
    """Record what the body returned."""
    guards.succeeded(run, call, value)
    try:
        data = run.encode(value, f"result of step {call.key}", return_hint(call.spec.fn))
    except NotStorable as problem:
        # The effect is done: never a retry. The workflow may catch this error.
        yield from fail(run, call, past, codec.encode_error(problem, "done-not-storable"), *before)
        return None
    stored, cancelled = yield from pack(data)
    outcome = events.StepCompleted(value=stored, attempt=past.attempts)
    late = events.StepLate(past.attempts, value=stored)
    yield from close(run, call, past, outcome, late, *before)
    if cancelled is not None:
        raise cancelled
    return None


def pack(data: bytes) -> Generator[Request, Reply, tuple[Raw, Cancelled | None]]:
    """A stored form as it goes into an event. If the caller is cancelled meanwhile, the value is
    there all the same and to be recorded; the cancellation is returned, to be raised afterwards."""
    if len(data) < codec.LARGE:
        return Raw(data), None
    try:
        packed = yield Pack(data)
    except Cancelled as cancelled:
        return Raw(data), cancelled
    assert isinstance(packed, bytes)
    return Raw(packed), None


def is_large(event: Event) -> bool:
    """Whether an outcome takes long to be written."""
    match event:
        case events.StepCompleted(value) | events.RunCompleted(value):
            return len(bytes(value)) >= codec.LARGE
        case _:
            return False


def fail(run: Run, call: Call, past: Past, error: ErrorRecord, *before: Event) -> Flow:
    """Record an error that the workflow gets."""
    outcome = events.StepFailed(attempt=past.attempts, error=error, final=True)
    late = events.StepLate(past.attempts, error=error)
    yield from close(run, call, past, outcome, late, *before)
    return None


def close(run: Run, call: Call, past: Past, outcome: Event, late: Event, *before: Event) -> Flow:
    """Record the outcome of a call, durably, and let it count from then on."""
    run.shut(call.key)  # so that the status written with it is right
    bill = guards.settled(run, call.key)
    entries = tuple(Entry(event, call.key) for event in (*before, *bill.events, outcome))
    try:
        order = yield Write(
            entries, "record", deliver=True, late=late, large=is_large(outcome), along=bill.along
        )
        assert isinstance(order, int)
        past.order = order
    except StopRun:
        run.closed(call.key)
        raise
    except Cancelled:  # after the commit, before the workflow saw it
        past.outcome, past.doubt = outcome, None
        run.closed(call.key)
        raise
    run.closed(call.key)
    past.outcome, past.doubt = outcome, None
    return None


def after_error(run: Run, call: Call, past: Past, ended: Raised | TimedOut) -> Flow:
    """Record a failed attempt as doubt, as retryable or as final."""
    limited = past.effect != "once" and not call.spec.undoes
    if isinstance(ended, TimedOut) and limited and guards.time_is_up(run):
        # It did nothing wrong: it is run again once there is time again.
        yield from note(run, call, events.StepInterrupted(past.attempts, crash=False))
        yield from hold(run, out_of_time(run, call))
    if isinstance(ended, TimedOut):
        exc: Exception = StepTimeout(f"step {call.key} took longer than {ended.seconds:g} s")
    else:
        exc = ended.exc
    fault, certain = judge(call.spec, exc, run.world.wall())
    words = f"{type(exc).__name__}: {fault.reason}"
    guards.failed(run, call.key, fault, words, billed=not certain)
    error = replace(codec.encode_error(exc, fault.kind), reason=fault.reason)
    if past.effect == "once" and not certain:
        past.doubt, past.error = f"it raised {error.type}: {error.message}", error
        unknown = replace(error, fault="unknown-outcome")
        said = events.StepInDoubt(past.attempts, past.doubt, unknown, fault=error.fault)
        yield from note(run, call, said)
        return None
    inner = hidden_retries(exc)
    if inner:
        warn_of_inner_retries(call, inner)
    yield from retry_or_fail(run, call, past, error, asked=fault.wait, inner=inner)
    return None


def warn_of_inner_retries(call: Call, inner: str) -> None:
    """Two layers of retries multiply, and only one of them is counted."""
    text = (
        f"step {call.spec.name}: {inner} tried again by itself, beneath outlast's own retries; "
        "switch its retries off (max_retries=0, for instance), or outlast's: Retry(attempts=1)"
    )
    warn_at(call.site, text)


def retry_or_fail(
    run: Run,
    call: Call,
    past: Past,
    error: ErrorRecord,
    *before: Event,
    asked: float | None = None,
    inner: str = "",
) -> Flow:
    """Record an attempt that certainly failed, and whether there will be another.

    Args:
        asked: seconds that the tool wants to be left alone.
        inner: see `events.StepFailed`.
    """
    past.failures += 1
    now = run.world.wall()
    wait = next_wait(
        call.spec.retry,
        error.fault,
        past.failures,
        run.world.random(),
        asked=asked,
        spent=max(0.0, now - past.began),
    )
    if wait is None:
        outcome = events.StepFailed(past.attempts, error, final=True, inner=inner)
        late = events.StepLate(past.attempts, error=error)
        yield from close(run, call, past, outcome, late, *before)
        return None
    past.retry_at, past.longest = now + wait, math.inf
    run.dues[call.key] = past.retry_at
    failed = events.StepFailed(past.attempts, error, False, past.retry_at, wait, inner)
    yield from note(run, call, failed, *before)
    return None


def note(run: Run, call: Call, event: Event, *before: Event) -> Flow:
    """Record how an attempt ended, where the call goes on."""
    run.shut(call.key)
    bill = guards.settled(run, call.key)
    entries = tuple(Entry(e, call.key) for e in (*before, *bill.events, event))
    yield Write(entries, "record", late=event, along=bill.along)
    run.closed(call.key)
    return None
