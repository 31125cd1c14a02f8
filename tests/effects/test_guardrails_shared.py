"""Breakers that others open, try and close: whom they belong to, and who hears of it."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import outlast
from outlast import Breaker, Retry
from outlast.breakers import read_breakers
from outlast.worker.stores import get_store
from tests.effects.colours import COLOURS, Colour
from tests.effects.stage import DEADLINE, Stage, wait_for

PROGRAMS = Path(__file__).parent / "programs"
ONCE = Retry(attempts=1)
SOON = outlast.Settings(max_sleep=0.05)
HOUR = 3600.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


def is_half_open(stage: Stage) -> bool:
    (view,) = read_breakers(get_store(stage.url).store)
    return view.state == "half-open"


# ---- while a probe is under way


@pytest.mark.parametrize("trips", [0, 1])
def test_others_wait_for_a_probe_and_go_on_when_it_has_closed_the_breaker(
    stage: Stage, trips: int
) -> None:
    """Even where the breaker has tripped as often as it may: while it is tried, nobody knows. They
    need not wait for the time at which they would ask again, which is a minute away."""
    guard = Breaker(
        "tool", failures=1, window=HOUR, cooldown=HOUR, max_trips=max(1, trips), on_open="wait"
    )

    @outlast.step(breaker=guard, retry=ONCE)
    async def act(n: int) -> str:
        stage.log("act", n)
        if n == 0:
            raise outlast.Transient("busy")
        if n == 1:
            await until(lambda: stage.kinds().count("step.refused") == 3)
        return "worked"

    @outlast.workflow
    async def flow() -> list[str]:
        if trips:
            with pytest.raises(outlast.Transient):
                await act(0)
        stage.client().trip_breaker(
            "tool", 0.01
        )  # an operator's cool-down keeps the count of trips
        await until(lambda: is_half_open(stage))
        return await asyncio.gather(*(act(n) for n in range(1, 5)))

    assert outlast.run(flow, run_id="run", store=stage.url, settings=SOON) == ["worked"] * 4
    (view,) = read_breakers(get_store(stage.url).store)
    assert view.state == "closed"
    waited = [e for e in stage.client().journal("run") if e.kind == "step.refused"]
    opened = [e for e in stage.client().journal("run") if e.kind == "step.started"][-1]
    assert opened.at < waited[0].at + 60, "it asked again as soon as the breaker was closed"


# ---- from outside


@pytest.mark.parametrize("colour", COLOURS)
def test_a_reset_is_heard_by_a_run_that_waits_in_a_living_process(
    stage: Stage, colour: Colour
) -> None:
    stage.client().trip_breaker("tool", HOUR)
    with stage.start(PROGRAMS / "patient.py", colour) as child:
        stage.when("step.refused", lambda: stage.client().reset_breaker("tool"))
        assert stage.ended(child).result == "worked"
    assert stage.effects() == ["call"]
    assert stage.kinds().count("step.refused") == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_a_reset_is_heard_by_a_run_that_was_left_when_it_is_resumed(
    stage: Stage, colour: Colour
) -> None:
    program = PROGRAMS / "patient.py"
    stage.client().trip_breaker("tool", HOUR)
    for _ in range(2):
        assert stage.play(program, colour, "parks").stopped[0] == "RunWaiting"
    assert stage.effects() == []
    stage.client().reset_breaker("tool")
    assert stage.play(program, colour, "parks").result == "worked"
    assert stage.kinds().count("step.refused") == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_the_probe_of_another_run_is_heard_by_a_run_in_another_process(
    stage: Stage, colour: Colour
) -> None:
    """That run was refused while the probe was under way, and would ask again in a minute."""
    children: list[subprocess.Popen[str]] = []

    def is_refused() -> bool:
        runs = [run.run_id for run in stage.client().runs()]
        return "run" in runs and "step.refused" in stage.kinds()

    @outlast.step(breaker=Breaker("tool", failures=1, window=2 * HOUR, cooldown=HOUR))
    def probe() -> str:
        children.append(stage.start(PROGRAMS / "patient.py", colour))
        wait_for(is_refused, "the other run to be refused")
        return "worked"

    @outlast.workflow
    def flow() -> str:
        return probe()

    stage.client().trip_breaker("tool", 0.01)
    wait_for(lambda: is_half_open(stage), "the end of the cool-down")
    result = outlast.run(flow, run_id="other", store=stage.url)
    with children[0] as child:
        assert (result, stage.ended(child).result) == ("worked", "worked")


# ---- whose breaker it is


def tool_of(module: str, **options: Any) -> Any:
    """A step `ask` of a module of that name; it fails if it is told to."""
    made = ModuleType(module)
    exec(
        "def ask(fails):\n    if fails:\n        raise ConnectionResetError\n    return 'worked'\n",
        made.__dict__,
    )
    return outlast.step(**options)(made.__dict__["ask"])


def test_functions_of_one_name_in_two_modules_have_two_breakers(stage: Stage) -> None:
    broken, working, same = (tool_of(name, retry=ONCE) for name in ("mail", "chat", "mail"))

    @outlast.workflow
    def flow() -> list[str]:
        seen: list[str] = []
        for ask, fails in [*[(broken, True)] * 6, (working, False), (same, False)]:
            try:
                seen.append(ask(fails))
            except (ConnectionError, outlast.BreakerOpen) as problem:
                seen.append(type(problem).__name__)
        return seen

    assert outlast.run(flow, run_id="run", store=stage.url) == [
        *["ConnectionResetError"] * 5,
        "BreakerOpen",
        "worked",
        "BreakerOpen",
    ]
    assert [view.name for view in read_breakers(get_store(stage.url).store)] == ["mail.ask"]


def test_a_breaker_that_nobody_has_set_takes_as_many_failures_as_there_are_attempts(
    stage: Stage,
) -> None:
    ask = tool_of("mail", retry=Retry(attempts=8, initial=0))

    @outlast.workflow
    def flow() -> list[str]:
        seen: list[str] = []
        for _ in range(2):
            try:
                seen.append(ask(True))
            except (ConnectionError, outlast.BreakerOpen) as problem:
                seen.append(type(problem).__name__)
        return seen

    result = outlast.run(flow, run_id="run", store=stage.url)
    assert result == ["ConnectionResetError", "BreakerOpen"]
    assert stage.step("ask#0").attempts == 8
    (view,) = read_breakers(get_store(stage.url).store)
    assert (view.failures, view.settings.failures) == (8, 8)
