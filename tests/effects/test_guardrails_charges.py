"""What is charged for an attempt, however it ends, and calls that compete for what is left."""

import asyncio
import threading
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import outlast
from outlast import Budget, Cost, Retry, Usage
from outlast.budgets import Reserve
from outlast.engine.run import active_runs
from outlast.events import StepCharged, decode
from outlast.policy.budget import Account, Short
from tests.checkers import check_all
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.spending import account, held, workflow_of
from tests.effects.stage import Stage
from tests.ownership.children import until

# ---- charge()


@pytest.mark.parametrize("colour", COLOURS)
def test_what_a_body_reports_is_charged_though_it_fails(stage: Stage, colour: Colour) -> None:
    def act(n: int) -> int:
        outlast.charge(usd="0.10")
        outlast.charge(usd=0.05, tokens=7)
        if (outlast.current().attempt or 0) < 3:
            raise ConnectionResetError
        return n

    step = make_step(colour, act, retry=Retry(attempts=3, initial=0))
    flow = workflow_of(colour, step, 1, budget=Budget(usd=1))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0]
    assert (account(stage).spent_usd, account(stage).spent_tokens) == (Decimal("0.45"), 21)
    journal = [decode(e.kind, e.data) for e in stage.client().journal("run")]
    charged = [event for event in journal if isinstance(event, StepCharged)]
    # From the first report on the step has a cost, and its attempts a settlement of their own.
    assert [(e.attempt, e.settled) for e in charged] == [
        *[(1, True)] * 2,
        *[(n, settled) for n in (2, 3) for settled in (False, False, True)],
    ]


def test_what_a_body_reports_is_charged_though_it_is_cancelled(stage: Stage) -> None:
    begun = asyncio.Event()

    @outlast.step
    async def act() -> None:
        outlast.charge(usd=0.1)
        begun.set()
        await asyncio.Event().wait()

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> str:
        task = asyncio.create_task(act())
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        return "late"

    for _ in range(2):
        assert outlast.run(flow, run_id="run", store=stage.url) == "late"
        assert account(stage).spent_usd == Decimal("0.1")
        assert account(stage).open == {}


def test_of_what_is_reported_and_what_is_declared_the_larger_is_charged(stage: Stage) -> None:
    def act(n: int) -> int:
        outlast.charge(usd=0.1 if n else 0.5)
        return n

    step = make_step("sync", act, cost=0.3)
    flow = workflow_of("sync", step, 2, budget=Budget(usd=2))
    outlast.run(flow, run_id="run", store=stage.url)
    assert account(stage).spent_usd == Decimal("0.8")


@pytest.mark.parametrize(
    "cost", [{}, {"usd": -1}, {"usd": "much"}, {"usd": float("nan")}, {"tokens": 1.5}], ids=str
)
def test_what_is_no_cost_cannot_be_reported(stage: Stage, cost: dict[str, Any]) -> None:
    def act(n: int) -> str:
        with pytest.raises(outlast.UsageError, match="charge"):
            outlast.charge(**cost)
        return "as expected"

    flow = workflow_of("sync", make_step("sync", act), 1, budget=Budget(usd=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", outlast.OutlastWarning)
        assert outlast.run(flow, run_id="run", store=stage.url) == ["as expected"]
    with pytest.raises(outlast.OutsideRun):
        outlast.charge(usd=1)


def test_a_run_without_a_budget_notes_what_is_reported(stage: Stage) -> None:
    def act(n: int) -> int:
        outlast.charge(usd=0.1, tokens=3)
        return n

    flow = workflow_of("sync", make_step("sync", act), 2)
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1]
    assert stage.kinds().count("step.charged") == 2


def test_tokens_that_are_reported_need_no_money(stage: Stage) -> None:
    def act(n: int) -> int:
        outlast.charge(tokens=3)
        return n

    flow = workflow_of("sync", make_step("sync", act), 3, budget=Budget(tokens=100))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1, 2]
    assert account(stage).spent_tokens == 9


