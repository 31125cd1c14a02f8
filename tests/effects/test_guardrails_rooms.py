"""What nobody has put a price on, and calls that wait in line for what is left of a budget."""

import asyncio
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import outlast
from outlast import Budget, Cost, Retry, Usage
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.spending import account, held, workflow_of
from tests.effects.stage import Stage

ONCE = Retry(attempts=1)


class Throttled(Exception):
    """As an HTTP client raises it for a 429."""

    status_code = 429


# ---- prices that are not known yet


@pytest.mark.parametrize("refusal", [ConnectionRefusedError("nobody"), Throttled("slow down")])
@pytest.mark.parametrize("first", ["before the others", "among the others"])
def test_a_call_that_was_refused_says_nothing_about_the_price(
    stage: Stage, refusal: Exception, first: str
) -> None:
    """It has cost nothing, and the next ones do not open side by side for that."""
    failed: list[int] = []
    now: list[int] = []

    @outlast.step(cost=lambda result: 1.0, retry=ONCE, breaker=False)
    async def act(n: int) -> int:
        if not failed:
            failed.append(n)
            raise refusal
        now.append(n)
        assert len(now) == 1, "one at a time has all that is left, or has what one costs"
        for _ in range(5):
            await asyncio.sleep(0)
        now.remove(n)
        stage.log("paid", n)
        return n

    async def tried(n: int) -> object:
        try:
            return await act(n)
        except (ConnectionError, Throttled) as problem:
            return type(problem).__name__

    @outlast.workflow(budget=Budget(usd=1.5))
    async def flow() -> list[object]:
        before = [await tried(0)] if first == "before the others" else []
        return [*before, *(await asyncio.gather(*(tried(n) for n in range(1, 30))))]

    held(stage, flow, "usd=AMOUNT")
    # The first one tells the price, and is over the half dollar that no second one fits into.
    assert len(stage.effects()) == 1
    assert account(stage).spent_usd == Decimal("1.0")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    "estimate", [Decimal("0.01"), lambda n: Decimal("0.01")], ids=["amount", "function"]
)
def test_an_estimate_in_dollars_says_nothing_of_tokens(
    stage: Stage, colour: Colour, estimate: Any
) -> None:
    cost = Cost(estimate=estimate, actual=lambda result: Usage(Decimal("0.01"), 400))
    step = make_step(colour, lambda n: n, cost=cost)
    flow = workflow_of(colour, step, 20, budget=Budget(usd=1, tokens=1000))
    held(stage, flow, "act#2 was not called", "tokens", "--add tokens=AMOUNT")
    assert account(stage).spent_tokens == 800


@pytest.mark.parametrize("colour", COLOURS)
def test_what_was_thought_to_be_free_and_is_not_stops_at_the_limit(
    stage: Stage, colour: Colour
) -> None:
    step = make_step(colour, lambda n: n, cost=Cost(estimate=0, actual=lambda result: Decimal(1)))
    flow = workflow_of(colour, step, 20, budget=Budget(usd=2))
    held(stage, flow, "act#2 was not called", "--add usd=AMOUNT")
    assert account(stage).spent_usd == Decimal(2)


# ---- estimates


def test_an_estimate_is_asked_with_the_defaults_and_without_the_object(stage: Stage) -> None:
    asked: list[tuple[object, ...]] = []

    def estimate(*args: object, **kwargs: object) -> float:
        asked.append((*args, kwargs))
        return 0.1

    cost = Cost(estimate=estimate, actual=0.1)

    class Tools:
        @outlast.step(cost=cost)
        def method(self, n: int, times: int = 3) -> int:
            return n * times

    @outlast.step(cost=cost)
    def function(n: int, *more: int, times: int = 3, **rest: int) -> int:
        return n * times

    @outlast.workflow(budget=Budget(usd=1))
    def flow() -> list[int]:
        return [Tools().method(1), Tools().method(n=2, times=5), function(1, 2, other=4)]

    assert outlast.run(flow, run_id="run", store=stage.url) == [3, 10, 3]
    assert [*dict.fromkeys(map(str, asked))] == [
        "(1, 3, {})",
        "(2, 5, {})",
        "(1, 2, {'times': 3, 'other': 4})",
    ]


