"""Ctrl-C, SIGTERM and cancellation give a run back: not failed, not crashed, resumable at once."""

import asyncio
import signal
import threading

import pytest

import outlast
from outlast.events import StepInterrupted
from outlast.leases import Claim, Claimed, Refused
from outlast.store.base import Tx
from tests.ownership.children import events, until
from tests.ownership.gated import Gated

COLOURS = ["async", "plain"]


def assert_released(gated: Gated) -> None:
    view = gated.client.run("r")
    assert (view.status, view.interrupted) == ("queued", False)
    assert "run.failed" not in gated.kinds
    assert gated.client._row("r").owner is None
    interrupted = events(gated.client.journal("r"), "step.interrupted")
    assert not any(i.crash for i in interrupted if isinstance(i, StepInterrupted))


@pytest.mark.parametrize("colour", COLOURS)
def test_ctrl_c_releases_the_run(gated: Gated, colour: str) -> None:
    child = gated.start_in_body(colour=colour, grace=0.1)
    child.send(signal.SIGINT)
    assert child.end()["error"] == "KeyboardInterrupt"
    assert_released(gated)
    assert gated.kinds[-1] == "run.released"
    gated.open_gate()
    assert gated.start(colour=colour).end()["result"]
    assert not any(c.crash for c in events(gated.client.journal("r"), "run.claimed"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_signal_lets_the_open_step_end_and_records_it(
    gated: Gated, colour: str, number: signal.Signals
) -> None:
    child = gated.start_in_body(colour=colour, grace=20.0)
    child.send(number)
    # While the step still runs, nobody else may have the run.
    assert gated.start().end()["error"] == "RunOwned"
    gated.open_gate()
    said = child.end()
    assert said["error"] == ("SystemExit" if number == signal.SIGTERM else "KeyboardInterrupt")
    assert said["error"] != "SystemExit" or said["code"] == 143
    assert_released(gated)
    assert gated.executed == ["first", "middle"]
    assert gated.start(colour=colour).end()["result"] == ["one", f"middle by {child.pid}", "three"]
    assert gated.executed == ["first", "middle", "last"], "the step's result was recorded"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("body", ["polls", "sleeps"])
def test_sigterm_ends_a_step_that_outlasts_the_grace(gated: Gated, colour: str, body: str) -> None:
    # A body in one long sleep must be interrupted there: no byte code runs in it meanwhile.
    sleep = {"sleep": 3600.0} if body == "sleeps" else {}
    child = gated.start_in_body(colour=colour, grace=0.3, **sleep)
    child.send(signal.SIGTERM)
    assert child.end()["code"] == 143
    assert_released(gated)
    gated.open_gate()
    assert gated.start(colour=colour).end()["result"]
    assert gated.executed == ["first", "middle", "middle", "last"]


def test_a_second_sigterm_ends_the_grace(gated: Gated) -> None:
    child = gated.start_in_body(colour="plain", grace=3600.0)
    child.send(signal.SIGTERM)
    until(lambda: gated.start().end()["error"] == "RunOwned", "the first one to be handled")
    child.send(signal.SIGTERM)
    assert child.end()["code"] == 143
    assert_released(gated)


def test_a_once_step_cut_off_by_sigterm_is_in_doubt_not_repeated(gated: Gated) -> None:
    child = gated.start_in_body(effect="once", grace=0.2)
    child.send(signal.SIGTERM)
    assert child.end()["code"] == 143
    gated.open_gate()
    said = gated.start(effect="once").end()
    assert (said["error"], gated.client.run("r").reason) == ("RunHeld", "in-doubt")
    assert gated.executed == ["first", "middle"]


def test_rolling_restarts_are_not_a_crash_loop(gated: Gated) -> None:
    for _ in range(3):
        child = gated.start_in_body(max_crashes=2, grace=0.1)
        child.send(signal.SIGTERM)
        assert child.end()["code"] == 143
    gated.open_gate()
    assert gated.start(max_crashes=2).end()["result"]


def test_a_cancelled_execute_releases_the_run(url: str) -> None:
    cleaned: list[str] = []
    cut: list[bool] = []

    @outlast.step
    async def forever() -> str:
        cut.append(False)
        if len(cut) > 1:
            return "done"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut[0] = True
            raise
        return "never"

    @outlast.step
    async def cleanup() -> None:
        cleaned.append("ran")

    @outlast.workflow
    async def work() -> str:
        try:
            return await forever()
        finally:
            if cut[-1]:
                await cleanup()

    async def main() -> None:
        task = asyncio.create_task(outlast.execute(work, run_id="r", store=url))
        while not cut:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        view = outlast.Client(url).run("r")
        assert (view.status, view.reason) == ("queued", "released: cancelled")
        assert cut == [True]
        assert cleaned == [], "an unwinding workflow runs no further step"
        assert await outlast.execute(work, run_id="r", store=url) == "done"

    asyncio.run(main())


def test_an_execute_that_is_cancelled_while_it_claims_releases_the_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A commit cannot be withdrawn: the claim is in the store when the cancellation is noticed.
    executed: list[int] = []

    @outlast.step
    async def act() -> str:
        executed.append(1)
        return "done"

    @outlast.workflow
    async def work() -> str:
        return await act()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        apply = Claim.apply

        def cancelling(self: Claim, tx: Tx) -> Claimed | Refused:
            loop.call_soon_threadsafe(task.cancel)
            return apply(self, tx)

        monkeypatch.setattr(Claim, "apply", cancelling)
        task = asyncio.create_task(outlast.execute(work, run_id="r", store=url))
        with pytest.raises(asyncio.CancelledError):
            await task
        monkeypatch.setattr(Claim, "apply", apply)
        client = outlast.Client(url)
        assert executed == []
        assert (client.run("r").status, client._row("r").owner) == ("queued", None)
        assert await outlast.execute(work, run_id="r", store=url) == "done"

    asyncio.run(main())


def test_a_cancelled_execute_of_a_plain_workflow_releases_the_run(url: str) -> None:
    # Its thread cannot be interrupted: the open step ends, is recorded, and nothing else begins.
    inside, go = threading.Event(), threading.Event()
    executed: list[str] = []

    @outlast.step
    def first() -> str:
        executed.append("first")
        inside.set()
        assert go.wait(20)
        return "one"

    @outlast.step
    def last() -> str:
        executed.append("last")
        return "two"

    @outlast.workflow
    def work() -> list[str]:
        return [first(), last()]

    async def main() -> None:
        task = asyncio.create_task(outlast.execute(work, run_id="r", store=url))
        await asyncio.to_thread(inside.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert executed == ["first"]
        view = outlast.Client(url).run("r")
        assert (view.status, view.reason) == ("queued", "released: cancelled")
        assert await outlast.execute(work, run_id="r", store=url) == ["one", "two"]
        assert executed == ["first", "last"]

    asyncio.run(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("colour", COLOURS)
def test_an_interrupt_that_a_body_raises_passes_through(
    url: str, colour: str, interrupt: type[BaseException]
) -> None:
    calls: list[int] = []

    def body() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise interrupt
        return "done"

    @outlast.step
    def plain_step() -> str:
        return body()

    @outlast.step
    async def async_step() -> str:
        return body()

    @outlast.workflow(name="work")
    def plain() -> str:
        return plain_step()

    @outlast.workflow(name="work")
    async def asynchronous() -> str:
        return await async_step()

    def start() -> object:
        if colour == "plain":
            return outlast.run(plain, run_id="r", store=url)
        return outlast.run(asynchronous, run_id="r", store=url)

    with pytest.raises(interrupt):
        start()
    view = outlast.Client(url).run("r")
    assert (view.status, view.steps[0].status) == ("queued", "interrupted")
    assert start() == "done"
    assert outlast.Client(url).run("r").steps[0].attempts == 2
