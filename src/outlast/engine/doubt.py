"""A `once` step that may or may not have happened: find out, else hold the run or tell it."""

from collections.abc import Generator

from msgspec.structs import replace

from outlast import codec, events
from outlast.engine.ended import Raised, Returned
from outlast.engine.history import Past
from outlast.engine.holds import in_doubt, unfit_settlement
from outlast.engine.outcomes import close, complete, fail, pack, retry_or_fail
from outlast.engine.requests import Body, Call, Flow, Late, Reply, Request, Write
from outlast.engine.run import AttemptInfo, Run
from outlast.engine.spec import has_unresolved_hints, return_hint
from outlast.engine.stopping import hold
from outlast.engine.verdict import judge
from outlast.errors import InDoubt, NotDone, NotStorable, UsageError
from outlast.events import ErrorRecord, Event
from outlast.journal import Entry
from outlast.records import Done, Unknown


def resolve_doubt(run: Run, call: Call, past: Past) -> Flow:
    """Find out whether a `once` attempt took effect. Returns if it is known now; `past.outcome` is
    set if it did."""
    if (yield from _has_late_result(run, call, past)):
        return None
    answer = yield from ask(run, call, past)
    if isinstance(answer, Done):
        yield from _reconciled_done(run, call, past, answer.value)
        return None
    if isinstance(answer, NotDone):
        yield from _not_done(run, call, past, past.error)
        return None
    if call.spec.reconcile is not None:
        said = events.StepReconciled("unknown", answer.why)
        yield Write((Entry(said, call.key),), "record")
    doubt = past.doubt or "unknown"
    if call.spec.in_doubt == "raise":
        yield from fail(
            run, call, past, codec.encode_error(InDoubt(call.key, doubt), "unknown-outcome")
        )
        return None
    yield from hold(run, in_doubt(run, call, past, doubt, answer))
    return None


def _not_done(run: Run, call: Call, past: Past, error: ErrorRecord | None, why: str = "") -> Flow:
    """The attempt had no effect: another one may follow."""
    past.doubt = past.error = None
    said = events.StepReconciled("not-done", why)
    if error is None:  # its process had ended: crashes are counted elsewhere
        yield Write((Entry(said, call.key),), "record")
    else:
        yield from retry_or_fail(run, call, past, error, said)
    return None


def _has_late_result(run: Run, call: Call, past: Past) -> Generator[Request, Reply, bool]:
    """Whether a body that outlived its timeout, or its owner, told after all how it ended."""
    ended = yield Late(call.key)
    if isinstance(ended, Returned):
        yield from complete(run, call, past, ended.value, events.StepReconciled("done", LATE))
        return True
    judged = judge(call.spec, ended.exc, run.world.wall()) if isinstance(ended, Raised) else None
    if judged is not None and judged[1]:
        assert isinstance(ended, Raised)
        encoded = codec.encode_error(ended.exc, judged[0].kind)
        error = replace(encoded, reason=judged[0].reason)
        yield from _not_done(run, call, past, error, LATE)
        return True
    if past.late is not None and past.late.attempt == past.attempts and bytes(past.late.value):
        outcome = events.StepCompleted(value=past.late.value, attempt=past.attempts)
        yield from close(run, call, past, outcome, outcome, events.StepReconciled("done", LATE))
        return True
    return False


LATE = "the result came late"


def ask(
    run: Run, call: Call, past: Past
) -> Generator[Request, Reply, Done[object] | NotDone | Unknown]:
    """Call the reconcile function; whatever goes wrong in it leaves the doubt."""
    spec = call.spec
    if spec.reconcile is None:
        return Unknown("the step has no reconcile function")
    info = AttemptInfo(
        run, call.key, past.attempts, past.effect, alias=past.alias, variant=past.variant
    )
    ended = yield Body(spec.reconcile, call.args, call.kwargs, info, spec.timeout, asks=True)
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
    where = f"reconciled result of step {call.key}"
    cancelled = None
    try:
        data = run.encode(value, where, return_hint(call.spec.fn))
    except NotStorable as problem:
        error = codec.encode_error(problem, "done-not-storable")
        outcome: Event = events.StepFailed(past.attempts, error, final=True)
    else:
        stored, cancelled = yield from pack(data)
        outcome = events.StepCompleted(value=stored, attempt=past.attempts)
    yield from close(run, call, past, outcome, outcome, said)
    if cancelled is not None:
        raise cancelled
    return None


def apply_settlement(run: Run, call: Call, past: Past) -> Flow:
    """Turn an operator's decision into an outcome, or let the step run again."""
    settled = past.settled
    assert settled is not None
    past.settled = None
    if settled.decision == "not-done":
        return None
    if settled.decision == "failed":
        error = ErrorRecord(type=events.SETTLED, message=settled.text, fault="terminal")
        yield from fail(run, call, past, error)
        return None
    try:
        if has_unresolved_hints(call.spec.fn):
            raise UsageError("the step's annotations cannot be resolved; import what they name")
        value = codec.from_plain(bytes(settled.value), return_hint(call.spec.fn))
    except Exception as problem:
        said = events.StepReconciled("unknown", f"the settled value does not fit: {problem}")
        yield Write((Entry(said, call.key),), "record")
        yield from hold(run, unfit_settlement(run, call, problem))
    yield from complete(run, call, past, value)
    return None