# ---- what nobody can tell


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    "broken",
    [lambda result: 1 / 0, lambda result: "0.10", lambda result: None],
    ids=["raises", "a text", "nothing"],
)
def test_a_broken_cost_function_holds_the_run_and_keeps_the_result(
    stage: Stage, colour: Colour, broken: Callable[[object], object]
) -> None:
    def act(n: int) -> int:
        stage.log("act")
        return n

    working = False

    def cost(result: object) -> object:
        return 0.1 if working else broken(result)

    step = make_step(colour, act, cost=cost)
    flow = workflow_of(colour, step, 2, budget=Budget(usd=1))
    event = held(stage, flow, "act#0", "unknown", "--charge usd=AMOUNT")
    assert event.step == "act#1"
    assert len(stage.effects()) == 1
    assert stage.step("act#0").status == "completed"
    held(stage, flow)  # another start does not lift it
    working = True
    stage.client().add_budget("run", charged=Usage(Decimal("0.2"), 0))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1]
    assert len(stage.effects()) == 2
    assert account(stage).spent_usd == Decimal("0.3")


def test_a_broken_estimate_does_not_stand_in_the_way(stage: Stage) -> None:
    def estimate(n: int) -> float:
        raise RuntimeError("a bug")

    step = make_step("sync", lambda n: n, cost=Cost(estimate=estimate, actual=0.1))
    flow = workflow_of("sync", step, 2, budget=Budget(usd=1))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1]
    assert account(stage).spent_usd == Decimal("0.2")


def test_a_cost_that_is_not_known_stops_only_what_costs(stage: Stage) -> None:
    costly = outlast.step(name="costly", cost=lambda result: None)(lambda: "costly")
    free = outlast.step(name="free")(lambda: "free")

    @outlast.workflow(budget=Budget(usd=1))
    def flow() -> list[str]:
        return [costly(), free(), costly()]

    event = held(stage, flow, "costly#0")
    assert event.step == "costly#2"
    assert stage.step("free#1").status == "completed"


# ---- side by side


def test_first_calls_without_an_estimate_wait_for_one_another_and_all_are_made(
    stage: Stage,
) -> None:
    running: list[int] = []
    most: list[int] = []

    @outlast.step(cost=lambda result: 0.1)
    async def act(n: int) -> int:
        running.append(n)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(n)
        return n

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> list[int]:
        return await asyncio.gather(*(act(n) for n in range(6)))

    assert outlast.run(flow, run_id="run", store=stage.url) == list(range(6))
    assert account(stage).spent_usd == Decimal("0.6")
    assert most[0] == 1, "the first one had all that is left"
    check_all(stage.url, "run", estimates_hold=True)


def test_a_call_that_is_refused_while_the_one_before_it_ends_is_made(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal arrives when nothing is under way any more, and the settlement is on its way."""
    change, may_end = Reserve.change, threading.Event()

    def refused_at_the_end(self: Reserve, account: Account) -> Account | Short:
        answer = change(self, account)
        if isinstance(answer, Short) and not may_end.is_set():
            may_end.set()
            (run,) = active_runs()
            until(lambda: not run.open.keys() & {"act#0"}, "the first call to end")
        return answer

    monkeypatch.setattr(Reserve, "change", refused_at_the_end)

    begun = asyncio.Event()

    @outlast.step(cost=Cost(estimate=0.6, actual=0.1))
    async def act(n: int) -> int:
        begun.set()
        await asyncio.to_thread(may_end.wait, 20)
        return n

    @outlast.step(cost=Cost(estimate=0.6, actual=0.1))
    def in_thread(n: int) -> int:
        return n

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> list[int]:
        first = asyncio.create_task(act(0))
        await begun.wait()
        return [await asyncio.to_thread(in_thread, 0), await first]

    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 0]
    assert may_end.is_set()


def test_calls_in_threads_wait_for_one_another_too(stage: Stage) -> None:
    @outlast.step(cost=Cost(estimate=0.6, actual=0.1))
    def act(n: int) -> int:
        stage.log("act")
        return n

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> list[int]:
        return await asyncio.gather(*(asyncio.to_thread(act, n) for n in range(4)))

    assert outlast.run(flow, run_id="run", store=stage.url) == list(range(4))
    assert account(stage).spent_usd == Decimal("0.4")
    check_all(stage.url, "run", estimates_hold=True)


def test_a_call_that_was_cancelled_gives_back_what_it_did_not_use(stage: Stage) -> None:
    """What was set aside is charged: nobody knows what it cost."""
    begun = asyncio.Event()

    @outlast.step(cost=Cost(estimate=0.4, actual=0.1))
    async def act(hang: bool) -> str:
        if hang:
            begun.set()
            await asyncio.Event().wait()
        return "done"

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> list[str]:
        task = asyncio.create_task(act(True))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        return [await act(False), await act(False)]

    assert outlast.run(flow, run_id="run", store=stage.url) == ["done", "done"]
    assert account(stage).spent_usd == Decimal("0.6")
    assert account(stage).open == {}
