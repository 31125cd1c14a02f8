"""The step algorithm: what happens to one call of a step, in which order.

It is a generator without any I/O. It yields *requests* and gets their replies; a driver (drive.py)
performs them, one for plain code and one for asyncio. So there is one algorithm, and a simulator
or a fault injector is just another driver.

    recorded?  return it
    in doubt?  reconcile, else hold or raise
    else       open -> body -> complete, or classify -> retry or fail
"""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from msgspec import Raw

from outlast import codec, events
from outlast.engine.history import Past
from outlast.engine.run import AttemptInfo, Run
from outlast.engine.spec import StepSpec, return_hint
from outlast.engine.stop import Hold
from outlast.errors import InDoubt, NotDone, NotStorable, StepTimeout, StopRun, Unreadable
from outlast.events import ErrorRecord, Event
from outlast.journal import Becomes, Entry
from outlast.policy.faults import certainly_not_done, classify
from outlast.policy.gate import Attempt as GateQuestion
from outlast.policy.gate import Deny
from outlast.policy.retry import next_wait
from outlast.records import Done, Unknown

# ---- requests, and how a body can end


@dataclass(frozen=True, slots=True)
class Write:
    """Append entries under the run's epoch. Reply: the sequence number of the last one.

    Attributes:
        mode: see `journal.OwnerWrite`.
        durable: wait for the disk. Otherwise the commit survives SIGKILL but not a power cut.
        deliver: the reply is an outcome, to be given out in its order.
        at_once: do not let other tasks run meanwhile.
        shielded: the caller is cancelled already; further cancellations change nothing.
        late: what to keep as evidence if the run turns out to be no longer ours.
    """

    entries: tuple[Entry, ...]
    mode: Literal["open", "record"]
    durable: bool = True
    deliver: bool = False
    at_once: bool = False
    shielded: bool = False
    late: Event | None = None
    becomes: Becomes | None = None
    release: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """Call a function of the user. Reply: an `Ended`.

    Attributes:
        alone: first let bodies end that outlived their timeout.
    """

    fn: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    attempt: AttemptInfo
    timeout: float | None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait until a time (seconds since the epoch). No reply."""

    due: float


@dataclass(frozen=True, slots=True)
class Deliver:
    """Wait until the recorded outcome with this sequence number is to be given out. No reply.
    `shielded` as for `Write`."""

    order: int
    shielded: bool = False


@dataclass(frozen=True, slots=True)
class Forever:
    """Wait to be cancelled, as this call was when it was recorded, with this sequence number."""

    order: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until no attempt is open in the run; once it must stop, for the grace period at most. No
    reply."""


Request = Write | Body | Sleep | Deliver | Forever | Drain


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised."""

    exc: Exception


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The body did not end within so many seconds."""

    seconds: float


Ended = Returned | Raised | TimedOut
Reply = int | Ended | None


class Cancelled(BaseException):
    """A driver throws this into a flow whose caller was cancelled by workflow code."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step: where it stands, and with what."""

    spec: StepSpec
    key: str
    position: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    digest: str
    preview: str
    idempotency_key: str


Flow = Generator[Request, Reply, object]


# ---- the algorithm


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
    else:
        yield from check_fit(run, past, call.spec.name, call.digest, call.preview)
        in_doubt = past.outcome is None and past.doubt is not None and _holds_doubt(call.spec)
        if past.abandoned and not in_doubt:
            yield from cancelled_again(past)
    try:
        if past.outcome is not None:
            yield Deliver(past.order)
            return (yield from _recorded(run, call, past))
        if past.settled is not None:
            yield from _apply_settlement(run, call, past)
        if past.outcome is None:
            yield from _attempts(run, call, past)
        return (yield from _recorded(run, call, past))
    except Cancelled:
        doubtful = call.key in run.open or past.doubt is not None
        yield from abandon(run, call.key, past)
        if doubtful and past.outcome is None and _holds_doubt(call.spec):
            run.request_stop(_in_doubt(run, call, "the workflow cancelled it", Unknown()))
        raise


