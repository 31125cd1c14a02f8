"""What is spent late, beside an attempt, or by one that cannot tell any more."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import httpx
import openai
import pytest

import outlast
from outlast import Budget, Cost, Done, NotDone, Retry
from outlast.events import RunBudgeted, decode
from tests.checkers import check_all
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.spending import account, held, workflow_of
from tests.effects.stage import DEADLINE, Stage

PROGRAMS = Path(__file__).parent / "programs"
ONCE = Retry(attempts=1)


# ---- bodies that outlive their attempts


@pytest.mark.parametrize(("cost", "spent"), [(None, "0.3"), (Cost(estimate=0.4), "0.7")], ids=str)
def test_what_a_plain_body_reports_after_its_timeout_is_spent(
    stage: Stage, cost: Cost | None, spent: str
) -> None:
    """It was charged its estimate when it was given up; what it reports afterwards comes on top."""
    late, over = threading.Event(), threading.Event()

    @outlast.step(timeout=0.05, retry=ONCE, cost=cost)
    def act() -> None:
        late.wait(DEADLINE)
        outlast.charge(usd="0.3")
        over.set()

    @outlast.workflow(budget=Budget(usd=2))
    def flow() -> str:
        with pytest.raises(outlast.StepTimeout):
            act()
        late.set()
        assert over.wait(DEADLINE)
        return "went on"

    for _ in range(2):
        assert outlast.run(flow, run_id="run", store=stage.url) == "went on"
        assert account(stage).spent_usd == Decimal(spent)
    assert check_all(stage.url, "run")
    assert all(verdict.ok for verdict in stage.client().verify("run"))


@pytest.mark.parametrize(("cost", "spent"), [(None, "0.3"), (Cost(estimate=0.4), "0.7")], ids=str)
def test_what_a_thread_reports_after_its_step_was_cancelled_is_spent(
    stage: Stage, cost: Cost | None, spent: str
) -> None:
    begun, late, over = asyncio.Event(), threading.Event(), threading.Event()

    def work() -> None:
        late.wait(DEADLINE)
        outlast.charge(usd="0.3")
        over.set()

    @outlast.step(cost=cost)
    async def act() -> None:
        begun.set()
        await asyncio.to_thread(work)

    @outlast.workflow(budget=Budget(usd=2))
    async def flow() -> str:
        task = asyncio.create_task(act())
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        late.set()
        assert await asyncio.to_thread(over.wait, DEADLINE)
        return "went on"

    for _ in range(2):
        assert outlast.run(flow, run_id="run", store=stage.url) == "went on"
        assert account(stage).spent_usd == Decimal(spent)
    check_all(stage.url, "run")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("cost", "spent"), [(None, "3"), (Cost(estimate=0.1), "3.1")], ids=str)
def test_what_a_reconcile_function_reports_is_spent(
    stage: Stage, colour: Colour, cost: Cost | None, spent: str
) -> None:
    def act(n: int) -> int:
        raise ConnectionResetError

    step = make_step(colour, act, effect="once", cost=cost)
    later = make_step(colour, lambda n: n, cost=0.5)

    def reconcile(n: int) -> Done[int]:
        outlast.charge(usd=3)
        return Done(7)

    async def reconcile_async(n: int) -> Done[int]:
        return reconcile(n)

    step.reconcile(reconcile if colour == "sync" else reconcile_async)

    @outlast.workflow(budget=Budget(usd=2))
    def flow() -> list[int]:
        return [step(0), later(1)]

    @outlast.workflow(budget=Budget(usd=2))
    async def flow_async() -> list[int]:
        return [await step(0), await later(1)]

    held(stage, flow if colour == "sync" else flow_async, "act#1 was not called")
    assert stage.step("act#0").status == "completed"
    assert account(stage).spent_usd == Decimal(spent)
    check_all(stage.url, "run")


# ---- what an operator decides about an attempt that died


@pytest.mark.parametrize(
    ("options", "died", "again"),
    [(["priced"], "1", "0.75"), (["priced", "reports"], "1", "0.75"), (["reports"], "0.5", "0.5")],
    ids=" ".join,
)
@pytest.mark.parametrize("decision", [Done("by hand"), NotDone()], ids=["done", "not done"])
def test_an_operators_decision_leaves_nothing_reserved(
    stage: Stage, options: list[str], died: str, again: str, decision: Any
) -> None:
    program = PROGRAMS / "paid_once.py"
    stage.kill_at("paid")
    assert stage.play(program, *options).killed
    stage.client().settle("run", "pay#0", decision)
    result = stage.play(program, *options).result
    paid, spent = ["paid 1"], Decimal(died)
    if isinstance(decision, NotDone):  # it is believed, and the step is made again
        paid, spent = ["paid 1", "paid 2"], spent + Decimal(again)
    assert (result, stage.effects()) == ("by hand" if len(paid) == 1 else "paid", paid)
    assert stage.kinds("pay#0").count("step.in_doubt") == 0
    assert account(stage).spent_usd == spent
    assert account(stage).open == {}
    check_all(stage.url, "run")


# ---- answers that are no success


class Answered(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status_code = status


def _unreadable() -> Exception:
    request = httpx.Request("POST", "http://127.0.0.1/")
    answer: Any = httpx.Response(200, request=request)
    return openai.APIResponseValidationError(answer, body={"usage": {"prompt_tokens": 1}})


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("error", "spent"),
    [
        (_unreadable, "0.4"),
        (lambda: Answered(200), "0.4"),
        (lambda: Answered(304), "0.4"),
        (lambda: Answered(400), "0.1"),
        (lambda: Answered(429), "0.1"),
        (lambda: Answered(500), "0.1"),
        (ValueError, "0.4"),
        (ConnectionRefusedError, "0.1"),
    ],
    ids=["openai", "200", "304", "400", "429", "500", "no answer", "refused"],
)
def test_an_answer_that_came_and_could_not_be_used_was_paid_for(
    stage: Stage, colour: Colour, error: Callable[[], Exception], spent: str
) -> None:
    """And one that says that nothing was done costs what the body has reported."""

    def act(n: int) -> int:
        outlast.charge(usd="0.1")
        raise error()

    step = make_step(colour, act, cost=Cost(estimate=0.4), retry=ONCE)
    flow = workflow_of(colour, step, 1, budget=Budget(usd=1))
    outlast.run(flow, run_id="run", store=stage.url)
    assert account(stage).spent_usd == Decimal(spent)
    check_all(stage.url, "run", estimates_hold=True)


# ---- an upper bound for what is unknown


def test_an_upper_bound_that_comes_later_is_charged_and_told(stage: Stage) -> None:
    step = make_step("sync", lambda n: n, cost=lambda result: None)
    flow = workflow_of("sync", step, 2)
    with pytest.raises(outlast.RunHeld, match="unknown"):
        outlast.run(flow, run_id="run", store=stage.url, budget=Budget(usd=1))
    before = stage.client().run("run")
    assert before.spending is not None
    assert before.spending.unknown_usd == 1
    assert any("unknown" in line for line in before.budget)

    bounded = Budget(usd=1, on_unknown=0.25)
    assert outlast.run(flow, run_id="run", store=stage.url, budget=bounded) == [0, 1]
    told = [decode(e.kind, e.data) for e in stage.client().journal("run")]
    first, last = [event for event in told if isinstance(event, RunBudgeted)]
    assert (first.charged, first.on_unknown, first.override) == (None, None, True)
    assert last.charged is not None
    assert last.on_unknown is not None
    assert (last.charged.usd, last.on_unknown.usd, last.override) == (
        Decimal("0.25"),
        Decimal("0.25"),
        True,
    )
    after = stage.client().run("run")
    assert after.spending is not None
    assert (after.spending.settled.usd, after.spending.unknown_usd) == (Decimal("0.50"), 0)
    assert not any("unknown" in line for line in after.budget)
    check_all(stage.url, "run")


# ---- running time


def test_the_time_of_an_attempt_that_died_counts_up_to_the_last_sign_of_life(stage: Stage) -> None:
    program = PROGRAMS / "long_job.py"
    stage.kill_at("working")
    assert stage.play(program).killed
    (alive,) = map(float, stage.effects())
    (began,) = [e.at for e in stage.client().journal("run") if e.kind == "step.started"]
    assert alive > began
    stage.set("quick")
    assert stage.play(program).result == "done"
    assert account(stage).spent_seconds >= alive - began - 0.001  # rounded


# ---- rows that are damaged while a body runs


def damage(stage: Stage, statement: str) -> None:
    with closing(apsw.Connection(f"{stage.folder}/store.db")) as database:
        database.set_busy_timeout(5000)
        database.execute(statement)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_breaker_that_is_damaged_meanwhile_does_not_undo_an_outcome(
    stage: Stage, colour: Colour, end: str
) -> None:
    def act(n: int) -> str:
        stage.log("act", n)
        damage(stage, "UPDATE breakers SET state = '{'")
        if end == "raises":
            raise outlast.NotDone("no")
        return "paid"

    guard = outlast.Breaker("tool", failures=1, cooldown=3600)
    step = make_step(colour, act, effect="once", breaker=guard, retry=ONCE)
    flow = workflow_of(colour, step, 1)
    expected = "paid" if end == "returns" else "NotDone"
    for _ in range(2):
        assert outlast.run(flow, run_id="run", store=stage.url) == [expected]
    assert stage.effects() == ["act 0"]
    with pytest.raises(outlast.StoreError, match="tool"):
        outlast.run(workflow_of(colour, step, 1), run_id="other", store=stage.url)
    assert stage.effects() == ["act 0"], "the next one is told, and not made"
    damage(stage, "DELETE FROM breakers")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_budget_that_is_damaged_meanwhile_does_not_undo_an_outcome(
    tmp_path: Path, colour: Colour
) -> None:
    stage = Stage(tmp_path)  # nobody can read its account afterwards, so it is not checked

    def act(n: int) -> str:
        stage.log("act", n)
        damage(stage, "UPDATE budgets SET account = '{'")
        return "paid"

    step = make_step(colour, act, effect="once", cost=Cost(estimate=0.5, actual=0.4))
    flow = workflow_of(colour, step, 2, budget=Budget(usd=2))
    for _ in range(2):
        with pytest.raises(outlast.StoreError, match="the budget of run run cannot be read"):
            outlast.run(flow, run_id="run", store=stage.url)
    assert stage.effects() == ["act 0"]
    assert stage.kinds("act#0")[-1] == "step.completed"
