"""What a step declares about its cost. Whatever cannot be told is `Unpriced`, never nothing."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Literal

from outlast.amounts import cost
from outlast.policy.cost.reading import usage_of
from outlast.policy.cost.unpriced import Unpriced
from outlast.records import Usage

Amount = int | float | Decimal | Usage
"""US dollars, or a `Usage`. A number says that no tokens are used."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attempt costs, when that is known in two steps.

    Attributes:
        estimate: before it begins: an amount, or a function of the step's arguments that returns
            one. So much is set aside; without it, the most that the step has cost so far.
        actual: once it has returned: an amount, a function of the result that returns one, or
            `"llm"` to read it off the result of a model. Without it, the estimate is charged.
    """

    estimate: Amount | Callable[..., object] | None = None
    actual: Amount | Callable[..., object] | Literal["llm"] | None = None


Costs = Amount | Callable[..., object] | Cost | Literal["llm"]
"""What `@step(cost=...)` takes; a function alone is one of the result."""


@dataclass(frozen=True, slots=True)
class CostSpec:
    """A declaration that was checked. Amounts are `Usage`."""

    estimate: Usage | Callable[..., object] | None
    actual: Usage | Callable[..., object] | Literal["llm"] | None


def cost_spec(declared: Costs) -> CostSpec:
    """Check what a step declares.

    Raises:
        ValueError: a number is negative, NaN or no number at all, or a function is asynchronous.
    """
    if not isinstance(declared, Cost):
        if declared == "llm" or callable(declared):
            return CostSpec(None, _declared("cost", declared))
        amount = _declared("cost", declared)
        return CostSpec(amount if isinstance(amount, Usage) else None, amount)
    if declared.estimate is None and declared.actual is None:
        raise ValueError("Cost(): an estimate or an actual cost is expected, or both")
    estimate = declared.estimate
    if estimate == "llm":
        raise ValueError("Cost(estimate='llm'): before a model has answered there is no usage")
    before = None if estimate is None else _declared("estimate", estimate)
    assert before != "llm"
    after = None if declared.actual is None else _declared("actual", declared.actual)
    if isinstance(before, Usage) and not isinstance(declared.estimate, Usage):
        before = _of_money(before, after)
    return CostSpec(before, after)


def estimate_of(
    spec: CostSpec, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Usage | Unpriced | None:
    """What an attempt with these arguments will cost; None if nothing is declared about that.
    `Unpriced` if it is, and the function could not tell."""
    if spec.estimate is None or isinstance(spec.estimate, Usage):
        return spec.estimate
    said = _ask("estimate", spec.estimate, *args, **kwargs)
    return _of_money(said, spec.actual) if isinstance(said, Usage) and not said.tokens else said


def _of_money(estimate: Usage, actual: object) -> Usage:
    """An estimate in dollars alone. Where the actual cost is found out from the result, it may be
    one in tokens too, of which such an estimate says nothing."""
    exact = actual is None or isinstance(actual, Usage)
    return estimate if exact else Usage(estimate.usd, None)


def actual_of(spec: CostSpec, result: object, estimate: Usage | None = None) -> Usage | Unpriced:
    """What an attempt with this result has cost.

    Args:
        estimate: what it was thought to cost, which is charged if nothing else is declared.
    """
    actual = spec.actual
    if isinstance(actual, Usage):
        return actual
    if actual == "llm":
        return usage_of(result)
    if actual is not None:
        return _ask("cost", actual, result)
    return Unpriced("the estimate could not be made") if estimate is None else estimate


@cache
def free_parts(spec: CostSpec) -> tuple[Literal["usd", "tokens"], ...]:
    """What an attempt certainly takes nothing of."""
    actual = spec.estimate if spec.actual is None else spec.actual
    if not isinstance(actual, Usage):
        return ()
    usd: tuple[Literal["usd"], ...] = ("usd",) if actual.usd == 0 else ()
    return (*usd, *(("tokens",) if actual.tokens == 0 else ()))


def reported(usd: object = None, tokens: object = None) -> Usage:
    """What a step's body reports, checked. A part that it leaves out is None.

    Raises:
        ValueError: both are left out, or one is negative, NaN or no number.
    """
    if usd is None and tokens is None:
        raise ValueError("neither dollars nor tokens are given, so there is nothing to charge")
    return cost(Usage(usd=usd, tokens=tokens))  # type: ignore[arg-type]  # checked there


def _declared(name: str, value: object) -> Usage | Callable[..., object] | Literal["llm"]:
    if value == "llm":
        return "llm"
    if callable(value):
        if inspect.iscoroutinefunction(value):
            raise ValueError(f"{name}={value!r}: a plain function is expected, not an async one")
        return value
    try:
        return cost(value)
    except ValueError as problem:
        raise ValueError(
            f"{name}={value!r}: {problem}; a number of US dollars (0: free), a Usage, a function, "
            "outlast.Cost(...) or 'llm' is expected"
        ) from None


def _ask(
    what: str, function: Callable[..., object], *args: object, **kwargs: object
) -> Usage | Unpriced:
    """Call a function of the user's. What it says must be an amount; if it fails, or says anything
    else, nobody knows the cost, and the step itself is none the worse for it."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        value = function(*args, **kwargs)
    except Exception as problem:
        return Unpriced(f"its {what} function {name} raised {type(problem).__name__}: {problem}")
    if inspect.iscoroutine(value):
        value.close()
    try:
        return cost(value)
    except ValueError as problem:
        return Unpriced(f"its {what} function {name} returned {problem}")
