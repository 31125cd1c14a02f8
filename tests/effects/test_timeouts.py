"""`timeout=`: the waiting ends on time. An asynchronous body is cancelled; a plain one lives on,
and while it may do something no further attempt opens."""

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

import outlast
from outlast import Retry, Settings
from tests.effects.colours import COLOURS, Colour
from tests.effects.stage import Stage

NO_WAIT = Retry(attempts=3, initial=0)
SHORT = 0.05


def test_waiting_for_a_plain_body_ends_on_time(stage: Stage) -> None:
    may_end = threading.Event()

    @outlast.step(timeout=SHORT, retry=Retry(attempts=1))
    def act() -> None:
        may_end.wait(20)

    @outlast.workflow
    def flow() -> str:
        start = time.monotonic()
        try:
            act()
        except outlast.StepTimeout as late:
            return str(late) if time.monotonic() - start < 10 else "much too late"
        return "unexpected"

    try:
        assert (
            outlast.run(flow, run_id="run", store=stage.url) == "step act#0 took longer than 0.05 s"
        )
    finally:
        may_end.set()
    assert stage.step("act#0").status == "failed"
    assert stage.step("act#0").fault == "transient"


def test_a_plain_body_that_is_fast_enough_behaves_as_without(stage: Stage) -> None:
    @outlast.step(timeout=30)
    def act(value: int) -> list[Any]:
        if value < 0:
            raise ValueError(value)
        now = outlast.current()
        return [value, now.step, now.attempt, now.deadline is not None]

    @outlast.workflow
    def flow() -> list[Any]:
        try:
            act(-1)
        except ValueError as exc:
            return [*act(2), exc.args]
        return []

    assert outlast.run(flow, store=stage.url) == [2, "act#1", 1, True, (-1,)]


def test_an_asynchronous_body_is_cancelled_on_time(stage: Stage) -> None:
    ends: list[str] = []

    @outlast.step(timeout=SHORT, retry=NO_WAIT)
    async def act() -> str:
        try:
            await asyncio.sleep(0 if len(ends) == 2 else 60)
            return "in time"
        finally:
            ends.append("ended")

    @outlast.workflow
    async def flow() -> str:
        return await act()

    assert outlast.run(flow, run_id="run", store=stage.url) == "in time"
    assert len(ends) == 3
    assert stage.step("act#0").attempts == 3


def test_a_body_that_finishes_while_it_is_cancelled_is_done(stage: Stage) -> None:
    @outlast.step(effect="once", timeout=SHORT)
    async def act() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "sent after all"
        return "unexpected"

    @outlast.workflow
    async def flow() -> str:
        return await act()

    assert outlast.run(flow, store=stage.url) == "sent after all"


def test_a_timeout_of_the_bodys_own_is_not_the_steps(stage: Stage) -> None:
    @outlast.step(timeout=30, retry=Retry(attempts=1))
    async def act() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(60)

    @outlast.workflow
    async def flow() -> str:
        try:
            await act()
        except outlast.StepTimeout:
            return "the step's"
        except TimeoutError:
            return "its own"
        return "unexpected"

    assert outlast.run(flow, store=stage.url) == "its own"


@pytest.mark.parametrize("colour", COLOURS)
def test_the_next_attempt_waits_for_the_body_before_it(stage: Stage, colour: Colour) -> None:
    lock = threading.Lock()
    may_end = threading.Event()
    log: list[str] = []

    @outlast.step(timeout=SHORT, retry=NO_WAIT)
    def act() -> str:
        attempt = outlast.current().attempt
        assert lock.acquire(blocking=False), "two bodies at once"
        try:
            log.append(f"{attempt} begins")
            if attempt == 1:
                may_end.wait(20)
            log.append(f"{attempt} ends")
        finally:
            lock.release()
        return "done"

    if colour == "sync":

        @outlast.workflow
        def flow() -> str:
            return act()
    else:

        @outlast.workflow(name="flow")
        async def flow() -> str:
            return await asyncio.to_thread(act)

    def let_it_end() -> None:
        while "step.failed" not in (stage.kinds() if stage.client().runs() else []):
            if may_end.wait(0.005):
                return
        may_end.wait(0.1)  # what would start wrongly has time to do so
        may_end.set()

    helper = threading.Thread(target=let_it_end)
    helper.start()
    try:
        assert outlast.run(flow, run_id="run", store=stage.url) == "done"
    finally:
        may_end.set()
        helper.join()
    assert log == ["1 begins", "1 ends", "2 begins", "2 ends"]


