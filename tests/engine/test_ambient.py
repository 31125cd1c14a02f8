"""Time, chance and waits in workflow code are the same on every replay."""

import asyncio
import functools
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import outlast
from outlast import step, workflow
from outlast.store.open import open_store
from tests.engine.tools import PATIENT, Bodies, dying_at, kinds, run_with_each_death
from tests.ownership.children import SimulatedWorld

DRAWN: list[list[object]] = []


@step
async def think(what: str) -> str:
    return what


def draw() -> list[object]:
    return [outlast.now(), outlast.uuid4(), outlast.random(), outlast.random()]


@workflow
async def drawing() -> list[object]:
    async def child(name: str) -> list[object]:
        got = draw()
        await think(name)
        return got + draw()

    DRAWN.append(draw())
    for drawn in await asyncio.gather(*(child(n) for n in "abc")):
        DRAWN[-1] += drawn
    async for _ in outlast.turns(n=0, max=2):
        DRAWN[-1] += draw()
        await think("turn")
    return DRAWN[-1]


def test_draws_repeat_themselves_on_replay_and_differ_everywhere_else(
    url: str, replica: Callable[[], str]
) -> None:
    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(drawing, run_id="r", store=url)
    first = DRAWN[-1]
    copy = replica()
    again = outlast.run(drawing, run_id="r", store=copy)
    skipped = len(first) - 4  # the first turn is not replayed
    assert again == first[: skipped - 4] + first[skipped:]
    assert len({str(value) for value in first}) == len(first)
    other = outlast.run(drawing, run_id="other", store=url)
    assert not {str(v) for v in other} & {str(v) for v in first}


def test_draws_have_the_right_types(url: str) -> None:
    @workflow
    def flow() -> bool:
        now, uuid, number, _ = draw()
        assert isinstance(now, datetime)
        assert now.tzinfo is UTC
        assert abs(datetime.now(UTC) - now) < timedelta(seconds=60)
        assert uuid.version == 4  # type: ignore[attr-defined]
        return 0 <= number < 1  # type: ignore[operator,no-any-return]

    assert outlast.run(flow, run_id="r", store=url)


def test_draws_in_a_step_and_outside_a_run_are_real(url: str) -> None:
    @step
    def inside() -> list[object]:
        return draw()

    @workflow
    def flow() -> list[object]:
        return inside()

    outlast.run(flow, run_id="r", store=url)
    assert not [k for k in kinds(url) if k.startswith("value.")]
    assert len({str(value) for value in draw()}) == 4


def test_draws_survive_a_death_at_every_write(url: str) -> None:
    @workflow
    async def flow() -> bool:
        before = outlast.now(), outlast.uuid4()
        kept = await note([str(v) for v in before])
        return [str(v) for v in before] == kept

    @step
    async def note(what: list[str]) -> list[str]:
        return what

    def start(run_id: str) -> bool:
        return outlast.run(flow, run_id=run_id, store=url, settings=PATIENT)

    results = [result for _, result in run_with_each_death(start, url)]
    assert results == [True] * len(results)
    assert len(results) >= 4


# ---- durable sleep


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimulatedWorld:
    """Pauses of plain code take no time in it, but are counted."""
    made = SimulatedWorld()
    opening = functools.partial(open_store, world=made)
    monkeypatch.setattr("outlast.worker.stores.open_store", opening)
    return made


def test_only_the_rest_of_a_sleep_is_waited_for_after_a_death(
    url: str, world: SimulatedWorld
) -> None:
    @workflow
    def flow() -> str:
        outlast.sleep(60).result()
        return "awake"

    with dying_at(url, kind="timer.set", after=True), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    world.ran += 40  # the time that the process is dead
    resumed = world.ran
    assert outlast.run(flow, run_id="r", store=url) == "awake"
    assert world.ran - resumed == pytest.approx(20, abs=3)
    assert len([k for k in kinds(url) if k.startswith("timer.set")]) == 1


def test_a_sleep_that_is_over_is_not_slept_again(
    url: str, world: SimulatedWorld, replica: Callable[[], str]
) -> None:
    @workflow
    def flow() -> str:
        outlast.sleep(60).result()
        return "awake"

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    before = world.ran
    assert outlast.run(flow, run_id="r", store=replica()) == "awake"
    assert world.ran == before


@pytest.mark.parametrize("colour", ["plain", "awaited"])
def test_without_wait_a_sleeping_run_is_given_back_until_it_is_due(
    colour: str, url: str, bodies: Bodies
) -> None:
    @step
    def note(what: str) -> None:
        bodies(what)

    def plain() -> str:
        note("before")
        outlast.sleep(0.4).result()
        note("behind")
        return "awake"

    async def awaited() -> str:
        note("before")
        await asyncio.gather(outlast.sleep(0.4), outlast.sleep(0.2))
        note("behind")
        return "awake"

    flow: Any = workflow(plain if colour == "plain" else awaited)
    with pytest.raises(outlast.RunWaiting) as waiting:
        outlast.run(flow, run_id="r", store=url, wait=False)
    view = outlast.Client(url).run("r")
    assert (view.status, view.interrupted) == ("waiting", False)
    assert view.due_at == waiting.value.due
    assert view.due_at is not None
    assert outlast.run(flow, run_id="r", store=url) == "awake"
    assert time.time() >= view.due_at
    assert bodies.ran == {"before": 1, "behind": 1}


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_without_wait_a_run_whose_time_has_come_goes_on(url: str, colour: str) -> None:
    def plain() -> str:
        outlast.sleep(0.01).result()
        return "awake"

    async def awaited() -> str:
        await outlast.sleep(0.01)
        return "awake"

    flow: Any = workflow(plain if colour == "plain" else awaited)
    for _ in range(10_000):  # as a cron job would, until the timer is due
        try:
            assert outlast.run(flow, run_id="r", store=url, wait=False) == "awake"
        except outlast.RunWaiting:
            continue
        return
    pytest.fail("it never went on")