def check_fit(run: Run, past: Past, name: str, digest: str, preview: str = "") -> Flow:
    """Hold the run if what is called is not what was recorded at this position."""
    if past.name == name and (past.digest == digest or not past.digest):
        return None
    if past.name != name:
        said = f"the journal has {past.key}, the code now calls {name}"
    else:
        said = f"{past.key} was recorded with other arguments than the code passes now ({preview})"
    yield from hold(
        run,
        Hold(
            "diverged",
            f"the code does not fit the run's journal: {said}; the call was not executed",
            f"Bring back the code that the run started with, then: outlast resume {run.run_id}",
            past.key,
        ),
    )
    return None


def _holds_doubt(spec: StepSpec) -> bool:
    return spec.effect == "once" and spec.in_doubt == "hold"


def cancelled_again(past: Past) -> Flow:
    """Wait for the recorded cancellation to come again. Nothing is executed meanwhile.

    Raises:
        Cancelled: it came; the workflow learns of it in its recorded order.
    """
    try:
        yield Forever(past.order)
    except Cancelled:
        yield Deliver(past.order, shielded=True)
        raise
    return None


def _recorded(run: Run, call: Call, past: Past) -> Flow:
    """The outcome that is in the journal: live and on replay, the workflow sees this form."""
    outcome = past.outcome
    try:
        if isinstance(outcome, events.StepCompleted):
            return codec.decode(bytes(outcome.value), hints=(return_hint(call.spec.fn),))
        assert isinstance(outcome, events.StepFailed)
        error, traceback = codec.rebuild_error(outcome.error), outcome.error.traceback
    except Unreadable as problem:
        yield from hold(run, unreadable(run, f"the result of step {call.key}: {problem}"))
    if traceback:
        error.add_note(f"step {call.key}, original traceback:\n{traceback}")
    raise error


def _attempts(run: Run, call: Call, past: Past) -> Flow:
    """Open attempts until one has an outcome."""
    while past.outcome is None:
        if past.doubt is not None and call.spec.effect == "once":
            yield from _resolve_doubt(run, call, past)
            continue
        if past.crashes >= run.settings.max_crashes:
            yield from hold(run, crash_loop(run, past))
        if past.retry_at is not None:
            yield from wait_until(run, call.key, past.retry_at, past.longest)
            past.retry_at = None
        run.check_opening()
        ended = yield from _attempt(run, call, past)
        if isinstance(ended, Returned):
            yield from _complete(run, call, past, ended.value)
        else:
            yield from _after_error(run, call, past, ended)
    return None


def _attempt(run: Run, call: Call, past: Past) -> Generator[Request, Reply, Ended]:
    """Ask the gate, open one attempt, run the body."""
    spec, number = call.spec, past.attempts + 1
    verdict = run.gate(GateQuestion(run.run_id, call.key, spec.name, number, spec.effect))
    if isinstance(verdict, Deny):
        decided = events.PolicyDecided(decision="deny", rule=verdict.rule)
        yield Write((Entry(decided, call.key),), "open")
        yield from hold(run, _denied(run, call, verdict))
    deadline = None if spec.timeout is None else run.world.wall() + spec.timeout
    info = AttemptInfo(run, call.key, number, spec.effect, call.idempotency_key, deadline)
    started = events.StepStarted(
        name=spec.name,
        attempt=number,
        effect=spec.effect,
        digest=call.digest,
        preview=call.preview,
        idempotency=call.idempotency_key,
    )
    run.opened(info)
    past.attempts = number  # now: the caller may be cancelled while the opening is written
    try:
        yield Write((Entry(started, call.key),), "open", durable=spec.effect == "once")
    except StopRun:
        run.closed(call.key)  # it never opened
        raise
    ended = yield Body(spec.fn, call.args, call.kwargs, info, spec.timeout)
    assert isinstance(ended, Ended)
    return ended


def _complete(run: Run, call: Call, past: Past, value: object) -> Flow:
    hint = return_hint(call.spec.fn)
    try:
        data = codec.encode(value, where=f"result of step {call.key}", hints=(hint,))
    except NotStorable as problem:
        # The effect is done: never a retry. The workflow may catch this error.
        yield from _fail(run, call, past, codec.encode_error(problem, "done-not-storable"))
        return None
    outcome = events.StepCompleted(value=Raw(data), attempt=past.attempts)
    yield from _close(run, call, past, outcome, events.StepLate(past.attempts, value=Raw(data)))
    return None


