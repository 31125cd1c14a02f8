"""A step that workflow code cancels is abandoned, and a replay takes the same path."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import outlast
from outlast import step, workflow
from outlast.engine.run import active_runs
from tests.engine.tools import PATIENT, Bodies, dying_at, kinds, run_through_deaths

SEEN: list[object] = []


@step
async def hang(name: str) -> str:
    await asyncio.Event().wait()
    return name


@step
async def quick(name: str) -> str:
    return name


@step
async def fails() -> None:
    raise ValueError("no")


@step
async def note(what: object) -> None:
    """Its argument is compared on replay."""


def replays(
    flow: Callable[..., Any], url: str, copies: Callable[[], str], times: int = 5
) -> list[Any]:
    """Let the live run die at its very end, then replay copies of it."""
    with dying_at(url, kind="run.completed") as died, pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    assert died()
    return [outlast.run(flow, run_id="r", store=copies()) for _ in range(times)]


def test_a_time_out_around_a_step_is_repeated(
    url: str, replica: Callable[[], str], bodies: Bodies
) -> None:
    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.02):
                await quick("a")
                await hang("b")
        except TimeoutError:
            await note("timed out")
            return "late"
        return "in time"

    assert replays(flow, url, replica) == ["late"] * 5
    assert "step.abandoned hang#1" in kinds(url)
    steps = {s.key: s.status for s in outlast.Client(url).run("r").steps}
    assert steps == {"quick#0": "completed", "hang#1": "abandoned", "note#2": "completed"}


def test_a_replay_waits_for_the_cancellation_before_it_gives_out_what_came_later(
    url: str, replica: Callable[[], str]
) -> None:
    """What the other task had done when the time-out struck is what it has done on replay."""

    @workflow
    async def flow() -> int:
        done: list[int] = []
        gate = asyncio.Event()

        async def worker() -> None:
            for n in range(3):
                await quick(str(n))
                done.append(n)
            await gate.wait()
            for n in range(3, 10):
                await quick(str(n))
                done.append(n)

        async def opener() -> None:
            # Opened by the clock, after the time-out: unrecorded, as timing is.
            try:
                async with asyncio.timeout(0.03):
                    await hang("x")
            except TimeoutError:
                pass
            seen = len(done)
            gate.set()
            await note(seen)
            SEEN.append(seen)

        await asyncio.gather(worker(), opener())
        return len(done)

    @workflow(name="racing")
    async def racing() -> int:
        done: list[int] = []

        async def worker() -> None:
            for n in range(60):
                await quick(str(n))
                done.append(n)

        task = asyncio.create_task(worker())
        try:
            async with asyncio.timeout(0.02):
                await hang("x")
        except TimeoutError:
            seen = len(done)
        await note(seen)
        await task
        return seen

    assert replays(flow, url, replica) == [10] * 5
    assert set(SEEN) == {3}
    with dying_at(url, kind="run.completed") as died, pytest.raises(outlast.StoreError):
        outlast.run(racing, run_id="q", store=url)
    assert died()
    copies = [replica() for _ in range(3)]
    results = {outlast.run(racing, run_id="q", store=copy) for copy in copies}
    assert len(results) == 1


def test_a_sibling_that_fails_cancels_the_same_steps_again(
    url: str, replica: Callable[[], str]
) -> None:
    @workflow
    async def flow() -> list[str]:
        order = []

        async def one(name: str, call: Any) -> None:
            try:
                await call
                order.append(f"{name} ended")
            except asyncio.CancelledError:
                order.append(f"{name} cancelled")
                raise

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(one("hang", hang("a")))
                group.create_task(one("quick", quick("b")))
                group.create_task(one("fails", fails()))
        except* ValueError:
            order.append("failed")
        await note(list(order))
        return order

    got = replays(flow, url, replica, 20)
    assert all(result == got[0] for result in got)
    assert got[0][-1] == "failed"


def test_anyio_cancel_scopes_are_repeated(url: str, replica: Callable[[], str]) -> None:
    @workflow
    async def flow() -> str:
        with anyio.move_on_after(0.02) as scope:
            await hang("a")
        await note(scope.cancelled_caught)
        async with anyio.create_task_group() as group:
            group.start_soon(hang, "b")
            await quick("c")
            group.cancel_scope.cancel()
        await quick("d")
        return "done"

    assert replays(flow, url, replica) == ["done"] * 5
    abandoned = [k for k in kinds(url) if k.startswith("step.abandoned")]
    assert abandoned == ["step.abandoned hang#0", "step.abandoned hang#2"]


def test_an_abandoned_sleep_is_repeated(url: str, replica: Callable[[], str]) -> None:
    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.02):
                await outlast.sleep(60)
        except TimeoutError:
            return await quick("late")
        return "never"

    assert replays(flow, url, replica, 3) == ["late"] * 3


@pytest.mark.parametrize("strike", ["before", "during", "after"])
def test_a_cancellation_in_the_moment_of_the_commit_is_repeated(
    strike: str, url: str, replica: Callable[[], str]
) -> None:
    """Whichever comes first, the journal and the workflow agree about it."""
    live = True

    @workflow
    async def flow() -> list[str]:
        order: list[str] = []

        async def work() -> None:
            try:
                order.append(await quick("x"))
            except asyncio.CancelledError:
                order.append("cancelled")
                raise

        task = asyncio.create_task(work())
        if live:
            run = next(iter(active_runs()))
            cancel_at(run, task, strike)
        else:
            # The moment is nothing that a replay could repeat; that it came is.
            while "step.abandoned quick#s0.0" in record and not task.done():
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.wait({task})
        await note(list(order))
        return order

    def cancel_at(run: Any, task: "asyncio.Task[None]", strike: str) -> None:
        real = run.store.submit

        def submit(item: Any, **more: Any) -> None:
            kind = item.entries[-1].event.kind if item.entries else ""
            if kind != "step.completed":
                return real(item, **more)
            del run.store.submit
            if strike == "before":
                task.cancel()
            told = more["done"]

            def done(result: object) -> None:
                told(result)
                if strike == "after":
                    task.cancel()

            real(item, **{**more, "done": done})
            if strike == "during":
                task.cancel()
            return None

        run.store.submit = submit

    with dying_at(url, kind="run.completed") as died, pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    assert died()
    live = False
    record = kinds(url)
    assert "step.completed quick#s0.0" in record
    results = [outlast.run(flow, run_id="r", store=replica()) for _ in range(3)]
    expected = ["cancelled"] if "step.abandoned quick#s0.0" in record else ["x"]
    assert results == [expected] * 3


def test_a_cancellation_nobody_asked_for_is_a_failed_step(url: str) -> None:
    @step
    async def awaits_a_cancelled_future() -> None:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    @workflow
    async def flow() -> str:
        try:
            await awaits_a_cancelled_future()
        except outlast.BodyCancelled:
            return "told so"
        return "never"

    assert outlast.run(flow, run_id="r", store=url) == "told so"
    assert outlast.Client(url).run("r").steps[0].status == "failed"


def test_a_task_cancelled_before_it_began_leaves_no_trace(
    url: str, replica: Callable[[], str]
) -> None:
    @workflow
    async def flow() -> str:
        task = asyncio.create_task(hang("x"))
        task.cancel()
        await asyncio.wait({task})
        return await quick("y")

    assert replays(flow, url, replica, 2) == ["y"] * 2
    assert [k for k in kinds(url) if "hang" in k] == []


def test_a_once_step_that_the_workflow_cancels_is_in_doubt(url: str) -> None:
    @step(effect="once")
    async def pay() -> None:
        await asyncio.Event().wait()

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.02):
                await pay()
        except TimeoutError:
            return await quick("never")
        return "never"

    with pytest.raises(outlast.RunHeld, match="in-doubt"):
        outlast.run(flow, run_id="r", store=url)
    assert not [k for k in kinds(url) if "quick" in k]


def test_time_outs_and_races_survive_a_death_at_every_write(url: str) -> None:
    @workflow
    async def flow() -> list[str]:
        seen = []
        for n in range(2):
            try:
                async with asyncio.timeout(0.01):
                    await hang(str(n))
            except TimeoutError:
                seen.append("late")
            tasks = {asyncio.create_task(hang("loser")), asyncio.create_task(quick("winner"))}
            done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            seen.extend(task.result() for task in done)
            await note(list(seen))
        return seen

    def start() -> list[str]:
        return outlast.run(flow, run_id="r", store=url, settings=PATIENT)

    result, deaths = run_through_deaths(start, url, first=2)
    assert result == ["late", "winner", "late", "winner"]
    assert deaths > 5


@pytest.mark.parametrize("later", ["awaited", "plain", "sleep"])
def test_a_cancellation_that_does_not_come_again_is_held(
    later: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a time-out is still to come cannot be seen: the recorded one says how long it was."""
    monkeypatch.setattr("outlast.engine.stopping.PATIENCE", 0.05)
    changed = False

    @step(name="act")
    def plain() -> str:
        return "never"

    @step(name="act")
    async def awaited() -> str:
        await asyncio.Event().wait()
        return "never"

    @workflow
    async def flow() -> str:
        if changed:
            await {"sleep": lambda: outlast.sleep(60), "awaited": awaited}.get(later, to_plain)()
        try:
            async with asyncio.timeout(0.02):
                await (outlast.sleep(60) if later == "sleep" else awaited())
        except TimeoutError:
            return await quick("late")
        return "never"

    async def to_plain() -> None:
        plain()

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    before, changed = kinds(url), True
    with pytest.raises(outlast.RunHeld, match="recorded as cancelled") as held:
        outlast.run(flow, run_id="r", store=url)
    assert held.value.reason == "diverged"
    assert kinds(url) == [*before, "run.held"]
    changed = False
    assert outlast.run(flow, run_id="r", store=url) == "late"


def test_a_recorded_cancellation_is_waited_for_as_long_as_it_may_take(
    url: str, replica: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was cancelled at once, but the time-out around it was a long one."""
    monkeypatch.setattr("outlast.engine.stopping.PATIENCE", 0.0)

    @step
    async def linger() -> None:
        await asyncio.sleep(0.2)

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.25):
                await linger()
                await hang("x")
        except TimeoutError:
            return "late"
        return "never"

    assert replays(flow, url, replica, 2) == ["late"] * 2
