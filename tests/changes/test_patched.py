"""`outlast.patched`: one answer for a run and a name, whatever happens to the run."""

import asyncio
import threading
from typing import Any

import pytest

import outlast
from outlast import step, workflow
from outlast.events import RunPatched
from tests.changes.programs import HEAD, Workshop, in_colour
from tests.engine.tools import dying_at, run_with_each_death

STEPS = (
    HEAD
    + """
@outlast.step
async def look(n):
    did("look", n)
    return n

@outlast.step
async def tax(n):
    did("tax", n)
    return n * 10

@outlast.step
async def region(n):
    did("region", n)
    return n

@outlast.workflow
async def desk():
"""
)
OLD = (
    STEPS
    + """    a = await look(1)
    b = await tax(2)
    c = await look(3)
    return [a, b, c]
"""
)
NEW = (
    STEPS
    + """    a = await look(1)
    if outlast.patched("tax by region"):
        b = await tax(await region(20))
    else:
        b = await tax(2)
    c = await look(3)
    return [a, b, c]
"""
)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_old_run_keeps_the_old_way_and_a_new_one_takes_the_new(
    colour: str, shop: Workshop
) -> None:
    shop.write(in_colour(OLD, colour))
    shop.die_at("tax 2")
    assert shop.run().killed
    shop.write(in_colour(NEW, colour))
    shop.die_at("look 3")
    assert shop.resume().killed
    # In the next life nothing is left to be repeated at this point, and the answer is the same.
    assert shop.resume().result == [1, 20, 3]
    assert shop.events("run.patched") == [RunPatched("tax by region", active=False)]
    shop.die_at("region 20")
    assert shop.run(run_id="new").killed
    assert shop.resume("new").result == [1, 200, 3]
    assert shop.events("run.patched", "new") == [RunPatched("tax by region", active=True)]
    assert "region 2" not in shop.effects()


def test_the_question_can_go_once_no_old_run_is_left(shop: Workshop) -> None:
    shop.write(NEW)
    shop.die_at("look 3")
    assert shop.run().killed
    shop.write(NEW.replace('if outlast.patched("tax by region"):', "if True:"))
    assert shop.resume().result == [1, 200, 3]


@pytest.mark.parametrize("asked_at", ["look 1", "before anything"])
def test_a_run_that_was_not_past_the_point_takes_the_new_way(asked_at: str, shop: Workshop) -> None:
    """Killed inside its first step, or before it."""
    old = OLD if asked_at == "look 1" else OLD.replace("    a =", '    did("begun")\n    a =')
    shop.write(old)
    shop.die_at("begun" if asked_at == "before anything" else asked_at)
    assert shop.run().killed
    shop.write(NEW)
    assert shop.resume().result == [1, 200, 3]


# ---- in this process


@step
def act(n: int) -> int:
    return n


def journal_of(shop: Workshop) -> list[RunPatched]:
    return [event for event in shop.events("run.patched") if isinstance(event, RunPatched)]


def test_the_answer_is_the_same_in_every_turn_and_life(shop: Workshop) -> None:
    asked: list[bool] = []
    asks = False

    @workflow(name="loop")
    def loop() -> int:
        for turn in outlast.turns(n=0, max=8):
            if asks:
                asked.append(outlast.patched("p"))
            turn.n += act(1)
        return int(turn.n)

    def die_in(turn: int) -> None:
        key = f"act#0.t{turn}.0"
        with dying_at(shop.url, kind="step.completed", key=key), pytest.raises(outlast.StoreError):
            outlast.run(loop, run_id="r", store=shop.url)

    die_in(2)
    asks = True  # the step of turn 2 is recorded as begun, so the old code has been here
    die_in(4)
    assert asked == [False] * 3
    assert outlast.run(loop, run_id="r", store=shop.url) == 8
    assert asked == [False] * 7
    assert journal_of(shop) == [RunPatched("p", active=False)]


def test_a_turn_that_had_not_begun_takes_the_new_way(shop: Workshop) -> None:
    asked: list[bool] = []
    asks = False

    @workflow(name="loop", max_repeats=None)
    async def loop() -> int:
        async for turn in outlast.turns(n=0, max=300):
            if asks:
                asked.append(outlast.patched("p"))
            turn.n += act(1)
        return int(turn.n)

    for turn in (150, 290):  # the second time, only the end of the journal is read
        key = f"act#0.t{turn}.0"
        with dying_at(shop.url, kind="step.started", key=key), pytest.raises(outlast.StoreError):
            outlast.run(loop, run_id="r", store=shop.url)
        asks = True
    assert outlast.run(loop, run_id="r", store=shop.url) == 300
    assert set(asked) == {True}
    assert journal_of(shop) == [RunPatched("p", active=True)]


def test_tasks_and_threads_that_ask_at_once_get_one_answer(shop: Workshop) -> None:
    barrier = threading.Barrier(4)

    def ask() -> bool:
        barrier.wait()
        return outlast.patched("p")

    async def ask_in_task() -> bool:
        return outlast.patched("q")

    @workflow
    async def flow() -> list[bool]:
        threads = await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))
        tasks = await asyncio.gather(*(ask_in_task() for _ in range(4)))
        return [*threads, *tasks]

    assert outlast.run(flow, run_id="r", store=shop.url) == [True] * 8
    assert [event.name for event in journal_of(shop)] == ["p", "q"]


@pytest.mark.parametrize("after", [False, True])
def test_the_question_shifts_no_call_and_survives_every_death(after: bool, shop: Workshop) -> None:
    @workflow
    def flow() -> list[Any]:
        first = outlast.patched("a")
        return [act(1), first, outlast.patched("a"), outlast.patched("b"), act(2)]

    def start(run_id: str = "calm") -> list[Any]:
        return outlast.run(flow, run_id=run_id, store=shop.url)

    expected = [1, True, True, True, 2]
    for run_id, result in run_with_each_death(start, shop.url, after=after):
        assert result == expected, run_id
    assert start() == expected
    keys = [s.key for s in outlast.Client(shop.url).run("calm").steps]
    assert keys == ["act#0", "act#1"]


def test_it_is_true_outside_a_run_and_refused_in_a_step(shop: Workshop) -> None:
    assert outlast.patched("p") is True

    @step
    def wrong() -> bool:
        return outlast.patched("p")

    @workflow
    def flow() -> bool:
        return wrong()

    assert wrong() is True
    with pytest.raises(outlast.RunFailed, match=r"wrong#0; ask in the workflow") as failed:
        outlast.run(flow, run_id="r", store=shop.url)
    assert isinstance(failed.value.__cause__, outlast.UsageError)
    for name in ("", "a\nb", "a\ud800", 7):
        with pytest.raises(outlast.UsageError, match="printable"):
            outlast.patched(name)  # type: ignore[arg-type]


def test_a_run_that_must_stop_gets_no_answer(shop: Workshop) -> None:
    answers: list[object] = []

    @workflow
    def flow() -> None:
        outlast.patched("p")
        try:
            act(1)
        except BaseException:
            answers.append(outlast.patched("p"))

    with dying_at(shop.url, kind="step.started"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=shop.url)
    assert not answers