def _fail(run: Run, call: Call, past: Past, error: ErrorRecord, *before: Event) -> Flow:
    outcome = events.StepFailed(attempt=past.attempts, error=error, final=True)
    late = events.StepLate(past.attempts, error=error)
    yield from _close(run, call, past, outcome, late, *before)
    return None


def _close(run: Run, call: Call, past: Past, outcome: Event, late: Event, *before: Event) -> Flow:
    """Record the outcome of a call, durably, and let it count from then on."""
    entries = tuple(Entry(event, call.key) for event in (*before, outcome))
    run.open.pop(call.key, None)  # so that the status written with it is right
    try:
        order = yield Write(entries, "record", deliver=True, late=late)
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


def _after_error(run: Run, call: Call, past: Past, ended: Raised | TimedOut) -> Flow:
    """Record a failed attempt as doubt, as retryable or as final."""
    if isinstance(ended, TimedOut):
        exc: Exception = StepTimeout(f"step {call.key} took longer than {ended.seconds:g} s")
    else:
        exc = ended.exc
    error = codec.encode_error(exc, classify(exc).kind)
    if call.spec.effect == "once" and not certainly_not_done(exc, call.spec.not_done):
        past.doubt, past.error = f"it raised {error.type}: {error.message}", error
        yield from _note(run, call, events.StepInDoubt(past.attempts, past.doubt, error))
        return None
    yield from _retry_or_fail(run, call, past, error)
    return None


def _retry_or_fail(run: Run, call: Call, past: Past, error: ErrorRecord, *before: Event) -> Flow:
    """Record an attempt that certainly failed, and whether there will be another."""
    past.failures += 1
    wait = next_wait(call.spec.retry, error.fault, past.failures, run.world.random())
    if wait is None:
        yield from _fail(run, call, past, error, *before)
        return None
    past.retry_at, past.longest = run.world.wall() + wait, math.inf
    run.dues[call.key] = past.retry_at
    failed = events.StepFailed(past.attempts, error, final=False, retry_at=past.retry_at)
    yield from _note(run, call, failed, *before)
    return None


def _note(run: Run, call: Call, event: Event, *before: Event) -> Flow:
    """Record how an attempt ended, where the call goes on."""
    run.open.pop(call.key, None)
    entries = tuple(Entry(e, call.key) for e in (*before, event))
    yield Write(entries, "record", late=event)
    run.closed(call.key)
    return None


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


# ---- doubt


def _resolve_doubt(run: Run, call: Call, past: Past) -> Flow:
    """Find out whether a `once` attempt took effect. Returns if it is known now; `past.outcome` is
    set if it did."""
    answer = yield from _ask(run, call, past)
    if isinstance(answer, Done):
        yield from _reconciled_done(run, call, past, answer.value)
        return None
    if isinstance(answer, NotDone):
        error, past.doubt, past.error = past.error, None, None
        said = events.StepReconciled("not-done")
        if error is None:  # its process had ended: crashes are counted elsewhere
            yield Write((Entry(said, call.key),), "record")
        else:
            yield from _retry_or_fail(run, call, past, error, said)
        return None
    if call.spec.reconcile is not None:
        said = events.StepReconciled("unknown", answer.why)
        yield Write((Entry(said, call.key),), "record")
    doubt = past.doubt or "unknown"
    if call.spec.in_doubt == "raise":
        yield from _fail(
            run, call, past, codec.encode_error(InDoubt(call.key, doubt), "unknown-outcome")
        )
        return None
    yield from hold(run, _in_doubt(run, call, doubt, answer))
    return None


def _ask(
    run: Run, call: Call, past: Past
) -> Generator[Request, Reply, Done[object] | NotDone | Unknown]:
    """Call the reconcile function; whatever goes wrong in it leaves the doubt."""
    spec = call.spec
    if spec.reconcile is None:
        return Unknown("the step has no reconcile function")
    info = AttemptInfo(run, call.key, past.attempts, spec.effect, call.idempotency_key)
    ended = yield Body(spec.reconcile, call.args, call.kwargs, info, spec.timeout, alone=True)
    match ended:
        case Returned(Done() | NotDone() | Unknown() as answer):
            return answer
        case Returned(value) if value is NotDone or value is Unknown:
            return NotDone() if value is NotDone else Unknown()
        case Returned(value):
            return Unknown(
                f"reconcile returned {type(value).__name__}, expected Done(value), NotDone() or "
                "Unknown()"
            )
        case Raised(exc):
            return Unknown(f"reconcile raised {type(exc).__name__}: {exc}")
        case _:
            return Unknown("reconcile did not end within the step's timeout")


