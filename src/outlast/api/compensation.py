"""What `@step.undo` freezes about a compensation."""

import inspect
from collections.abc import Callable

from outlast.api.options import check_options, is_async, module_of, signature_of
from outlast.engine.spec import StepSpec
from outlast.errors import UsageError
from outlast.policy.retry import Retry
from outlast.records import Effect

RESULT = "result"
"""The parameter by which a compensation gets what its step returned."""


def compensation(
    step: StepSpec,
    fn: Callable[..., object],
    retry: Retry | None,
    effect: Effect,
    timeout: float | None,
) -> StepSpec:
    """The step that undoes another one.

    Raises:
        UsageError: it cannot be called with what is recorded of the step, or an option is not what
            it should be.
    """
    check_options(retry, timeout, None)
    if effect not in ("idempotent", "once"):
        raise UsageError(f"effect={effect!r}: an undo is 'idempotent' or 'once'")
    if step.effect == "read":
        raise UsageError(f"step {step.name} only reads, so there is nothing to undo")
    if step.is_method:
        raise UsageError(
            f"step {step.name} is a method: its object is not recorded, so nobody could undo it "
            "later; make it a function"
        )
    if is_async(fn) and not step.is_async:
        raise UsageError(f"step {step.name} is a plain function, so its undo must be too")
    signature = signature_of(fn)
    _check_parameters(step, signature)
    return StepSpec(
        name=f"{step.name}.undo",
        fn=fn,
        signature=signature,
        is_async=is_async(fn),
        effect=effect,
        retry=retry or step.retry,
        timeout=timeout,
        tool=f"{module_of(fn)}.{getattr(fn, '__qualname__', step.name)}",
        undoes=True,
    )


def _check_parameters(step: StepSpec, signature: inspect.Signature) -> None:
    known = step.signature.parameters.keys() - step.unrecorded - step.secret
    if RESULT in known:
        raise UsageError(
            f"step {step.name} has a parameter {RESULT!r}, which is how its undo gets what the "
            "step returned; call it otherwise"
        )
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise UsageError(f"the undo of step {step.name} gets its arguments by name, not {name}")
        if name not in known and name != RESULT and parameter.default is parameter.empty:
            raise UsageError(
                f"the undo of step {step.name} wants {name!r}, which is not recorded of the step; "
                f"there are: {', '.join((*sorted(known), RESULT))}"
            )
