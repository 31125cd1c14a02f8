"""An agent that calls one tool in the same way for ever is stopped, without its own help."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import step, turns, workflow
from tests.effects.stage import Stage

PROGRAMS = Path(__file__).parent / "programs"
NEVER = 1000


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


def spin(stage: Stage, times: int, **options: Any) -> Callable[[], list[str]]:
    """A workflow that pokes so many times; `options` of the workflow and, under `step`, of the
    step."""

    @step(**options.pop("step", {"effect": "read"}))
    def poke(where: str = "here") -> str:
        stage.log("poke")
        return "asleep"

    @workflow(**options)
    def flow() -> list[str]:
        return [poke() for _ in range(times)]

    return flow


def held(stage: Stage, flow: Callable[..., object]) -> outlast.RunHeld:
    with pytest.raises(outlast.RunHeld) as stopped:
        outlast.run(flow, run_id="run", store=stage.url)
    assert stopped.value.reason == "looping"
    return stopped.value


# ---- over crashes


@pytest.mark.parametrize("loop", ["plain", "turns"])
def test_the_count_goes_on_after_a_crash(stage: Stage, loop: str) -> None:
    program = PROGRAMS / "spinning.py"
    for count in (2, 4):
        stage.kill_at(f"poked-{count}")
        assert stage.play(program, loop, str(NEVER)).killed
    stage.play(program, loop, str(NEVER))
    played = stage.play(program, loop, str(NEVER))  # another start does not lift it
    assert played.stopped == ("RunHeld", "looping")
    assert len(stage.effects()) == 5
    text = str(played.outcome["text"])
    assert all(word in text for word in ("poke", "5 times", "outlast resume run", "max_repeats"))


@pytest.mark.parametrize("loop", ["plain", "turns"])
def test_an_answer_that_changes_begins_a_new_row_also_after_a_crash(
    stage: Stage, loop: str
) -> None:
    stage.kill_at("poked-4")
    program = PROGRAMS / "spinning.py"
    assert stage.play(program, loop, "4").killed
    assert stage.play(program, loop, "4").result == 5


@pytest.mark.parametrize("loop", ["plain", "turns"])
def test_an_operators_resume_allows_as_many_again(stage: Stage, loop: str) -> None:
    program = PROGRAMS / "spinning.py"
    assert stage.play(program, loop, str(NEVER)).stopped == ("RunHeld", "looping")

    @step(effect="read")
    def poke(where: str) -> str:
        stage.log("poke")
        return "asleep"

    @step
    def think(n: int) -> int:
        return n

    @workflow(max_repeats=5)
    def flow() -> int:
        n = 0
        if loop == "plain":
            while n < 9:
                think(n)
                poke("here")
                n += 1
            return n
        for state in turns(n=0, max=9):
            think(state.n)
            poke("here")
            state.n += 1
        return 9

    assert stage.resume(flow) == 9
    assert len(stage.effects()) == 9


# ---- what counts as the same


def test_ten_in_a_row_are_enough_without_a_word(stage: Stage) -> None:
    said = held(stage, spin(stage, NEVER))
    assert len(stage.effects()) == 10
    assert "10 times" in said.detail
    assert "poke#9" in said.detail  # the evidence
    assert stage.client().run("run").reason == "looping"


@pytest.mark.parametrize(
    "options",
    [{"max_repeats": None}, {"max_repeats": 40}, {"step": {"effect": "read", "poll": True}}],
    ids=["none", "more", "poll"],
)
def test_what_is_meant_to_repeat_is_let(stage: Stage, options: dict[str, Any]) -> None:
    assert outlast.run(spin(stage, 30, **options), run_id="run", store=stage.url) == ["asleep"] * 30


def test_other_arguments_or_another_outcome_end_a_row(stage: Stage) -> None:
    @step
    def ask(where: str) -> int:
        stage.log("ask")
        return len(stage.effects()) // 3

    @workflow(max_repeats=4)
    def flow() -> None:
        for n in range(20):
            ask("there" if n % 3 else "here")
        for _ in range(20):
            ask("here")

    outlast.run(flow, run_id="run", store=stage.url)
    assert len(stage.effects()) == 40


@pytest.mark.parametrize("failing", ["raises", "refused"])
def test_failures_of_one_kind_are_a_row_too(stage: Stage, failing: str) -> None:
    breaker = outlast.Breaker(failures=1) if failing == "refused" else False

    @step(retry=outlast.Retry(attempts=1), breaker=breaker)
    def broken() -> None:
        stage.log("broken")
        raise ConnectionResetError("lost")

    @workflow
    def flow() -> None:
        while True:
            try:
                broken()
            except (ConnectionResetError, outlast.BreakerOpen):
                continue

    said = held(stage, flow)
    assert "broken" in said.detail
    assert len(stage.effects()) == (10 if failing == "raises" else 1)
    refusals = stage.kinds().count("step.refused")
    assert refusals == (0 if failing == "raises" else 10)


def test_an_asynchronous_loop_is_held_too(stage: Stage) -> None:
    @step
    async def poke() -> str:
        stage.log("poke")
        return "asleep"

    @workflow(max_repeats=3)
    async def flow() -> None:
        async for _ in turns(n=0):
            await poke()

    held(stage, flow)
    assert len(stage.effects()) == 3


def test_what_a_neighbouring_task_did_is_not_counted_twice_after_a_crash(stage: Stage) -> None:
    """A task's calls are counted when its neighbour saves a turn, and are repeated on a resume."""

    @step
    def poke() -> str:
        stage.log("poke")
        return "asleep"

    @step
    def think(n: int) -> int:
        return n

    async def poking(times: int) -> None:
        for _ in range(times):
            await asyncio.to_thread(poke)

    async def thinking() -> None:
        async for state in turns(n=0, max=3):
            think(state.n)
            state.n += 1

    @workflow(max_repeats=5)
    async def flow() -> str:
        first = asyncio.create_task(poking(4))
        await first
        await asyncio.create_task(thinking())
        if stage.has("crash"):
            raise KeyboardInterrupt
        poke()
        return "done"

    stage.set("crash")
    with pytest.raises((KeyboardInterrupt, outlast.RunReleased)):
        outlast.run(flow, run_id="run", store=stage.url)
    (stage.folder / "flag-crash").unlink()
    assert outlast.run(flow, run_id="run", store=stage.url) == "done"


def test_a_row_of_a_task_beside_a_loop_of_turns_is_counted_once(stage: Stage) -> None:
    @step
    async def poke() -> str:
        stage.log("poke")
        return "asleep"

    saved = asyncio.Event()
    poked = asyncio.Event()

    async def poking() -> None:
        for _ in range(3):
            await poke()
        poked.set()
        await saved.wait()
        if stage.has("crash"):
            raise KeyboardInterrupt
        await poke()

    async def looping() -> None:
        async for state in turns(n=0, max=2):
            await poked.wait()
            state.n += 1
        saved.set()

    @workflow(max_repeats=5)
    async def flow() -> str:
        await asyncio.gather(looping(), poking())
        return "done"

    stage.set("crash")
    with pytest.raises((KeyboardInterrupt, outlast.RunReleased)):
        outlast.run(flow, run_id="run", store=stage.url)
    (stage.folder / "flag-crash").unlink()
    assert stage.kinds().count("turn.saved") == 1
    assert outlast.run(flow, run_id="run", store=stage.url) == "done"
    assert len(stage.effects()) == 4
