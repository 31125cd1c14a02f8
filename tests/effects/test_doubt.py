"""A `once` step whose outcome is unknown: never repeated on a guess, held or raised."""

import asyncio
import socket
import ssl
from typing import Any

import pytest

import outlast
from outlast import Retry
from tests.effects.colours import COLOURS, Colour, make_step, make_workflow
from tests.effects.stage import Stage

NO_WAIT = Retry(attempts=3, initial=0)


class Http(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Declined(Exception):
    pass


UNKNOWN = [
    TimeoutError("no answer"),
    ConnectionResetError(104, "reset"),
    BrokenPipeError(),
    Http(500),
    Http(503),
    Http(408),
    ValueError("the answer made no sense"),
]
NOT_HAPPENED_FINAL = [
    Http(404),
    Http(400),
    Declined("no money"),
    ssl.SSLCertVerificationError("bad certificate"),
    outlast.NotDone("the account is closed"),
]
NOT_HAPPENED_TRANSIENT = [
    ConnectionRefusedError(111, "refused"),
    socket.gaierror(-2, "name not known"),
    Http(429),
]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("exc", UNKNOWN, ids=repr)
def test_an_error_after_which_nobody_knows_holds_the_run(
    stage: Stage, colour: Colour, exc: Exception
) -> None:
    sent = []

    def send() -> None:
        sent.append(1)
        raise exc

    flow = make_workflow(colour, make_step(colour, send, effect="once", retry=NO_WAIT))
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "in-doubt"
    step = stage.step("act#0")
    assert step.status == "in-doubt"
    # What was sent, its key, and the command that helps.
    assert "act#0" in held.value.detail
    assert step.idempotency_key in held.value.detail
    assert "outlast settle run 'act#0'" in held.value.fix
    # A further start asks again, and sends nothing.
    with pytest.raises(outlast.RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)
    assert sent == [1]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("exc", NOT_HAPPENED_FINAL, ids=repr)
def test_an_error_before_anything_happened_reaches_the_workflow(
    stage: Stage, colour: Colour, exc: Exception
) -> None:
    sent = []

    def send() -> None:
        sent.append(1)
        raise exc

    step = make_step(colour, send, effect="once", retry=NO_WAIT, not_done=(Declined,))
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(make_workflow(colour, step), run_id="run", store=stage.url)
    assert type(failed.value.__cause__) is type(exc)
    assert sent == [1]
    assert stage.step("act#0").status == "failed"


@pytest.mark.parametrize("exc", NOT_HAPPENED_TRANSIENT, ids=repr)
def test_a_passing_error_before_anything_happened_is_retried(stage: Stage, exc: Exception) -> None:
    sent = []

    @outlast.step(effect="once", retry=NO_WAIT)
    def send() -> int:
        sent.append(1)
        if len(sent) < 3:
            raise exc
        return len(sent)

    @outlast.workflow
    def flow() -> int:
        return send()

    assert outlast.run(flow, run_id="run", store=stage.url) == 3
    assert stage.step("send#0").attempts == 3
    assert "step.in_doubt" not in stage.kinds()


def test_the_tools_own_not_done_with_a_passing_cause_is_retried(stage: Stage) -> None:
    sent = []

    @outlast.step(effect="once", retry=NO_WAIT)
    def send() -> int:
        sent.append(1)
        if len(sent) == 1:
            raise outlast.NotDone("the queue is full") from TimeoutError()
        return len(sent)

    @outlast.workflow
    def flow() -> int:
        return send()

    assert outlast.run(flow, store=stage.url) == 2


@pytest.mark.parametrize("colour", COLOURS)
def test_doubt_can_be_handed_to_the_agent_and_is_the_same_on_replay(
    stage: Stage, colour: Colour
) -> None:
    sent: list[int] = []
    seen: list[tuple[Any, ...]] = []

    def send() -> None:
        sent.append(1)
        raise TimeoutError("no answer")

    def stop() -> None:
        if len(seen) == 1:
            raise SystemExit(1)

    act = make_step(colour, send, effect="once", in_doubt="raise", retry=NO_WAIT)
    pause = outlast.step(stop)

    if colour == "sync":

        @outlast.workflow
        def flow() -> str:
            try:
                act()
            except outlast.InDoubt as doubt:
                seen.append((doubt.args, doubt.step, doubt.why, str(doubt)))
            pause()
            return "looked and decided"
    else:

        @outlast.workflow(name="flow")
        async def flow() -> str:
            try:
                await act()
            except outlast.InDoubt as doubt:
                seen.append((doubt.args, doubt.step, doubt.why, str(doubt)))
            pause()
            return "looked and decided"

    with pytest.raises(SystemExit):
        outlast.run(flow, run_id="run", store=stage.url)
    assert outlast.run(flow, run_id="run", store=stage.url) == "looked and decided"
    live, replayed = seen
    assert live == replayed
    assert live[1] == "act#0"
    assert "TimeoutError: no answer" in live[2]
    assert sent == [1]
    assert stage.kinds("act#0") == ["step.started", "step.in_doubt", "step.failed"]


def test_an_interrupted_once_step_raises_doubt_when_asked_to(stage: Stage) -> None:
    sent = []

    def send() -> None:
        sent.append(1)
        raise KeyboardInterrupt

    flow = make_workflow("sync", make_step("sync", send, effect="once", in_doubt="raise"))
    with pytest.raises(KeyboardInterrupt):
        outlast.run(flow, run_id="run", store=stage.url)
    marker, step, why = outlast.run(flow, run_id="run", store=stage.url)
    assert (marker, step) == ("in doubt", "act#0")
    assert "process ended" in why
    assert sent == [1]


def test_what_runs_beside_a_held_step_ends_and_is_recorded(stage: Stage) -> None:
    done: list[str] = []
    doubt_is_known = asyncio.Event()

    @outlast.step(effect="once")
    async def send() -> None:
        raise ConnectionResetError

    @outlast.step
    async def slow(name: str) -> str:
        # Ends only after the run was asked to stop.
        await doubt_is_known.wait()
        done.append(name)
        return name

    @outlast.step
    async def never() -> None:
        done.append("never")

    async def then_more(name: str) -> str:
        found = await slow(name)
        await never()
        return found

    @outlast.workflow
    async def flow() -> list[Any]:
        first, last = asyncio.create_task(then_more("a")), asyncio.create_task(slow("b"))
        return [await send(), await first, await last]

    async def watched() -> None:
        task = asyncio.create_task(outlast.execute(flow, run_id="run", store=stage.url))
        while "step.in_doubt" not in (stage.kinds() if stage.client().runs() else []):
            await asyncio.sleep(0.005)
        doubt_is_known.set()
        await task

    with pytest.raises(outlast.RunHeld, match="in-doubt"):
        asyncio.run(watched())
    assert sorted(done) == ["a", "b"]
    states = {s.name: s.status for s in stage.client().run("run").steps}
    assert states == {"slow": "completed", "send": "in-doubt"}
    (doubtful,) = [s.key for s in stage.client().run("run").steps if s.name == "send"]
    stage.client().settle("run", doubtful, outlast.Done(None))
    assert outlast.run(flow, run_id="run", store=stage.url) == [None, "a", "b"]
    assert sorted(done) == ["a", "b", "never"]


def test_a_passing_doubt_of_one_run_leaves_other_runs_alone(stage: Stage) -> None:
    def send(fail: bool) -> str:
        if fail:
            raise TimeoutError
        return "sent"

    act = make_step("sync", send, effect="once")
    with pytest.raises(outlast.RunHeld):
        outlast.run(make_workflow("sync", act, True), run_id="held", store=stage.url)
    assert outlast.run(make_workflow("sync", act, False), store=stage.url) == "sent"


def test_a_hold_does_not_wait_for_ever_for_what_runs_beside_it(stage: Stage) -> None:
    """A task that the workflow left to itself hangs in a step while another step is in doubt."""

    @outlast.step(effect="once")
    async def hang() -> None:
        await asyncio.Event().wait()

    @outlast.step(effect="once")
    async def send() -> None:
        while "step.started" not in stage.kinds("hang#0"):
            await asyncio.sleep(0.005)
        raise TimeoutError

    @outlast.workflow
    async def flow() -> None:
        beside = asyncio.create_task(hang())
        await send()
        await beside

    with pytest.raises(outlast.RunHeld, match="in-doubt"):
        outlast.run(flow, run_id="run", store=stage.url, settings=outlast.Settings(grace=0.1))
    states = {s.name: s.status for s in stage.client().run("run").steps}
    assert states == {"hang": "in-doubt", "send": "in-doubt"}
    assert stage.kinds("hang#0") == ["step.started", "step.interrupted"]