def test_another_step_waits_for_it_too(stage: Stage) -> None:
    """Whatever comes next may depend on what the body still does."""
    may_end = threading.Event()
    ended: list[bool] = []

    @outlast.step(timeout=SHORT, retry=Retry(attempts=1))
    def slow() -> None:
        may_end.wait(20)
        ended.append(True)

    @outlast.step
    def other() -> bool:
        return bool(ended)

    @outlast.workflow
    def flow() -> bool:
        try:
            slow()
        except outlast.StepTimeout:
            threading.Timer(0.05, may_end.set).start()
        return other()

    assert outlast.run(flow, store=stage.url) is True


@pytest.mark.parametrize("colour", COLOURS)
def test_past_the_grace_period_the_run_is_held_as_stuck(stage: Stage, colour: Colour) -> None:
    may_end = threading.Event()
    begun: list[int] = []

    @outlast.step(timeout=SHORT, retry=NO_WAIT)
    def act() -> str:
        begun.append(1)
        may_end.wait(20)
        return "done"

    if colour == "sync":

        @outlast.workflow
        def flow() -> str:
            return act()
    else:

        @outlast.workflow(name="flow")
        async def flow() -> str:
            return await asyncio.to_thread(act)

    def start() -> object:
        return outlast.run(flow, run_id="run", store=stage.url, settings=Settings(grace=SHORT))

    try:
        with pytest.raises(outlast.RunHeld) as held:
            start()
        assert held.value.reason == "stuck"
        assert "act#0" in held.value.detail
        # A further start does not lift the hold: the body may still be at work.
        with pytest.raises(outlast.RunHeld, match="stuck"):
            start()
    finally:
        may_end.set()
    assert begun == [1]
    assert stage.client().run("run").status == "held"


@pytest.mark.parametrize("colour", COLOURS)
def test_a_once_step_that_times_out_is_in_doubt(stage: Stage, colour: Colour) -> None:
    may_end = threading.Event()
    begun: list[int] = []

    if colour == "sync":

        @outlast.step(effect="once", timeout=SHORT, retry=NO_WAIT)
        def act() -> None:
            begun.append(1)
            may_end.wait(20)

        @outlast.workflow
        def flow() -> None:
            act()
    else:

        @outlast.step(name="act", effect="once", timeout=SHORT, retry=NO_WAIT)
        async def act_async() -> None:
            begun.append(1)
            await asyncio.sleep(60)

        @outlast.workflow(name="flow")
        async def flow() -> None:
            await act_async()

    settings = outlast.Settings(grace=0.1)
    try:
        with pytest.raises(outlast.RunHeld) as held:
            outlast.run(flow, run_id="run", store=stage.url, settings=settings)
    finally:
        may_end.set()
    # A plain body may still be at work, so that nobody may decide about it yet.
    assert held.value.reason == ("stuck" if colour == "sync" else "in-doubt")
    assert stage.step("act#0").status == "in-doubt"
    assert stage.step("act#0").attempts == 1
    assert begun == [1]


@pytest.mark.parametrize("late", ["value", "not done"])
def test_a_late_result_settles_the_doubt(stage: Stage, late: str) -> None:
    may_end = threading.Event()
    begun: list[int] = []

    @outlast.step(effect="once", timeout=SHORT, retry=NO_WAIT)
    def act() -> str:
        begun.append(1)
        if len(begun) > 1:
            return "second"
        may_end.wait(20)
        if late == "not done":
            raise ConnectionRefusedError("nobody there")
        return "first"

    @outlast.workflow
    def flow() -> str:
        return act()

    helper = threading.Thread(target=stage.when, args=("step.in_doubt", may_end.set))
    helper.start()
    try:
        result = outlast.run(flow, run_id="run", store=stage.url)
    finally:
        may_end.set()
        helper.join()
    assert (result, len(begun)) == (("first", 1) if late == "value" else ("second", 2))
    assert stage.step("act#0").reconciled == (
        f"{'done' if late == 'value' else 'not-done'}: the result came late"
    )


