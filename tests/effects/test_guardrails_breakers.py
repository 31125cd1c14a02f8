"""Breakers in a run: what the workflow sees, live and on replay, and what becomes of the run."""

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Breaker, Retry
from outlast.breakers import Reset, Trip, read_breakers
from outlast.budgets import read_account
from outlast.events import StepRefused, decode
from outlast.store.open import open_store
from outlast.worker.stores import get_store
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.stage import Stage
from tests.ownership.children import SimulatedWorld

PROGRAMS = Path(__file__).parent / "programs"
ONCE = Retry(attempts=1)
HOUR = 3600.0


def guard(**settings: Any) -> Breaker:
    return Breaker("tool", **{"failures": 1, "window": HOUR, "cooldown": HOUR, **settings})


def in_both(colour: Colour, step: Any, calls: int, **options: Any) -> Any:
    """A workflow that calls the step so often, and returns what it got."""
    if colour == "sync":

        @outlast.workflow(**options)
        def flow() -> list[str]:
            return [_name(step, n) for n in range(calls)]

        return flow

    @outlast.workflow(**options)
    async def flow_async() -> list[str]:
        return [await _name_async(step, n) for n in range(calls)]

    return flow_async


def _name(step: Any, n: int) -> str:
    try:
        return str(step(n))
    except (outlast.BreakerOpen, outlast.Transient) as problem:
        return type(problem).__name__


async def _name_async(step: Any, n: int) -> str:
    try:
        return str(await step(n))
    except (outlast.BreakerOpen, outlast.Transient) as problem:
        return type(problem).__name__


