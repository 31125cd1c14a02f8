"""A run that must stop runs no further step, whatever the workflow catches."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import step, workflow
from outlast.engine.run import active_runs
from tests.engine.tools import Bodies, dying_at, kinds

Body = Callable[[], Any]


class Parts:
    """A step that will be held (it is in doubt), and others around it."""

    def __init__(self, bodies: Bodies) -> None:
        @step(effect="once")
        async def pay() -> str:
            bodies("pay")
            raise ConnectionResetError("no answer")

        @step
        async def cleanup(how: str = "") -> str:
            bodies(f"cleanup {how}".strip())
            return "clean"

        @step
        async def slow(name: str) -> str:
            bodies(f"slow {name}")
            for _ in range(50):
                await asyncio.sleep(0)
            while name.startswith("until the stop") and not any(r.stop for r in active_runs()):
                await asyncio.sleep(0)
            bodies(f"slow {name} ended")
            return name

        self.pay, self.cleanup, self.slow = pay, cleanup, slow


@pytest.fixture
def parts(bodies: Bodies) -> Parts:
    return Parts(bodies)


def held(body: Body, url: str) -> outlast.RunHeld:
    with pytest.raises(outlast.RunHeld) as got:
        outlast.run(workflow(body), run_id="r", store=url)
    assert got.value.reason == "in-doubt"
    view = outlast.Client(url).run("r")
    assert (view.status, view.error) == ("held", None)
    return got.value


def test_finally_and_except_run_no_step(url: str, bodies: Bodies, parts: Parts) -> None:
    caught: list[type[BaseException]] = []

    async def flow() -> str:
        try:
            await parts.pay()
        except Exception as exc:
            caught.append(type(exc))
        except BaseException as exc:
            caught.append(type(exc))
            raise
        finally:
            await parts.cleanup()
        return "never"

    held(flow, url)
    assert caught == [outlast.StopRun]
    assert bodies.ran == {"pay": 1}
    assert kinds(url)[-1] == "run.held"


def test_a_swallowed_stop_completes_nothing(url: str, bodies: Bodies, parts: Parts) -> None:
    async def flow() -> str:
        for how in "abc":
            try:
                await (parts.pay() if how == "a" else parts.cleanup(how))
            except BaseException:
                continue
        return "looks fine"

    held(flow, url)
    assert bodies.ran == {"pay": 1}


def test_gathered_exceptions_hide_no_stop(url: str, bodies: Bodies, parts: Parts) -> None:
    async def flow() -> str:
        got = await asyncio.gather(parts.pay(), parts.cleanup("x"), return_exceptions=True)
        assert isinstance(got[0], outlast.StopRun)
        got = await asyncio.gather(*(parts.cleanup(n) for n in "ab"), return_exceptions=True)
        return "looks fine"

    held(flow, url)
    assert bodies.ran == {"pay": 1, "cleanup x": 1}


def test_a_task_group_around_a_held_step_ends_as_a_hold(
    url: str, bodies: Bodies, parts: Parts
) -> None:
    async def flow() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(parts.pay())
                group.create_task(parts.slow("x"))
        finally:
            await parts.cleanup()
        return "never"

    held(flow, url)
    assert bodies.ran == {"pay": 1, "slow x": 1, "slow x ended": 1}
    assert "step.completed slow#1" in kinds(url)


def test_parallel_attempts_end_and_are_recorded_before_the_hold(
    url: str, bodies: Bodies, parts: Parts
) -> None:
    async def chain(name: str) -> None:
        await parts.slow(name)
        await parts.cleanup(name)

    async def flow() -> None:
        await asyncio.gather(chain("until the stop x"), parts.pay(), chain("until the stop y"))

    held(flow, url)
    assert not any(name.startswith("cleanup") for name in bodies.ran)
    record = kinds(url)
    assert {"step.completed slow#s0.0", "step.completed slow#s2.0"} <= set(record)
    assert record[-1] == "run.held"


def test_a_stop_is_no_failure_and_the_run_goes_on(url: str, bodies: Bodies, parts: Parts) -> None:
    async def flow() -> str:
        try:
            return str(await parts.pay())
        finally:
            await parts.cleanup()

    held(flow, url)
    client = outlast.Client(url)
    client.settle("r", "pay#0", outlast.Done("paid"))
    assert outlast.run(workflow(flow), run_id="r", store=url) == "paid"
    assert bodies.ran == {"pay": 1, "cleanup": 1}


def test_a_workflow_that_waits_for_what_never_comes_is_stopped(
    url: str, bodies: Bodies, parts: Parts
) -> None:
    async def flow() -> None:
        never = asyncio.Event()

        async def child() -> None:
            await parts.pay()
            never.set()

        task = asyncio.create_task(child())
        await never.wait()
        await task

    with pytest.raises(outlast.RunHeld):
        outlast.run(workflow(flow), run_id="r", store=url, settings=outlast.Settings(grace=0.05))


# ---- the end of a run


def test_what_a_workflow_leaves_open_is_recorded_and_opens_nothing_more(
    url: str, bodies: Bodies, parts: Parts
) -> None:
    async def chain() -> None:
        for n in range(1000):
            await parts.slow(str(n))

    async def flow() -> str:
        left = asyncio.create_task(chain())
        await parts.cleanup()
        assert not left.done()
        return "done"

    assert outlast.run(workflow(flow), run_id="r", store=url) == "done"
    begun = [name for name in bodies.ran if not name.endswith("ended")]
    assert len(begun) <= 3
    assert kinds(url)[-1] == "run.completed"
    steps = outlast.Client(url).run("r").steps
    assert {step.status for step in steps} == {"completed"}


def test_a_run_with_tasks_left_behind_replays_to_its_end(
    url: str, bodies: Bodies, parts: Parts
) -> None:
    async def chain(depth: int) -> None:
        if depth:
            await asyncio.create_task(chain(depth - 1))
        await parts.slow(str(depth))

    async def flow() -> str:
        left = asyncio.create_task(chain(2))
        await parts.cleanup()
        assert not left.done()
        return "done"

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(workflow(flow), run_id="r", store=url)
    ran = dict(bodies.ran)
    assert outlast.run(workflow(flow), run_id="r", store=url) == "done"
    assert {name: bodies.ran[name] for name in ran} == ran


def test_a_cancelled_execute_releases_the_run(url: str, bodies: Bodies, parts: Parts) -> None:
    async def flow() -> str:
        await parts.cleanup()
        await parts.slow("x")
        return "done"

    async def main() -> None:
        task = asyncio.create_task(outlast.execute(workflow(flow), run_id="r", store=url))
        while not bodies.ran["slow x"]:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    view = outlast.Client(url).run("r")
    assert (view.status, view.interrupted) == ("queued", False)
    assert view.steps[1].status == "interrupted"
    assert outlast.run(workflow(flow), run_id="r", store=url) == "done"
    assert bodies.ran["cleanup"] == 1


def test_an_interrupt_in_a_step_releases_the_run(url: str, bodies: Bodies) -> None:
    first = True

    @step
    def press() -> str:
        bodies("press")
        if first:
            raise KeyboardInterrupt
        return "pressed"

    @workflow
    def plain() -> str:
        return press()

    @workflow
    async def awaited() -> str:
        return press()

    for run_id, flow in (("p", plain), ("a", awaited)):
        first = True
        with pytest.raises(KeyboardInterrupt):
            outlast.run(flow, run_id=run_id, store=url)
        view = outlast.Client(url).run(run_id)
        assert (view.status, view.steps[0].status) == ("queued", "interrupted")
        first = False
        assert outlast.run(flow, run_id=run_id, store=url) == "pressed"
        assert not any("crash" in str(e.data) for e in outlast.Client(url).journal(run_id)[4:])


# ---- nesting


def test_a_step_within_a_step_is_part_of_it(url: str, bodies: Bodies) -> None:
    @step
    async def inner() -> int:
        bodies("inner")
        return 1

    @step
    async def outer() -> int:
        return await inner() + await asyncio.create_task(inner())

    @workflow
    async def flow() -> int:
        return await outer() + await inner()

    assert outlast.run(flow, run_id="r", store=url) == 3
    assert [k for k in kinds(url) if k.startswith("step.started")] == [
        "step.started outer#0",
        "step.started inner#1",
    ]


def test_a_workflow_called_in_a_workflow_is_a_run_of_its_own(url: str, parts: Parts) -> None:
    @workflow
    async def inner() -> str:
        return str(await parts.cleanup())

    @workflow
    async def outer() -> str:
        return await inner() + await asyncio.create_task(inner())

    assert outlast.run(outer, run_id="r", store=url) == "cleanclean"
    assert [k for k in kinds(url) if k.startswith(("step.", "child."))] == [
        "child.started inner#0",
        "child.ended inner#0",
        "child.started inner#1",
        "child.ended inner#1",
    ]
    found = {run.run_id for run in outlast.Client(url).runs()}
    assert found == {"r", "r/inner#0", "r/inner#1"}


def test_a_stop_wakes_a_durable_sleep_at_once(url: str, parts: Parts) -> None:
    async def flow() -> None:
        await asyncio.gather(outlast_sleep(), parts.pay())

    async def outlast_sleep() -> None:
        await outlast.sleep(3600)  # nobody could wait for it

    held(flow, url)


def test_a_plain_workflow_that_calls_an_asynchronous_step_is_told_so(url: str) -> None:
    @step
    async def tool() -> int:
        return 1

    @workflow
    def flow() -> object:
        return tool()

    with pytest.raises(outlast.RunFailed, match="make the workflow `async def`"):
        outlast.run(flow, run_id="r", store=url)
    assert outlast.Client(url).run("r").steps == []


def test_a_stop_that_nobody_asked_for_is_no_result(url: str) -> None:
    @workflow
    async def awaited() -> None:
        raise outlast.StopRun

    @workflow
    def plain() -> None:
        raise outlast.StopRun

    for run_id, flow in (("a", awaited), ("p", plain)):
        with pytest.raises(outlast.RunFailed, match="StopRun"):
            outlast.run(flow, run_id=run_id, store=url)
        assert outlast.Client(url).run(run_id).status == "failed"


def test_the_status_is_that_of_the_moment_of_the_commit(url: str) -> None:
    """Two writes may be committed in the other order than they were made in."""
    seen: list[str] = []

    @step
    async def act() -> None:
        run = next(iter(active_runs()))
        run.dues["timer"] = run.world.wall() + 60
        attempt = run.open.pop("act#0")
        waiting = run.owner_write((), "record")  # made while nothing was open
        run.opened(attempt)
        running = run.owner_write((), "record")
        for item in (running, waiting):
            run.store.write_now(item)
        seen.append(outlast.Client(url).run("r").status)
        run.dues.clear()

    @workflow
    async def flow() -> None:
        await act()

    outlast.run(flow, run_id="r", store=url)
    assert seen == ["running"]


class Fatal(BaseException):
    """Neither an error of a step nor anything that outlast knows."""


@pytest.mark.parametrize("raised", [Fatal, SystemExit, KeyboardInterrupt])
def test_a_body_left_by_no_error_releases_the_run_even_if_the_workflow_swallows_it(
    url: str, raised: type[BaseException]
) -> None:
    begun: list[str] = []

    @step
    def tool() -> str:
        begun.append("tool")
        if len(begun) == 1:
            raise raised
        return "fine"

    @step
    def after() -> None:
        begun.append("after")

    @workflow
    def flow() -> str:
        try:
            return tool()
        except raised:
            after()
            return "swallowed"

    with pytest.raises(outlast.RunReleased):
        outlast.run(flow, run_id="r", store=url)
    assert begun == ["tool"]
    view = outlast.Client(url).run("r")
    assert (view.status, view.steps[0].status) == ("queued", "interrupted")
    assert outlast.run(flow, run_id="r", store=url) == "fine"


def test_a_gather_that_swallows_what_left_a_body_does_not_keep_the_run_from_ending(
    url: str,
) -> None:
    @step
    async def tool() -> None:
        raise Fatal

    @workflow
    async def flow() -> object:
        return repr(await asyncio.gather(tool(), return_exceptions=True))

    with pytest.raises(outlast.RunReleased, match="Fatal"):
        outlast.run(flow, run_id="r", store=url)


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_body_that_raises_stop_run_by_itself_has_failed(url: str, colour: str) -> None:
    if colour == "plain":

        @step
        def tool() -> None:
            raise outlast.StopRun("hm")

        @workflow
        def flow() -> None:
            tool()
    else:

        @step(name="tool")
        async def tool_async() -> None:
            raise outlast.StopRun("hm")

        @workflow(name="flow")
        async def flow() -> None:
            await tool_async()

    with pytest.raises(outlast.RunFailed, match="raised StopRun"):
        outlast.run(flow, run_id="r", store=url)
