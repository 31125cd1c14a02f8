"""A step's key depends on the program alone: not on timing, not on the event loop."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
import uvloop

import outlast
from outlast import step, workflow
from tests.engine.tools import keymap

DELAY = random.Random(7)


async def _linger() -> None:
    """Some loop passes, or some real time."""
    if DELAY.random() < 0.5:
        await asyncio.sleep(DELAY.random() * 0.004)
    else:
        for _ in range(DELAY.randrange(12)):
            await asyncio.sleep(0)


@step
async def a(what: str) -> str:
    await _linger()
    return what


@step
async def b(what: str) -> str:
    await _linger()
    # Tasks inside a body are the body's own business: they take no number.
    inner = [asyncio.create_task(_linger()) for _ in range(DELAY.randrange(3))]
    await asyncio.gather(*inner)
    return what


@step
def plain(what: str) -> str:
    return what


async def _tool(name: str) -> str:
    await a(f"{name} first")
    return await b(f"{name} second")


async def _nested(depth: int, name: str) -> None:
    await a(f"{name} down")
    if depth:
        await asyncio.gather(*(_nested(depth - 1, f"{name}.{n}") for n in range(2)))
    await b(f"{name} up")


async def gathers() -> None:
    await asyncio.gather(a("x"), b("y"), _tool("one"), a("z"), _tool("two"))


async def task_groups() -> None:
    async with asyncio.TaskGroup() as group:
        for name in ("one", "two"):
            group.create_task(_tool(name))
        async with asyncio.TaskGroup() as inner:
            inner.create_task(a("x"))
            inner.create_task(_tool("three"))
        group.create_task(b("late"))


async def anyio_groups() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_tool, "one")
        group.start_soon(_nested, 1, "n")
        await a("x")
        group.start_soon(_tool, "two")


async def nested_tasks() -> None:
    task = asyncio.create_task(_nested(2, "n"))
    await _tool("beside")
    await task


async def time_outs() -> None:
    await asyncio.wait_for(a("x"), 5)
    await asyncio.wait_for(_tool("one"), 5)
    async with asyncio.timeout(5):
        await b("y")
    with anyio.fail_after(5):
        await b("z")
    await asyncio.shield(_tool("two"))


async def completion_order() -> None:
    tasks = [asyncio.create_task(_tool(str(n))) for n in range(4)]
    for done in asyncio.as_completed(tasks):
        await done
    calls = [a("x"), b("y"), a("z")]
    for done in asyncio.as_completed(calls):
        await done


async def queue_workers() -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    for n in range(6):
        queue.put_nowait(str(n))

    async def worker(name: str) -> None:
        # Which item a worker gets depends on timing, so the item is no argument of a step here.
        while not queue.empty():
            queue.get_nowait()
            break
        await _tool(name)

    await asyncio.gather(*(worker(f"w{n}") for n in range(3)))


async def threads() -> None:
    await asyncio.gather(asyncio.to_thread(plain, "x"), asyncio.to_thread(plain, "y"))
    plain("z")


async def turns() -> None:
    async for turn in outlast.turns(seen=0, max=3):
        turn.seen += 1
        await asyncio.gather(_tool(f"{turn.seen} a"), _tool(f"{turn.seen} b"))
        await a(f"{turn.seen} end")
    await b("behind")


async def everything() -> None:
    await asyncio.gather(gathers(), task_groups(), nested_tasks(), completion_order(), time_outs())


PROGRAMS = [
    gathers, task_groups, anyio_groups, nested_tasks, time_outs, completion_order, queue_workers,
    threads, turns, everything,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_keys_are_the_same_whatever_the_delays_and_the_loop(
    program: Callable[[], Coroutine[Any, Any, None]], url: str
) -> None:
    flow = workflow(program)
    outlast.run(flow, run_id="first", store=url)
    first = keymap(url, "first")
    assert first
    assert len({key for key, _ in first}) == len(first)
    for number in range(8):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if number % 2 else None) as runner:
            runner.run(outlast.execute(flow, run_id=f"{number}", store=url))
        assert keymap(url, f"{number}") == first


def test_a_task_factory_of_the_user_is_still_called(url: str) -> None:
    made = []

    def factory(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **more: Any
    ) -> "asyncio.Task[Any]":
        made.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop, **more)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        await outlast.execute(workflow(gathers), run_id="r", store=url)
        await outlast.execute(workflow(gathers), run_id="again", store=url)

    outlast.run(workflow(gathers), run_id="plain", store=url)
    asyncio.run(main())
    assert made.count("_tool") == 4  # once a task, also when outlast came a second time
    assert keymap(url) == keymap(url, "again") == keymap(url, "plain")


def test_tasks_outside_a_run_are_left_alone(url: str) -> None:
    async def main() -> str:
        await outlast.execute(workflow(gathers), run_id="r", store=url)
        return await asyncio.create_task(_tool("outside"))

    assert asyncio.run(main()) == "outside second"
    assert not any("outside" in shown for _, shown in keymap(url))


def test_two_runs_in_one_loop_number_their_tasks_apart(url: str) -> None:
    async def main() -> None:
        await asyncio.gather(
            *(outlast.execute(workflow(nested_tasks), run_id=n, store=url) for n in "rst")
        )

    asyncio.run(main())
    assert keymap(url, "r") == keymap(url, "s") == keymap(url, "t")


def test_as_completed_over_coroutines_is_refused_since_it_starts_them_in_any_order(
    url: str,
) -> None:
    @workflow
    async def flow() -> None:
        calls = [_tool("one"), _tool("two")]
        try:
            for done in asyncio.as_completed(calls):
                await done
        finally:
            for call in calls:
                call.close()

    for number, loop in enumerate((None, uvloop.new_event_loop)):
        with asyncio.Runner(loop_factory=loop) as runner:
            run = outlast.execute(flow, run_id=str(number), store=url)
            with pytest.raises(outlast.RunFailed, match=r"use outlast\.as_completed"):
                runner.run(run)


def test_a_step_takes_its_key_when_it_is_called_not_when_it_is_awaited(url: str) -> None:
    @workflow
    async def backwards() -> None:
        first, second = a("first"), a("second")
        await second
        await first

    outlast.run(backwards, run_id="r", store=url)
    assert keymap(url) == {("a#0", "what='first'"), ("a#1", "what='second'")}


def test_draws_shift_no_key(url: str) -> None:
    @workflow
    def drawing() -> None:
        outlast.uuid4()
        plain("x")
        outlast.random()
        plain("y")

    outlast.run(drawing, run_id="r", store=url)
    assert {key for key, _ in keymap(url)} == {"plain#0", "plain#1"}
