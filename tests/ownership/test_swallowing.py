"""Code that swallows its cancellation holds up neither a signal nor the end of a run for ever."""

import asyncio
import signal
from pathlib import Path

import pytest

import outlast
from outlast.events import RunHeld
from outlast.worker.order import Order
from outlast.worker.supervisor import run_supervised
from tests.ownership.children import children, events, until

PROGRAM = Path(__file__).parent / "programs" / "swallowing.py"
SHORT = outlast.Settings(grace=0.1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.mark.parametrize("grace", [0.2, 1.0], ids=lambda grace: f"{grace} s")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_all_the_same(
    tmp_path: Path, url: str, number: signal.Signals, grace: float
) -> None:
    with children() as start:
        child = start(PROGRAM, {"folder": str(tmp_path), "store": url, "grace": grace})
        until((tmp_path / "begun").exists, "the body")
        child.send(number)
        # As a shell reports it, or as Python ends for a KeyboardInterrupt that nobody catches.
        assert child.end()["code"] in (128 + number, -number)
    view = outlast.Client(url).run("r")
    assert (view.status, view.reason, view.interrupted) == ("held", "stuck", False)
    assert view.detail is not None
    assert "stubborn#0 was cancelled and still runs" in view.detail
    assert view.steps[0].status == "interrupted"


def test_a_worker_ends_and_another_one_goes_on(tmp_path: Path, url: str) -> None:
    target, arguments = f"{PROGRAM}:work", f'["{tmp_path}", true]'
    order = Order(store=url, run_id="r", target=target, arguments=arguments, grace=0.1)
    assert run_supervised(order) == 0
    assert outlast.Client(url).run("r").result == "done"
    held = events(outlast.Client(url).journal("r"), "run.held")
    assert [e.reason for e in held if isinstance(e, RunHeld)] == ["stuck"]


@pytest.mark.parametrize("where", ["step", "timed step", "workflow", "task"])
def test_a_cancelled_execute_ends_and_holds_the_run(url: str, where: str) -> None:
    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def stubborn() -> str:
            begun.set()
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue
            return "late"

        plain = outlast.step(stubborn, name="act")
        timed = outlast.step(stubborn, name="act", timeout=60)

        @outlast.workflow
        async def flow() -> str:
            if where == "task":
                return await asyncio.shield(asyncio.create_task(plain()))
            return await {"step": plain, "timed step": timed}.get(where, stubborn)()

        task = asyncio.create_task(outlast.execute(flow, run_id="r", store=url, settings=SHORT))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        view = outlast.Client(url).run("r")
        assert (view.status, view.reason, view.interrupted) == ("held", "stuck", False)
        may_end.set()
        while outlast.Client(url).journal("r")[-1].kind == "run.held" and where != "workflow":
            await asyncio.sleep(0.005)  # what it did after all is kept

    asyncio.run(main())


def test_a_hold_ends_a_workflow_that_swallows_everything(url: str) -> None:
    @outlast.step(effect="once")
    async def pay() -> None:
        raise ConnectionResetError

    @outlast.workflow
    async def flow() -> None:
        while True:
            for act in (pay, lambda: asyncio.sleep(0.001)):
                try:
                    await act()
                except (outlast.StopRun, asyncio.CancelledError):
                    continue

    with pytest.raises(outlast.RunHeld, match="stuck"):
        outlast.run(flow, run_id="r", store=url, settings=SHORT)


def test_a_task_left_behind_does_not_keep_a_result_back(url: str) -> None:
    @outlast.step
    async def act() -> str:
        return "done"

    @outlast.workflow
    async def flow() -> str:
        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue

        left = asyncio.create_task(stubborn())
        result = await act()
        assert not left.done()
        return result

    assert outlast.run(flow, run_id="r", store=url, settings=SHORT) == "done"
