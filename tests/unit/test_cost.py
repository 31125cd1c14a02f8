"""What `@step(cost=...)` takes, and what becomes of a function that does not know."""

from decimal import Decimal

import pytest

from outlast.policy.cost import Cost, Costs, Unpriced, actual_of, cost_spec, estimate_of, reported
from outlast.records import Usage


def usd(amount: str) -> Usage:
    return Usage(Decimal(amount), 0)


@pytest.mark.parametrize("number", [0.1, Decimal("0.1"), Usage(Decimal("0.1"), 0)])
def test_an_amount_is_estimate_and_actual_cost(number: float | Decimal | Usage) -> None:
    spec = cost_spec(number)
    assert estimate_of(spec, (), {}) == actual_of(spec, "result") == usd("0.1")


def test_a_usage_that_leaves_tokens_out_says_nothing_about_them() -> None:
    assert actual_of(cost_spec(Usage(usd=Decimal(1))), None) == Usage(Decimal(1), None)
    assert actual_of(cost_spec(Usage(tokens=7)), None) == Usage(None, 7)


def test_a_function_alone_is_one_of_the_result() -> None:
    spec = cost_spec(lambda result: len(str(result)) * Decimal("0.01"))
    assert estimate_of(spec, ("four",), {}) is None
    assert actual_of(spec, "four") == usd("0.04")


def test_an_estimate_is_made_from_the_arguments() -> None:
    def by_size(text: str, *, times: int = 1) -> float:
        return len(text) * times / 4

    spec = cost_spec(Cost(estimate=by_size, actual=lambda result: Usage(Decimal(3), 9)))
    assert estimate_of(spec, ("abc",), {"times": 2}) == Usage(Decimal("1.5"))  # nothing of tokens
    assert actual_of(spec, "result") == Usage(Decimal(3), 9)


def test_an_estimate_alone_is_what_is_charged() -> None:
    spec = cost_spec(Cost(estimate=0.5))
    estimate = estimate_of(spec, (), {})
    assert estimate == usd("0.5")
    assert actual_of(spec, "result", estimate) == estimate
    assert isinstance(actual_of(spec, "result"), Unpriced)


def test_a_model_can_have_an_estimate() -> None:
    spec = cost_spec(Cost(estimate=0.5, actual="llm"))
    assert estimate_of(spec, (), {}) == Usage(Decimal("0.5"))  # how many tokens, nobody says
    assert isinstance(actual_of(spec, "no answer of a model"), Unpriced)


async def asynchronous(result: object) -> int:
    return 1


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (-1, "cost=-1: -1 is negative"),
        (float("nan"), "not a finite number"),
        (float("inf"), "not a finite number"),
        ("0.1", "'0.1' is a str, not a number"),
        ("LLM", "a function, outlast.Cost"),
        (True, "True is a bool"),
        (None, "None is nothing"),
        (Usage(Decimal(-1)), "is negative"),
        (Usage(tokens=-1), "is negative"),
        (asynchronous, "not an async one"),
        (Cost(), "an estimate or an actual cost is expected"),
        (Cost(estimate=-1), "estimate=-1"),
        (Cost(actual="much"), "actual='much'"),  # type: ignore[arg-type]
        (Cost(estimate="llm"), "before a model has answered"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_cost_is_refused_where_it_is_declared(declared: Costs, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cost_spec(declared)


def fails(*args: object) -> object:
    raise RuntimeError("out of order")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda *_: None, "returned None is nothing"),
        (lambda *_: float("nan"), "not a finite number"),
        (lambda *_: -0.5, "-0.5 is negative"),
        (lambda *_: "0.5", "a str"),
        (lambda *_: False, "a bool"),
        (lambda *_: Usage(Decimal("NaN")), "not a finite number"),
        (lambda *_: asynchronous(None), "a coroutine"),
        (fails, "function fails raised RuntimeError: out of order"),
    ],
)
def test_a_function_that_does_not_know_leaves_the_cost_unknown(function: object, said: str) -> None:
    spec = cost_spec(Cost(estimate=function, actual=function))  # type: ignore[arg-type]
    for answer in (actual_of(spec, "result"), estimate_of(spec, (), {})):
        assert isinstance(answer, Unpriced)
        assert said in answer.why
        assert answer.known == Usage()


def test_a_report_of_a_body_is_checked() -> None:
    assert reported(usd=0.1) == Usage(Decimal("0.1"), None)
    assert reported(tokens=3) == Usage(None, 3)
    for usd_, tokens in ((None, None), (-1, None), ("1", None), (None, 1.5), (float("nan"), 1)):
        with pytest.raises(ValueError, match=r"nothing|negative|not a"):
            reported(usd=usd_, tokens=tokens)