@pytest.mark.parametrize(
    ("estimate", "why"),
    [(lambda n: 1 / 0, "ZeroDivisionError"), (lambda: 0.1, "TypeError"), (lambda n: -1, "-1")],
    ids=["raises", "takes nothing", "a negative number"],
)
def test_a_broken_estimate_warns_and_the_next_rule_counts(
    stage: Stage, estimate: Callable[..., object], why: str
) -> None:
    cost = Cost(estimate=estimate, actual=0.4)
    flow = workflow_of("sync", make_step("sync", lambda n: n, cost=cost), 3, budget=Budget(usd=1))
    with (
        pytest.warns(outlast.OutlastWarning, match=f"step act: .*{why}.* without an estimate"),
        pytest.raises(outlast.RunHeld, match=r"asked 0\.40 USD, the most it has cost so far"),
    ):
        outlast.run(flow, run_id="run", store=stage.url)
    assert account(stage).spent_usd == Decimal("0.8")


# ---- limits at their ends


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("seconds", [1e7, 1e10, 1e300])
def test_a_limit_of_more_seconds_than_a_clock_can_wait_for_is_none(
    stage: Stage, colour: Colour, seconds: float
) -> None:
    step = make_step(colour, lambda n: n)
    flow = workflow_of(colour, step, 1, budget=Budget(seconds=seconds))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0]


@pytest.mark.parametrize("colour", COLOURS)
def test_no_turns_are_no_turns(stage: Stage, colour: Colour) -> None:
    @outlast.workflow(budget=Budget(turns=0))
    def flow() -> int:
        for turn in outlast.turns(n=0):
            stage.log("turn")
            turn.n += 1
            if turn.n == 2:
                return 2
        return 0

    @outlast.workflow(budget=Budget(turns=0))
    async def flow_async() -> int:
        async for turn in outlast.turns(n=0):
            stage.log("turn")
            turn.n += 1
            if turn.n == 2:
                return 2
        return 0

    chosen: Any = flow if colour == "sync" else flow_async
    for _ in range(2):
        held(stage, chosen, "0 of 0 turns", "--add turns=AMOUNT")
    assert stage.effects() == []
    stage.client().add_budget("run", Budget(turns=5))
    assert outlast.run(chosen, run_id="run", store=stage.url) == 2


# ---- what a run says at its end


def test_a_run_that_completes_with_an_unknown_cost_warns(stage: Stage) -> None:
    step = make_step("sync", lambda n: n, cost=lambda result: None)
    flow = workflow_of("sync", step, 1, budget=Budget(usd=1))
    with pytest.warns(outlast.OutlastWarning, match="what 1 of its attempts have cost is not know"):
        assert outlast.run(flow, run_id="run", store=stage.url) == [0]


def test_a_run_whose_calls_were_all_refused_does_not_warn_of_an_idle_budget(stage: Stage) -> None:
    stage.client().trip_breaker("tool", 3600)
    step = make_step("sync", lambda n: n, cost=0.1, breaker="tool")
    flow = workflow_of("sync", step, 3, budget=Budget(usd=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", outlast.OutlastWarning)
        assert outlast.run(flow, run_id="run", store=stage.url) == ["BreakerOpen"] * 3


@pytest.mark.parametrize("colour", COLOURS)
def test_a_filter_that_makes_errors_of_warnings_changes_nothing_in_a_run(
    stage: Stage, colour: Colour
) -> None:
    def broken(n: int) -> float:
        raise ValueError("no idea")

    step = make_step(colour, lambda n: n, cost=Cost(estimate=broken, actual=0.1))
    flow = workflow_of(colour, step, 1, budget=Budget(usd=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", outlast.OutlastWarning)
        assert outlast.run(flow, run_id="run", store=stage.url) == [0]
    assert account(stage).spent_usd == Decimal("0.1")
