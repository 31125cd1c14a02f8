"""Which fault an error of a step is: the step's own rules first, then the library's."""

from dataclasses import replace
from typing import get_args

from outlast.engine.spec import StepSpec
from outlast.errors import Terminal, Transient
from outlast.policy.faults import (
    Fault,
    FaultKind,
    certainly_not_done,
    classify,
    inner_retries,
)
from outlast.policy.retry import declared

LONGEST_WAIT = 7 * 24 * 3600.0
"""Seconds; who asks for more is not believed."""

KINDS = frozenset(get_args(FaultKind))


def judge(spec: StepSpec, exc: BaseException, now: float) -> tuple[Fault, bool]:
    """The fault that an error is, and whether it is certain that nothing happened.

    An error may be any object that somebody else has made. Whatever goes wrong with looking at it,
    the attempt has an outcome: it is not repeated, and nothing is certain.

    Args:
        now: seconds since the epoch, for waits that are given as a time.
    """
    try:
        return fault_of(spec, exc, now), certainly_not_done(exc, spec.not_done)
    except Exception as problem:
        why = f"its error cannot be looked at ({type(problem).__name__})"
        return Fault("terminal", reason=why, counts=True), False


def hidden_retries(exc: BaseException) -> str:
    """See `policy.faults.inner_retries`; nothing if the error cannot be looked at."""
    try:
        return inner_retries(exc)
    except Exception:
        return ""


def fault_of(spec: StepSpec, exc: BaseException, now: float) -> Fault:
    """The fault class of what a body raised.

    In this order: what the step's `classify=` says, what its body says by raising
    `outlast.Terminal` or `outlast.Transient`, what its `Retry(stop_on=, on=)` says, and the
    library's table.

    Args:
        now: seconds since the epoch, for waits that are given as a time.
    """
    ours = classify(exc, now)
    if spec.classify is not None:
        said = _asked(spec, exc)
        if isinstance(said, Fault):
            return _checked(said, spec)
        if said is not None:
            return _as(ours, said, f"classify= of step {spec.name} says so")
    if isinstance(exc, Terminal | Transient):
        return ours
    wanted = declared(spec.retry, exc)
    if wanted is None:
        return ours
    if not wanted:
        return _as(ours, "terminal", f"{type(exc).__name__} is in stop_on=")
    if ours.kind in ("transient", "throttled"):
        return ours
    return _as(ours, "transient", f"{type(exc).__name__} is in on=")


def _as(ours: Fault, kind: FaultKind, reason: str) -> Fault:
    wait = ours.wait if kind in ("transient", "throttled") else None
    counts = kind == "transient" or ours.counts
    return replace(ours, kind=kind, reason=reason, wait=wait, counts=counts)


def _checked(said: Fault, spec: StepSpec) -> Fault:
    """A fault that the step's own function has made."""
    wait: object = said.wait
    number = isinstance(wait, int | float) and not isinstance(wait, bool)
    fine = wait is None or (number and 0 <= float(str(wait)) <= LONGEST_WAIT)
    if said.kind not in KINDS or said.kind == "unknown-outcome" or not fine:
        return _nonsense(spec, said)
    return replace(said, counts=said.counts or said.kind == "transient")


def _nonsense(spec: StepSpec, said: object) -> Fault:
    return Fault(
        "terminal",
        reason=f"classify= of step {spec.name} returned {said!r}; expected 'transient', "
        "'throttled', 'terminal', None, or a Fault with one of these and a wait of seconds",
        counts=True,
    )


def _asked(spec: StepSpec, exc: BaseException) -> Fault | FaultKind | None:
    """What the step's own function answers. If it is broken, that is a bug, and no reason to call
    the tool again."""
    assert spec.classify is not None
    try:
        said = spec.classify(exc)
    except Exception as problem:
        why = f"classify= of step {spec.name} raised {type(problem).__name__}: {problem}"
        return Fault("terminal", reason=why)
    if said is None or isinstance(said, Fault):
        return said
    if isinstance(said, str) and said in KINDS and said != "unknown-outcome":
        return said
    return _nonsense(spec, said)
