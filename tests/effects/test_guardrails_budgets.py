"""Budgets in a run: what counts against a limit, and what becomes of the run at one."""

import asyncio
import functools
import threading
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Budget, Cost, Retry
from outlast.store.open import open_store
from tests.checkers import check_all
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.spending import account, held, workflow_of
from tests.effects.stage import DEADLINE, Stage
from tests.ownership.children import SimulatedWorld

PROGRAMS = Path(__file__).parent / "programs"
ONCE = Retry(attempts=1)


# ---- what is counted


@pytest.mark.parametrize("colour", COLOURS)
def test_attempts_count_as_calls_and_keys_as_steps(stage: Stage, colour: Colour) -> None:
    def act(n: int) -> int:
        stage.log("act")
        if len(stage.effects()) < 3:
            raise ConnectionResetError
        return n

    step = make_step(colour, act, retry=Retry(attempts=3, initial=0))
    flow = workflow_of(colour, step, 4, budget=Budget(steps=3, calls=50))
    event = held(stage, flow, "act#3 was not called", "3 of 3 steps used", "--add steps=AMOUNT")
    assert event.step == "act#3"
    assert (account(stage).calls, account(stage).steps) == (5, 3)
    stage.client().add_budget("run", Budget(steps=1))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1, 2, 3]
    assert len(stage.effects()) == 6


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_turns_are_counted(stage: Stage, limit: int) -> None:
    @outlast.step
    def act(n: int) -> int:
        stage.log("act", n)
        return n

    @outlast.workflow(budget=Budget(turns=limit))
    def flow() -> list[int]:
        for turn in outlast.turns(seen=list[int]()):
            if len(turn.seen) == 5:
                return list(turn.seen)
            turn.seen.append(act(len(turn.seen)))
        return []

    for _ in range(2):
        held(stage, flow, f"{max(limit, 0)} turns", "--add turns=AMOUNT")
    assert len(stage.effects()) == limit
    stage.client().add_budget("run", Budget(turns=10))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1, 2, 3, 4]
    assert stage.effects() == [f"act {n}" for n in range(5)]
    assert account(stage).turns == 6


def test_a_budget_given_at_the_start_stands_for_that_of_the_code(stage: Stage) -> None:
    flow = workflow_of("sync", make_step("sync", lambda n: n), 4, budget=Budget(calls=1))
    given = Budget(calls=3)
    with pytest.raises(outlast.RunHeld, match="3 of 3 calls used"):
        outlast.run(flow, run_id="run", store=stage.url, budget=given)
    with pytest.raises(outlast.RunHeld, match="3 of 3 calls used"):  # the code's counts no more
        outlast.run(flow, run_id="run", store=stage.url)
    result = outlast.run(flow, run_id="run", store=stage.url, budget=Budget(calls=4))
    assert result == [0, 1, 2, 3]


# ---- money


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("budget", [None, Budget(calls=5)], ids=["no budget", "no money"])
def test_a_step_with_a_cost_needs_a_budget_of_money(
    stage: Stage, colour: Colour, budget: Budget | None
) -> None:
    def act(n: int) -> int:
        stage.log("act")
        return n

    step = make_step(colour, act, cost=0.25)
    flow = workflow_of(colour, step, 2, budget=budget)
    held(stage, flow, "act#0 was not called", "--add usd=AMOUNT")
    assert stage.effects() == []
    stage.client().add_budget("run", Budget(usd=1))
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1]
    assert account(stage).spent_usd == Decimal("0.50")


@pytest.mark.parametrize(
    "budget", [None, Budget(calls=5), Budget(usd=0)], ids=["no budget", "no money", "nothing"]
)
def test_what_is_declared_to_be_free_needs_none(stage: Stage, budget: Budget | None) -> None:
    flow = workflow_of("sync", make_step("sync", lambda n: n, cost=0), 2, budget=budget)
    assert outlast.run(flow, run_id="run", store=stage.url) == [0, 1]


def test_a_budget_of_money_that_nothing_counts_against_warns(stage: Stage) -> None:
    def flow(**options: Any) -> Any:
        return workflow_of("sync", make_step("sync", lambda n: n, **options), 1, budget=Budget(1))

    with pytest.warns(outlast.OutlastWarning, match="no step of it declares a cost"):
        outlast.run(flow(), store=stage.url)
    with warnings.catch_warnings():
        warnings.simplefilter("error", outlast.OutlastWarning)
        outlast.run(flow(cost=0.1), store=stage.url)
        outlast.run(flow(cost=0), store=stage.url)


