"""Code that wants to leave the process, or that ends it, in a process which executes other runs."""

import asyncio
import logging
import sys
from collections.abc import Callable

import pytest

import outlast
from outlast.events import RunClaimed, StepInterrupted
from outlast.worker import pool
from outlast.worker.stores import get_store
from tests.ownership.children import events, until
from tests.serving.programs import desk
from tests.serving.stage import Stage


class Fatal(BaseException):
    """Neither an error of a step nor anything that outlast knows."""


def leave(how: type[BaseException]) -> None:
    raise how


def workflows(how: type[BaseException]) -> dict[str, Callable[[], object]]:
    """Ways for code of a run to raise something that is no error, by name."""

    @outlast.step
    async def tool() -> None:
        leave(how)

    @outlast.step(timeout=30)
    async def timed() -> None:
        leave(how)

    @outlast.step
    def plain_tool() -> None:
        leave(how)

    @outlast.workflow(name="leaver")
    async def by_itself() -> None:
        leave(how)

    @outlast.workflow(name="leaver")
    async def in_a_step() -> None:
        await tool()

    @outlast.workflow(name="leaver")
    async def in_a_task() -> None:
        await asyncio.gather(tool(), asyncio.sleep(0))

    @outlast.workflow(name="leaver")
    async def within_a_timeout() -> None:
        await timed()

    @outlast.workflow(name="leaver")
    async def in_a_thread() -> None:
        await asyncio.to_thread(plain_tool)

    @outlast.workflow(name="child")
    async def child() -> None:
        await tool()

    @outlast.workflow(name="leaver")
    async def in_a_child() -> None:
        await asyncio.gather(child(), asyncio.sleep(0))

    @outlast.workflow(name="leaver")
    def plain() -> None:
        plain_tool()

    found = (by_itself, in_a_step, in_a_task, within_a_timeout, in_a_thread, in_a_child, plain)
    return {fn.__name__: fn for fn in found}


@pytest.mark.parametrize("where", list(workflows(Fatal)))
@pytest.mark.parametrize("how", [SystemExit, Fatal])
def test_code_that_wants_to_leave_ends_neither_the_loop_nor_other_runs(
    stage: Stage, how: type[BaseException], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    leaver = workflows(how)[where]

    async def main() -> None:
        async with outlast.serving(leaver, desk.gated, store=stage.url):
            other = await outlast.start(desk.gated, "o", run_id="o", store=stage.url)
            await asyncio.to_thread(stage.at_gate, "o")
            await outlast.start(leaver, run_id="l", store=stage.url)
            told = "run l could not go on"
            await asyncio.to_thread(until, lambda: told in caplog.text, "the word about it")
            stage.open("o")
            assert (await other.result(timeout=30)).startswith("o by ")

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert stage.client.run("l").status == "queued"
    assert stage.kinds("l").count("run.claimed") <= 2, "it is left alone for a while"


def test_a_thread_that_serves_goes_on_whatever_breaks_its_loop_off(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    @outlast.workflow
    async def leaver() -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)  # nothing of it is ours
        await asyncio.sleep(0)

    outlast.submit(leaver, run_id="l", store=stage.url)
    with outlast.serving(leaver, desk.quick, store=stage.url):
        until(lambda: "SystemExit(3)" in caplog.text, "the word about it")
        handle = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
        assert handle.result(timeout=30).result() == "a-2"


def test_a_step_that_always_leaves_is_not_tried_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "RESTS", (0.01, 0.1))
    handle = outlast.submit(workflows(SystemExit)["in_a_step"], run_id="l", store=stage.url)
    settings = outlast.Settings(max_crashes=2)
    leaver = workflows(SystemExit)["in_a_step"]
    with (
        outlast.serving(leaver, store=stage.url, settings=settings),
        pytest.raises(outlast.RunHeld, match="crash-loop"),
    ):
        handle.result(timeout=30).result()
    cuts = events(stage.stored("l"), "step.interrupted")
    assert [cut.crash for cut in cuts if isinstance(cut, StepInterrupted)] == [True, True]


def test_of_runs_whose_process_died_twice_one_goes_on_after_the_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may be what kills it; the others are not to be held for that."""
    for name in "ab":
        outlast.submit(desk.gated, name, run_id=name, store=stage.url)
    for _ in range(2):
        die_at_gates(stage, "ab")
    outlast.submit(desk.quick, "new", run_id="new", store=stage.url)
    monkeypatch.setattr(pool, "SEARCH", 0.01)
    with outlast.serving(desk.gated, desk.quick, store=stage.url):
        outlast.Handle("new", stage.url).result(timeout=30).result()
        until(lambda: taken(stage, "a") + taken(stage, "b") == 5, "one of them to go on")
        first, second = ("a", "b") if taken(stage, "a") == 3 else ("b", "a")
        for n in range(2):
            outlast.submit(desk.quick, "x", run_id=f"x{n}", store=stage.url)
            outlast.Handle(f"x{n}", stage.url).result(timeout=30).result()
        assert taken(stage, second) == 2
        stage.open(first)
        until(lambda: taken(stage, second) == 3, "the other one to go on")
        stage.open(second)
        outlast.Handle(second, stage.url).result(timeout=30).result()


def die_at_gates(stage: Stage, names: str) -> None:
    """A process that serves comes with its runs to their gates, and is killed."""
    process = stage.serve()
    until(
        lambda: all(["gate", name, str(process.pid)] in stage.log for name in names),
        "all runs to be at their gates",
    )
    process.kill()
    process.wait()


def taken(stage: Stage, run_id: str) -> int:
    """How often a run was taken up."""
    claims = events(stage.stored(run_id), "run.claimed")
    return len([claim for claim in claims if isinstance(claim, RunClaimed)])


def test_a_pool_goes_on_in_the_file_that_stands_in_place_of_a_deleted_one(stage: Stage) -> None:
    with outlast.serving(desk.quick, store=stage.url):
        first = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
        first.result(timeout=30).result()
        for file in stage.folder.glob("store.db*"):
            file.unlink()
        handle = outlast.submit(desk.quick, "b", run_id="b", store=stage.url)
        assert handle.result(timeout=30).result() == "b-2"
    assert get_store(stage.url).store.read("list_ending") == []
