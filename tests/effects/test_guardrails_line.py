"""Calls that wait in line for room in a budget that others have reserved."""

import asyncio

import pytest

import outlast
from outlast import Budget, Cost
from outlast.budgets import Reserve
from outlast.engine.run import active_runs
from outlast.policy.budget import Account, Short
from tests.checkers import check_all
from tests.effects.spending import account
from tests.effects.stage import DEADLINE, Stage

PATIENT = outlast.Settings(max_sleep=3600)
"""Nobody looks again by himself: who waits in line has to be called."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Key of each call that asked for room, and whether it got it."""
    change, answers = Reserve.change, list[tuple[str, bool]]()

    def asked(self: Reserve, account: Account) -> Account | Short:
        answer = change(self, account)
        answers.append((self.ask.ticket.key, not isinstance(answer, Short)))
        return answer

    monkeypatch.setattr(Reserve, "change", asked)
    return answers


def order_of(stage: Stage) -> list[int]:
    return [int(line.split()[1]) for line in stage.effects()]


@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
@pytest.mark.parametrize("calls", [10, 40])
def test_calls_that_wait_for_room_are_all_made_and_ask_a_few_times_each(
    stage: Stage, answers: list[tuple[str, bool]], threads: bool, calls: int
) -> None:
    cost = Cost(estimate=0.6, actual=0.001)

    @outlast.step(cost=cost)
    async def act(n: int) -> int:
        await asyncio.sleep(0)
        stage.log("act", n)
        return n

    @outlast.step(name="act", cost=cost)
    def in_thread(n: int) -> int:
        stage.log("act", n)
        return n

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> list[int]:
        if threads:
            return await asyncio.gather(*(asyncio.to_thread(in_thread, n) for n in range(calls)))
        return await asyncio.gather(*(act(n) for n in range(calls)))

    result = outlast.run(flow, run_id="run", store=stage.url, settings=PATIENT)
    assert result == list(range(calls))
    check_all(stage.url, "run", estimates_hold=True)
    if not threads:  # the order in which threads come is chance
        assert order_of(stage) == list(range(calls)), "who came first is served first"
    refused = [key for key, fits in answers if not fits]
    assert calls - 1 <= len(refused) <= 3 * calls, "each asks when it comes and at its turn"
    assert stage.kinds().count("step.started") == calls


async def first_in_line(answers: list[tuple[str, bool]]) -> str:
    """Wait until one of the calls that got no room stands first in line; its key."""
    (run,) = active_runs()
    async with asyncio.timeout(DEADLINE):
        while not (
            first := [k for k, fits in answers if not fits and run.purse.is_next((run.run_id, k))]
        ):
            await asyncio.sleep(0)
    return first[0]


@pytest.mark.parametrize("when", ["while it waits", "as its turn comes"])
def test_who_is_cancelled_in_line_lets_the_next_one_go(
    stage: Stage, answers: list[tuple[str, bool]], when: str
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @outlast.step(cost=Cost(estimate=0.6, actual=0.1))
    async def act(n: int) -> int:
        stage.log("act", n)
        if n == 0:
            begun.set()
            await asyncio.wait_for(may_end.wait(), DEADLINE)
        return n

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> list[object]:
        tasks = [asyncio.create_task(act(n)) for n in range(4)]
        await begun.wait()
        assert await first_in_line(answers) == "act#1"
        if when == "as its turn comes":
            may_end.set()
            await tasks[0]
        tasks[1].cancel()
        await asyncio.wait({tasks[1]})
        may_end.set()
        async with asyncio.timeout(DEADLINE):
            return [await tasks[n] for n in (0, 2, 3)]

    assert outlast.run(flow, run_id="run", store=stage.url, settings=PATIENT) == [0, 2, 3]
    assert [n for n in order_of(stage) if n != 1] == [0, 2, 3]


@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
def test_a_run_that_is_held_lets_all_who_wait_go(
    stage: Stage, answers: list[tuple[str, bool]], threads: bool
) -> None:
    begun = asyncio.Event()

    @outlast.step(cost=Cost(estimate=0.6, actual=0.1))
    async def act(n: int) -> int:
        stage.log("act", n)
        begun.set()
        await asyncio.wait_for(asyncio.Event().wait(), DEADLINE)
        return n

    @outlast.step(cost=Cost(estimate=0.6, actual=0.1))
    def in_thread(n: int) -> int:
        stage.log("act", n)
        return n

    @outlast.step(cost=50)
    async def dear() -> int:
        stage.log("dear")
        return 0

    @outlast.workflow(budget=Budget(usd=1))
    async def flow() -> None:
        tasks = [asyncio.create_task(act(0))]
        await begun.wait()
        if threads:
            waiting = [asyncio.create_task(asyncio.to_thread(in_thread, n)) for n in range(4)]
        else:
            waiting = [asyncio.create_task(act(n)) for n in range(1, 5)]
        await first_in_line(answers)
        await asyncio.gather(*tasks, *waiting, dear())

    with pytest.raises(outlast.RunHeld, match=r"asked 50\.00 USD"):
        outlast.run(
            flow,
            run_id="run",
            store=stage.url,
            settings=outlast.Settings(grace=0.05, max_sleep=3600),
        )
    assert order_of(stage) == [0]
    assert account(stage).open == {}