def _reconciled_done(run: Run, call: Call, past: Past, value: object) -> Flow:
    said = events.StepReconciled("done")
    hint = return_hint(call.spec.fn)
    try:
        data = codec.encode(value, where=f"reconciled result of step {call.key}", hints=(hint,))
    except NotStorable as problem:
        error = codec.encode_error(problem, "done-not-storable")
        outcome: Event = events.StepFailed(past.attempts, error, final=True)
    else:
        outcome = events.StepCompleted(value=Raw(data), attempt=past.attempts)
    yield from _close(run, call, past, outcome, outcome, said)
    return None


def _apply_settlement(run: Run, call: Call, past: Past) -> Flow:
    """Turn an operator's decision into an outcome, or let the step run again."""
    settled = past.settled
    assert settled is not None
    past.settled = None
    if settled.decision == "not-done":
        return None
    if settled.decision == "failed":
        error = ErrorRecord(type="settled", message=settled.text, fault="terminal")
        yield from _fail(run, call, past, error)
        return None
    try:
        value = codec.from_plain(bytes(settled.value), return_hint(call.spec.fn))
    except Exception as problem:
        said = events.StepReconciled("unknown", f"the settled value does not fit: {problem}")
        yield Write((Entry(said, call.key),), "record")
        yield from hold(run, _unfit_settlement(run, call, problem))
    yield from _complete(run, call, past, value)
    return None


# ---- stopping


def hold(run: Run, stop: Hold) -> Generator[Request, Reply, NoReturn]:
    """Stop the run. Attempts that are open elsewhere in it come to their end first."""
    run.request_stop(stop)
    yield Drain()
    raise StopRun(stop)


def abandon(run: Run, key: str, past: Past) -> Flow:
    """Workflow code cancelled the call. Recorded, and given out in its order like an outcome,
    before the workflow can do anything that follows from it."""
    run.dues.pop(key, None)
    if run.stop is not None:
        return None  # the run unwinds; an open attempt is recorded as interrupted at its end
    run.open.pop(key, None)
    event = events.StepAbandoned(attempt=past.attempts)
    try:
        yield Write((Entry(event, key),), "record", durable=False, deliver=True, shielded=True)
    finally:
        run.closed(key)
    return None


def crash_loop(run: Run, past: Past) -> Hold:
    """The stop for a step in whose attempts the process died too often."""
    return Hold(
        "crash-loop",
        f"step {past.key} stopped with its process {past.crashes} times in a row",
        f"Find out why it ends the process, then: outlast resume {run.run_id}",
        past.key,
    )


def unreadable(run: Run, detail: str) -> Hold:
    """The stop for stored bytes that cannot be turned back into their value."""
    return Hold(
        "unreadable",
        detail,
        "The stored bytes are kept. Bring back the code that can read them, then: "
        f"outlast resume {run.run_id}",
    )


def _denied(run: Run, call: Call, verdict: Deny) -> Hold:
    return Hold(
        "paused",
        f"the policy gate refused step {call.key}: {verdict.rule}",
        f"Change the policy, then: outlast resume {run.run_id}",
        call.key,
    )


def _in_doubt(run: Run, call: Call, doubt: str, answer: Unknown) -> Hold:
    return Hold(
        "in-doubt",
        f"step {call.key} ({call.preview}) may or may not have happened: {doubt}. Idempotency key "
        f"{call.idempotency_key}. {answer.why or 'reconcile could not tell'}",
        f"Look outside, then: outlast settle {run.run_id} '{call.key}' --done JSON | --not-done | "
        "--failed TEXT",
        call.key,
    )


def _unfit_settlement(run: Run, call: Call, problem: Exception) -> Hold:
    return Hold(
        "in-doubt",
        f"the value that step {call.key} was settled with does not fit what it returns: {problem}",
        f"Settle it again: outlast settle {run.run_id} '{call.key}' --done JSON",
        call.key,
    )