def test_a_result_that_comes_after_the_run_was_given_up_settles_the_doubt_later(
    stage: Stage,
) -> None:
    may_end = threading.Event()

    @outlast.step(effect="once", timeout=SHORT, retry=NO_WAIT)
    def act() -> str:
        may_end.wait(20)
        return "late"

    @outlast.workflow
    def flow() -> str:
        return act()

    settings = outlast.Settings(grace=0.1)
    try:
        with pytest.raises(outlast.RunHeld, match="stuck"):
            outlast.run(flow, run_id="run", store=stage.url, settings=settings)
    finally:
        may_end.set()
    stage.when("step.late", lambda: None)
    assert stage.resume(flow) == "late"


def test_a_plain_body_that_ends_the_process_does_so_with_a_timeout_too(stage: Stage) -> None:
    @outlast.step(timeout=30, retry=Retry(attempts=1))
    def act() -> None:
        raise SystemExit(3)

    @outlast.workflow
    def flow() -> str:
        act()
        return "unexpected"

    with pytest.raises(SystemExit, match="3"):
        outlast.run(flow, run_id="run", store=stage.url)
    assert stage.step("act#0").status == "interrupted"
    assert stage.client().run("run").status == "queued"


def test_many_steps_wait_for_one_body(stage: Stage) -> None:
    may_end = threading.Event()

    @outlast.step(timeout=SHORT, retry=Retry(attempts=1))
    def slow() -> None:
        may_end.wait(20)

    @outlast.step
    def other(number: int) -> int:
        return number

    @outlast.workflow
    async def flow() -> list[int]:
        try:
            await asyncio.to_thread(slow)
        except outlast.StepTimeout:
            threading.Timer(0.1, may_end.set).start()
        return await asyncio.gather(*(asyncio.to_thread(other, n) for n in range(4)))

    assert outlast.run(flow, store=stage.url) == [0, 1, 2, 3]


def test_a_body_that_swallows_its_cancellation_is_waited_for_in_bounds(stage: Stage) -> None:
    begun: list[int] = []
    seen: list[object] = []

    @outlast.step(timeout=SHORT, retry=NO_WAIT)
    async def act() -> None:
        begun.append(1)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append(outlast.current().step)

    @outlast.workflow
    async def flow() -> None:
        await act()

    with pytest.raises(outlast.RunHeld, match="act#0 still runs after its timeout"):
        outlast.run(flow, run_id="run", store=stage.url, settings=Settings(grace=SHORT))
    assert begun == [1]
    assert set(seen) == {"act#0"}
    assert stage.step("act#0").attempts == 1


def test_an_asynchronous_body_that_ends_late_settles_the_doubt(stage: Stage) -> None:
    """As a plain one does: it is asked how it ended before anybody else is."""
    may_end = asyncio.Event()

    @outlast.step(effect="once", timeout=SHORT, retry=NO_WAIT)
    async def act() -> str:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    @outlast.workflow
    async def flow() -> str:
        loop = asyncio.get_running_loop()
        helper = threading.Thread(
            target=stage.when,
            args=("step.in_doubt", lambda: loop.call_soon_threadsafe(may_end.set)),
        )
        helper.start()
        try:
            return await act()
        finally:
            helper.join()

    assert outlast.run(flow, store=stage.url, run_id="run", settings=Settings(grace=0.5)) == "late"
    assert stage.step("act#0").reconciled == "done: the result came late"


def test_context_variables_that_a_body_sets_reach_its_caller(stage: Stage) -> None:
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")

    @outlast.step(timeout=30)
    async def act() -> None:
        colour.set("blue")

    @outlast.workflow
    async def flow() -> list[object]:
        await act()
        return [colour.get(), outlast.current().step]

    assert outlast.run(flow, store=stage.url) == ["blue", None]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_late_answer_of_reconcile_is_no_result_of_the_step(stage: Stage, colour: Colour) -> None:
    may_end = threading.Event()

    @outlast.step(effect="once", timeout=SHORT, retry=NO_WAIT)
    def act() -> str:
        raise ConnectionResetError

    @act.reconcile
    def _() -> outlast.Outcome[str]:
        may_end.wait(20)
        return outlast.Done("answered")

    @outlast.workflow
    async def flow() -> str:
        return await asyncio.to_thread(act) if colour == "async" else act()

    with pytest.raises(outlast.RunHeld, match="in-doubt"):
        outlast.run(flow, run_id="run", store=stage.url, settings=Settings(grace=0.2))
    may_end.set()
    for thread in threading.enumerate():
        if thread.name == "outlast act#0":
            thread.join()
    assert "step.late" not in stage.kinds()