def test_without_wait_a_run_leaves_only_when_nothing_else_goes_on(url: str) -> None:
    async def chain() -> None:
        for n in range(5):
            await think(str(n))

    async def flow() -> None:
        await asyncio.gather(outlast_sleep(), chain())

    async def outlast_sleep() -> None:
        await outlast.sleep(3600)  # nobody could wait for it

    with pytest.raises(outlast.RunWaiting):
        outlast.run(workflow(flow), run_id="r", store=url, wait=False)
    statuses = [s.status for s in outlast.Client(url).run("r").steps]
    assert statuses == ["completed"] * 5


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_sleep_of_no_length_is_refused(seconds: float, url: str) -> None:
    def flow() -> None:
        outlast.sleep(seconds).result()

    with pytest.raises(outlast.RunFailed, match="finite number"):
        outlast.run(workflow(flow), run_id="r", store=url)


def test_a_pending_wait_is_for_one_use(url: str) -> None:
    def flow() -> str:
        pending = outlast.sleep(0)
        pending.result()
        try:
            pending.result()
        except RuntimeError as exc:
            return str(exc)
        return "twice"

    assert "waited for twice" in outlast.run(workflow(flow), run_id="r", store=url)


def test_a_pending_wait_that_is_dropped_warns(url: str) -> None:
    def flow() -> None:
        outlast.sleep(5)

    with pytest.warns(RuntimeWarning, match=r"outlast.sleep was called but not waited for"):
        outlast.run(workflow(flow), run_id="r", store=url)


def test_a_pending_wait_of_a_stopped_run_does_not_warn(url: str) -> None:
    async def flow() -> None:
        await outlast.sleep(0)
        pending = outlast.sleep(5)
        with pytest.raises(outlast.StopRun):
            await asyncio.gather(hold_up())
        with pytest.raises(outlast.StopRun):
            await pending
        raise outlast.StopRun

    @step(effect="once")
    async def pay() -> None:
        raise ConnectionResetError

    async def hold_up() -> None:
        await pay()

    with warnings.catch_warnings(action="error"), pytest.raises(outlast.RunHeld):
        outlast.run(workflow(flow), run_id="r", store=url)


@pytest.mark.parametrize("call", ["sleep", "turns", "current", "key"])
def test_what_needs_a_run_says_so(call: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "sleep": lambda: outlast.sleep(1),
        "turns": lambda: outlast.turns(n=1),
        "current": outlast.current,
        "key": outlast.idempotency_key,
    }
    with pytest.raises(outlast.OutsideRun):
        calls[call]()


# ---- values


def test_a_step_and_its_caller_share_no_object(url: str) -> None:
    kept: list[dict[str, list[int]]] = []

    @step
    def make() -> dict[str, list[int]]:
        made = {"a": [1]}
        kept.append(made)
        return made

    @workflow
    def flow() -> dict[str, list[int]]:
        got = make()
        got["a"].append(2)
        assert kept == [{"a": [1]}]
        kept[0]["a"].append(3)
        return got

    assert outlast.run(flow, run_id="r", store=url) == {"a": [1, 2]}


def test_a_workflow_gets_its_arguments_as_stored(url: str) -> None:
    @workflow
    def flow(items: list[int]) -> list[int]:
        items.append(4)
        return items

    mine = [1, 2]
    assert outlast.run(flow, mine, run_id="r", store=url) == [1, 2, 4]
    assert mine == [1, 2]


def test_a_result_is_the_stored_one_at_once_and_later(url: str) -> None:
    made: list[list[int]] = []

    @workflow
    def flow() -> list[int]:
        made.append([1])
        return made[0]

    first = outlast.run(flow, run_id="r", store=url)
    assert first == [1]
    assert first is not made[0]
    assert outlast.run(flow, run_id="r", store=url) == [1]
    assert len(made) == 1


def test_current_tells_where_the_code_stands(url: str) -> None:
    seen: list[outlast.Current] = []

    @step
    async def look() -> None:
        seen.append(outlast.current())

    @workflow
    async def flow() -> None:
        seen.append(outlast.current())
        await look()
        seen.append(outlast.current())

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url, tags={"team": "desk"})
    assert [(c.step, c.attempt, c.replaying) for c in seen] == [
        (None, None, False),
        ("look#0", 1, False),
        (None, None, False),
    ]
    assert {(c.run_id, dict(c.tags)["team"], len(c.trace_id)) for c in seen} == {("r", "desk", 32)}
    trace = seen[0].trace_id
    seen.clear()
    outlast.run(flow, run_id="r", store=url)
    assert [(c.step, c.replaying) for c in seen] == [(None, True), (None, False)]
    assert {c.trace_id for c in seen} == {trace}


def test_a_task_is_live_as_soon_as_its_own_calls_are_replayed(url: str) -> None:
    seen: dict[str, list[bool]] = {}

    def look(who: str) -> None:
        seen.setdefault(who, []).append(outlast.current().replaying)

    @workflow
    async def flow() -> None:
        async def quick() -> None:
            look("quick")
            await think("a")
            look("quick")
            ready.set()

        async def late() -> None:
            await ready.wait()
            look("late")
            await think("b")
            look("late")

        ready = asyncio.Event()
        look("flow")
        await asyncio.gather(quick(), late())
        look("flow")

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    assert not any(any(looks) for looks in seen.values())
    seen.clear()
    outlast.run(flow, run_id="r", store=url)
    assert seen == {"flow": [True, False], "quick": [True, False], "late": [True, False]}