def test_a_budget_that_what_is_reported_counts_against_does_not_warn(stage: Stage) -> None:
    def act(n: int) -> int:
        outlast.charge(usd=0.1)
        return n

    flow = workflow_of("sync", make_step("sync", act), 1, budget=Budget(usd=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", outlast.OutlastWarning)
        outlast.run(flow, run_id="run", store=stage.url)
    assert account(stage).spent_usd == Decimal("0.1")


@pytest.mark.parametrize(
    ("end", "spent"),
    [("returns", "0.4"), ("raises", "0.4"), ("refused", "0"), ("answers 503", "0")],
)
def test_a_failed_attempt_costs_what_it_may_have_cost(stage: Stage, end: str, spent: str) -> None:
    """The estimate where nobody knows, nothing where the tool cannot have worked."""

    class Http(Exception):
        status = 503

    def act(n: int) -> int:
        match end:
            case "raises":
                raise ValueError("after the call?")
            case "refused":
                raise ConnectionRefusedError
            case "answers 503":
                raise Http
        return n

    step = make_step("sync", act, cost=Cost(estimate=0.4), retry=ONCE)
    outlast.run(workflow_of("sync", step, 1, budget=Budget(usd=1)), run_id="run", store=stage.url)
    assert account(stage).spent_usd == Decimal(spent)
    check_all(stage.url, "run", estimates_hold=True)


# ---- seconds

TIME = Budget(seconds=0.1)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("attempts", [1, 3])
def test_the_end_of_its_time_ends_a_step_that_is_under_way(
    stage: Stage, colour: Colour, attempts: int
) -> None:
    ended = threading.Event()

    def body() -> None:
        stage.log("act")
        ended.wait(20)  # until the test is over

    @outlast.step(name="act", retry=Retry(attempts=attempts, initial=0))
    def act(n: int) -> str:
        body()
        return "never"

    @outlast.step(name="act", retry=Retry(attempts=attempts, initial=0))
    async def act_async(n: int) -> str:
        stage.log("act")
        await asyncio.Event().wait()
        return "never"

    step = act if colour == "sync" else act_async

    @outlast.workflow(budget=TIME)
    def flow() -> str:
        return str(step(0))

    @outlast.workflow(budget=TIME)
    async def flow_async() -> str:
        return str(await act_async(0))

    settings = outlast.Settings(grace=0.05)
    try:
        with pytest.raises(outlast.RunHeld) as stopped:
            outlast.run(
                flow if colour == "sync" else flow_async,
                run_id="run",
                store=stage.url,
                settings=settings,
            )
    finally:
        ended.set()
    # Not failed, however many attempts it had: it did nothing wrong. A plain body that goes on
    # past the grace period may be what the hold tells of.
    reasons = ("over-budget", "stuck") if colour == "sync" else ("over-budget",)
    assert stopped.value.reason in reasons, stopped.value
    assert stopped.value.reason == "stuck" or "--add seconds=" in stopped.value.fix
    assert stage.effects() == ["act"]
    assert stopped.value.reason == "stuck" or account(stage).spent_seconds >= 0.1


def test_a_plain_step_that_ends_after_its_time_leaves_the_run_held(stage: Stage) -> None:
    over = threading.Event()

    @outlast.step(retry=Retry(attempts=3, initial=0))
    def act() -> str:
        stage.log("act")
        over.wait(DEADLINE)
        return "late"

    @outlast.workflow(budget=TIME)
    def flow() -> str:
        return act()

    held(stage, flow, "seconds", "--add seconds=")
    over.set()
    stage.client().add_budget("run", Budget(seconds=60))
    # The body may need a moment to end, and until then nobody goes on beside it.
    assert outlast.run(flow, run_id="run", store=stage.url, if_owned="wait") == "late"
    assert account(stage).spent_seconds >= 0.1


def test_waiting_is_no_running_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimulatedWorld()
    opening = functools.partial(open_store, world=world)
    monkeypatch.setattr("outlast.worker.stores.open_store", opening)
    failed: list[int] = []

    @outlast.step(retry=Retry(initial=6000, maximum=6000, jitter="none"))
    def act() -> str:
        world.ran += 70
        if not failed:
            failed.append(1)
            raise ConnectionResetError
        return "worked"

    @outlast.workflow(budget=Budget(seconds=200))
    def flow() -> list[str]:
        first = act()
        outlast.sleep(6000).result()
        return [first, act()]

    assert outlast.run(flow, run_id="run", store=stage.url)
    assert world.ran > 12_000
    assert 210 <= account(stage).spent_seconds < 6000


# ---- what an operator drops


def test_a_dropped_attempt_that_died_stays_charged(stage: Stage) -> None:
    """The step is made again under the same key, and paid for again."""
    program = PROGRAMS / "dropped.py"
    stage.kill_at("working")
    assert stage.play(program).killed
    stage.client().accept_from("run", "act#0")
    assert stage.play(program).result == 1
    assert account(stage).spent_usd == Decimal("0.8")
    assert (account(stage).calls, account(stage).open) == (2, {})