@pytest.fixture
def world(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> SimulatedWorld:
    """Waits take no time."""
    world = SimulatedWorld()
    monkeypatch.setattr(
        "outlast.worker.stores.open_store", functools.partial(open_store, world=world)
    )
    return world


def refusals(stage: Stage, run_id: str = "run") -> list[StepRefused]:
    journal = [decode(e.kind, e.data) for e in stage.client().journal(run_id)]
    return [event for event in journal if isinstance(event, StepRefused)]


# ---- on_open="fail"


def test_a_replay_sees_the_same_refusal(stage: Stage) -> None:
    program = PROGRAMS / "refused.py"
    stage.kill_at("refused")
    assert stage.play(program).killed
    first = stage.effects()
    # Meanwhile an operator has closed it: what was refused stays so, what comes next is made.
    store = get_store(stage.url).store
    store.write(Reset("tool", store.world), durable=True)
    stage.set("works")
    assert stage.play(program).result == ["failed", "refused", "worked"]
    lines = stage.effects()
    refused = [line for line in lines if line.startswith("BreakerOpen")]
    assert refused == [refused[0]] * 2, "the same name, time and fault as when it happened"
    assert [line for line in lines if line.startswith("call")] == ["call 0", "call 2"]
    assert lines[: len(first)] == first
    (event,) = refusals(stage)
    assert event.error is not None
    assert stage.step("tool#1").attempts == 0
    assert [s.key for s in stage.client().run("run").steps] == ["tool#0", "tool#1", "tool#2"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_refused_call_costs_no_attempt_and_counts_as_a_call(stage: Stage, colour: Colour) -> None:
    def act(n: int) -> None:
        stage.log("act", n)
        raise outlast.Transient("busy")

    step = make_step(colour, act, retry=ONCE, breaker=guard())
    flow = in_both(colour, step, 5, budget=outlast.Budget(calls=4))
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "over-budget"
    assert "act#4" in held.value.detail
    assert stage.effects() == ["act 0"]
    assert [s.attempts for s in stage.client().run("run").steps[1:4]] == [0, 0, 0]
    account = read_account(get_store(stage.url).store, "run")
    assert account is not None
    assert (account.calls, account.steps) == (4, 1)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_retry_that_the_breaker_refuses_ends_the_call(stage: Stage, colour: Colour) -> None:
    def act(n: int) -> None:
        stage.log("act", n)
        raise outlast.Transient("busy")

    step = make_step(colour, act, retry=Retry(attempts=5, initial=0), breaker=guard(failures=2))
    result = outlast.run(in_both(colour, step, 1), run_id="run", store=stage.url)
    assert result == ["BreakerOpen"]
    assert stage.step("act#0").attempts == 2
    assert outlast.run(in_both(colour, step, 1), run_id="run", store=stage.url) == result


def test_a_breaker_is_shared_by_name_and_switched_off_by_false(stage: Stage) -> None:
    @outlast.step(retry=ONCE, breaker=guard())
    def one(n: int) -> str:
        raise outlast.Transient("busy")

    @outlast.step(breaker="tool")
    def other(n: int) -> str:
        return "worked"

    @outlast.step(name="tool", breaker=False)
    def free(n: int) -> str:
        return "worked"

    @outlast.workflow
    def flow() -> list[str]:
        return [_name(one, 0), _name(other, 0), _name(free, 0)]

    assert outlast.run(flow, store=stage.url) == ["Transient", "BreakerOpen", "worked"]


def test_two_settings_for_one_name_hold_the_run_before_the_call(stage: Stage) -> None:
    @outlast.step(breaker=guard())
    def one() -> str:
        return "worked"

    @outlast.step(breaker=guard(failures=7))
    def other() -> str:
        stage.log("other")
        return "worked"

    @outlast.workflow
    def flow() -> list[str]:
        return [one(), other()]

    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "diverged"
    assert "failures=7" in held.value.detail
    assert "outlast breakers reset" in held.value.fix
    assert stage.effects() == []


# ---- on_open="wait"


def test_a_run_that_waits_for_a_breaker_goes_on_in_another_process(stage: Stage) -> None:
    program = PROGRAMS / "refused.py"
    assert stage.play(program, "wait").stopped[0] == "RunWaiting"
    view = stage.client().run("run")
    (event,) = refusals(stage)
    assert (view.status, view.due_at, event.error) == ("waiting", event.retry_at, None)
    assert view.due_at is not None
    stage.set("works")
    # Too early: it waits for the rest.
    assert stage.play(program, "wait").stopped[0] == "RunWaiting"
    assert stage.client().run("run").due_at == view.due_at
    stage.later(HOUR + 1)
    assert stage.play(program, "wait").result == ["failed", "worked", "worked"]
    assert [line for line in stage.effects() if line.startswith("call")] == [
        "call 0",
        "call 1",
        "call 2",
    ]
    (breaker,) = read_breakers(get_store(stage.url).store)
    assert breaker.state == "closed"


@pytest.mark.parametrize("colour", COLOURS)
def test_a_run_that_waits_outlasts_trips_up_to_the_limit(
    stage: Stage, world: SimulatedWorld, colour: Colour
) -> None:
    def act(n: int) -> str:
        stage.log("act", n)
        raise outlast.Transient("busy")

    breaker = guard(on_open="wait", max_trips=3)
    step = make_step(colour, act, retry=Retry(attempts=9, initial=0), breaker=breaker)
    if colour == "sync":
        flow = in_both(colour, step, 1)
        assert outlast.run(flow, run_id="run", store=stage.url) == ["BreakerOpen"]
        assert stage.step("act#0").attempts == 3
        assert [event.error is None for event in refusals(stage)] == [True, True, False]
        assert world.ran == pytest.approx(2 * HOUR, abs=60)
    else:  # the event loop's own timers do not live in that world: each life sees one cool-down
        flow = in_both(colour, step, 1)
        for _ in range(2):
            with pytest.raises(outlast.RunWaiting):
                outlast.run(flow, run_id="run", store=stage.url, wait=False)
            world.ran += HOUR + 1
        assert outlast.run(flow, run_id="run", store=stage.url, wait=False) == ["BreakerOpen"]
        assert stage.step("act#0").attempts == 3


def test_waiting_counts_as_a_call_each_time(stage: Stage, world: SimulatedWorld) -> None:
    store = get_store(stage.url).store
    store.write(Trip("tool", world, seconds=HOUR), durable=True)

    @outlast.step(breaker=guard(on_open="wait"))
    def act() -> str:
        return "worked"

    @outlast.workflow(budget=outlast.Budget(calls=2))
    def flow() -> str:
        return act()

    assert outlast.run(flow, run_id="run", store=stage.url) == "worked"
    account = read_account(store, "run")
    assert account is not None
    assert account.calls == 2


# ---- cancelled at the moment of a refusal


@pytest.mark.parametrize("on_open", ["fail", "wait"])
def test_a_call_that_is_cancelled_while_it_is_refused_is_recorded_as_cancelled(
    stage: Stage, on_open: Any
) -> None:
    """The refusal comes from the writer thread, and the time-out strikes before it arrives."""
    store = get_store(stage.url).store
    store.write(Trip("tool", store.world, seconds=HOUR), durable=True)
    tasks: list[asyncio.Task[str]] = []

    @outlast.step(breaker=guard(on_open=on_open))
    async def act() -> str:
        stage.log("act")
        return "worked"

    @outlast.step
    async def after(n: int) -> int:
        return n

    @outlast.workflow
    async def flow() -> list[Any]:
        tasks[:] = [asyncio.create_task(act())]
        await asyncio.sleep(0)  # its opening is on its way
        tasks[0].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(done[0]).__name__, tasks[0].cancelling(), await after(1)]

    result = outlast.run(flow, run_id="run", store=stage.url)
    assert result == ["CancelledError", 1, 1]
    assert stage.effects() == []
    assert "step.started" not in stage.kinds("act#0")
    assert stage.kinds("act#0")[-1] == "step.abandoned"
    assert outlast.run(flow, run_id="run", store=stage.url) == result


def test_a_call_cancelled_in_its_cool_down_is_cancelled_again_on_replay(stage: Stage) -> None:
    program = PROGRAMS / "impatient.py"
    stage.kill_at("gave-up")
    assert stage.play(program).killed
    assert stage.play(program).result == ["gave up", "worked"]
    assert stage.effects() == ["other"]


# ---- places of probes


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("end", ["neutral", "success", "failure"])
def test_a_probe_decides_by_how_it_ends(
    stage: Stage, world: SimulatedWorld, colour: Colour, end: str
) -> None:
    store = get_store(stage.url).store
    store.write(Trip("tool", world, seconds=HOUR), durable=True)
    world.ran += HOUR + 1

    def act(n: int) -> str:
        if end == "neutral":
            raise ValueError("the caller's own mistake")
        if end == "failure":
            raise outlast.Transient("busy")
        return "worked"

    step = make_step(colour, act, retry=ONCE, breaker=guard())
    try:
        outlast.run(in_both(colour, step, 1), run_id="run", store=stage.url)
    except outlast.RunFailed:
        assert end == "neutral"
    (breaker,) = read_breakers(store)
    state = {"neutral": "half-open", "success": "closed", "failure": "open"}[end]
    assert (breaker.state, breaker.probes) == (state, ())


def test_a_cancelled_probe_gives_its_place_back(stage: Stage, world: SimulatedWorld) -> None:
    store = get_store(stage.url).store
    store.write(Trip("tool", world, seconds=HOUR), durable=True)
    world.ran += HOUR + 1
    begun = asyncio.Event()

    @outlast.step(breaker=guard())
    async def act(hang: bool) -> str:
        if hang:
            begun.set()
            await asyncio.Event().wait()
        return "worked"

    @outlast.workflow
    async def flow() -> str:
        task = asyncio.create_task(act(True))
        await begun.wait()
        assert len(read_breakers(store)[0].probes) == 1
        task.cancel()
        await asyncio.wait({task})
        return await act(False)

    assert outlast.run(flow, run_id="run", store=stage.url) == "worked"
    assert read_breakers(store)[0].state == "closed"
