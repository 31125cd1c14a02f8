"""What a replay says where the record ends is what a resume then does."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest

import outlast
from outlast import step, workflow
from outlast.testing import Misfit, Replayed, replay
from tests.engine.tools import PATIENT, dying_at

RAN: list[str] = []


@step
def plain(n: int) -> int:
    RAN.append(f"plain {n}")
    return n


@step
async def work(n: int) -> int:
    RAN.append(f"work {n}")
    await asyncio.sleep(0)
    return n


@step
async def hang() -> int:
    await asyncio.Event().wait()
    return 0


def record(flow: Any, url: str, until: str, after: bool = True) -> None:
    """Run a workflow until an attempt of this key is opened. With `after` it was under way when the
    process died, else it had not begun."""
    with dying_at(url, kind="step.started", key=until, after=after) as died:
        with pytest.raises(outlast.StoreError):
            outlast.run(flow, run_id="r", store=url, settings=PATIENT)
        assert died()


def verdict(flow: Any, url: str) -> Replayed | Misfit:
    before = list(RAN)
    try:
        return replay("r", flow, store=url)
    except Misfit as misfit:
        return misfit
    finally:
        assert before == RAN


def fits(flow: Any, url: str) -> None:
    told = verdict(flow, url)
    assert isinstance(told, Replayed), told
    assert told.calls == told.recorded


def misfit(flow: Any, url: str) -> Misfit:
    told = verdict(flow, url)
    assert isinstance(told, Misfit), told
    return told


def resumed(flow: Any, url: str) -> str:
    """How a resume ends: the reason of a hold, or nothing."""
    try:
        outlast.run(flow, run_id="r", store=url)
    except outlast.RunHeld as held:
        return held.reason
    return ""


# ---- a call that a task no longer makes, and another one at the end of the record


def _desk(audits: bool, colour: str, limit: float | None) -> Any:
    async def prepare(n: int) -> None:
        if audits:
            await work(n)

    async def desk() -> int:
        await asyncio.gather(prepare(1), prepare(2))
        async with asyncio.timeout(limit):
            return plain(3) if colour == "plain" else await work(3)

    return workflow(desk)


@pytest.mark.parametrize("after", [True, False], ids=["under way", "not begun"])
@pytest.mark.parametrize("limit", [None, 30], ids=["", "with a time-out"])
@pytest.mark.parametrize(("colour", "key"), [("plain", "plain#0"), ("async", "work#0")])
def test_a_call_that_a_task_no_longer_makes_is_missed(
    colour: str, key: str, limit: float | None, after: bool, url: str
) -> None:
    record(_desk(True, colour, limit), url, key, after)
    fits(_desk(True, colour, limit), url)
    told = misfit(_desk(False, colour, limit), url)
    assert told.reason == "diverged"
    assert "2 recorded calls, the first is work#s0.0" in told.detail
    assert key in told.detail
    assert resumed(_desk(False, colour, limit), url) == "diverged"


@pytest.mark.parametrize("calls", [1, 3])
def test_what_may_still_be_asked_for_is_not_decided(calls: int, url: str) -> None:
    """After a call that is not recorded the code may go on to what is, or not."""

    def flow(more: bool, ends: bool = False) -> Any:
        async def first(n: int) -> None:
            await work(n)
            for again in range(calls * more):
                await work(10 + again)

        async def flow() -> None:
            await asyncio.gather(first(1), first(2))
            if not ends:
                await asyncio.gather(first(3))

        return workflow(name="flow")(flow)

    record(flow(False), url, "work#s2.0")
    fits(flow(False), url)
    for ends in (False, True):
        told = misfit(flow(True, ends), url)
        assert told.reason == "undecided"
        assert "1 recorded call, the first is work#s2.0" in told.detail
    assert resumed(flow(True), url) == ""


# ---- code that has not changed


async def _model(n: int, seconds: float = 30) -> int:
    """A model call with a time-out, and up to two more tries."""
    for _ in range(3):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await work(n)
    return -1


async def _agent() -> list[int]:
    replies = await asyncio.gather(*(_model(n) for n in range(3)))
    async with asyncio.timeout(600), asyncio.TaskGroup() as group:
        tools = [group.create_task(_tool(n)) for n in replies]
        replies.append(plain(20))
    return [*replies, *(tool.result() for tool in tools)]


async def _tool(n: int) -> int:
    await asyncio.sleep(0.001 * n)
    return await work(n + 10) + plain(n + 10)


async def _race() -> int:
    tasks = [asyncio.create_task(_model(1)), asyncio.create_task(hang())]
    done, left = await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    return await work(10 + min(task.result() for task in done))


async def _beating() -> int:
    async def beat() -> None:
        for n in range(3):
            plain(n)
            await asyncio.sleep(0.001)

    beats = asyncio.create_task(beat())
    try:
        return await asyncio.wait_for(_model(1, 5), 10) + await _model(2)
    finally:
        await beats


async def _turning() -> object:
    async for turn in outlast.turns(seen=[], max=3):
        async with asyncio.timeout(60):
            turn.seen += await asyncio.gather(*(_tool(n) for n in range(2)))
            turn.seen.append(plain(len(turn.seen)))
    return turn.seen


PROGRAMS = [_agent, _race, _beating, _turning]


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_has_not_changed_fits_wherever_it_was_cut_off(
    program: Callable[[], Any], after: bool, url: str
) -> None:
    flow = workflow(cast(Any, program))
    for cut in range(2, 60):
        with dying_at(url, cut, after=after) as died, contextlib.suppress(outlast.StoreError):
            outlast.run(flow, run_id=f"r{cut}", store=url, settings=PATIENT)
        told = replay(f"r{cut}", flow, store=url)
        assert told.calls == told.recorded
        if not died():
            return
    pytest.fail("it never ended")


def test_a_time_out_does_not_strike_since_another_task_is_still_asleep(url: str) -> None:
    """Its step began after the other task had begun to sleep. Here both begin at once."""

    def flow(nap: float) -> Any:
        async def asleep() -> None:
            await asyncio.sleep(nap)
            await work(2)

        async def limited() -> int:
            await work(1)
            async with asyncio.timeout(30):
                return await hang()

        async def flow() -> None:
            await asyncio.gather(limited(), asleep())

        return workflow(name="flow")(flow)

    record(flow(0.05), url, "work#s1.0")
    fits(flow(60), url)


def test_a_task_that_is_waited_for_with_a_limit_may_leave_it_undecided(url: str) -> None:
    """Whether the call or the limit comes first is known to a resume alone."""

    def flow(nap: float, limit: float) -> Any:
        async def asleep() -> None:
            await asyncio.sleep(nap)
            await work(1)

        async def flow() -> None:
            task = asyncio.create_task(hang())
            other = asyncio.create_task(asleep())
            await asyncio.wait({task, other}, timeout=limit)

        return workflow(name="flow")(flow)

    record(flow(0.05, 60), url, "work#s1.0")
    fits(flow(30, 60), url)
    told = misfit(flow(60, 30), url)
    assert told.reason == "undecided"
    assert "work#s1.0" in told.detail


@pytest.mark.parametrize("naps", [True, False])
@pytest.mark.parametrize("tasks", [3, 200])
def test_plain_calls_that_stand_still_do_so_one_within_the_other(
    tasks: int, naps: bool, url: str
) -> None:
    async def branch(n: int) -> int:
        if naps:
            await asyncio.sleep(0.0001 * (tasks - n))
        return plain(n) + await work(n) + plain(n + 1)

    async def flow() -> list[int]:
        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(branch(n)) for n in range(tasks)]
            plain(-1)
        return [done.result() for done in branches]

    made = workflow(flow)
    for run_id, until in (("a", "plain#0"), ("b", "plain#s1.0"), ("c", f"plain#s{tasks // 2}.2")):
        with dying_at(url, kind="step.started", key=until, after=True) as died:
            with pytest.raises(outlast.StoreError):
                outlast.run(made, run_id=run_id, store=url, settings=PATIENT)
            assert died()
        told = replay(run_id, made, store=url)
        assert told.calls == told.recorded


def test_a_plain_call_that_stands_still_lets_its_process_finish_otherwise(url: str) -> None:
    """The others find their loop, their task and their context as always."""
    seen: list[bool] = []

    async def other() -> None:
        for _ in range(3):
            await asyncio.sleep(0.001)
            async with asyncio.timeout(60):
                await asyncio.to_thread(int)
            task = asyncio.current_task()
            seen.append(task is not None and task.get_name() == "other")
        await work(1)

    async def flow() -> None:
        task = asyncio.create_task(other(), name="other")
        await asyncio.sleep(0.1)
        plain(1)
        await task

    made = workflow(flow)
    record(made, url, "plain#0")
    seen.clear()
    fits(made, url)
    assert seen == [True] * 3


def test_a_canceller_that_insists_comes_to_an_end(url: str) -> None:
    async def insisting() -> None:
        task = asyncio.create_task(hang())
        await work(1)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        await work(2)

    flow = workflow(insisting)
    with dying_at(url, kind="step.abandoned") as died:
        with pytest.raises(outlast.StoreError):
            outlast.run(flow, run_id="r", store=url, settings=PATIENT)
        assert died()
    fits(flow, url)
