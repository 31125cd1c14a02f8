"""An operator decides about a step in doubt: done, not done or failed."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Done, Failed, NotDone
from outlast.events import StepSettled, decode
from tests.effects.colours import COLOURS, Colour, make_step, make_workflow
from tests.effects.stage import Stage

PROGRAMS = Path(__file__).parent / "programs"


class Kind(StrEnum):
    CARD = "card"
    CASH = "cash"


@dataclass(frozen=True)
class Receipt:
    number: int
    amount: Decimal
    kind: Kind = Kind.CARD


def settlements(stage: Stage, run_id: str = "run") -> list[StepSettled]:
    found = (decode(e.kind, e.data) for e in stage.client().journal(run_id))
    return [e for e in found if isinstance(e, StepSettled)]


def in_doubt(
    stage: Stage, colour: Colour = "sync", *, annotation: Any = None
) -> tuple[Callable[[], Any], list[int]]:
    """Leaves run `run` held with step `act#0` in doubt; returns how to start it again and a list
    with one entry per send."""
    sent: list[int] = []

    def send() -> Any:
        sent.append(1)
        if len(sent) == 1:
            raise TimeoutError("no answer")
        return "sent again"

    def act() -> Any:
        return send()

    async def act_async() -> Any:
        return send()

    body: Any = act if colour == "sync" else act_async
    if annotation is not None:
        body.__annotations__["return"] = annotation
    flow = make_workflow(colour, outlast.step(body, name="act", effect="once"))

    def start() -> Any:
        return outlast.run(flow, run_id="run", store=stage.url)

    with pytest.raises(outlast.RunHeld):
        start()
    return start, sent


@pytest.mark.parametrize("colour", COLOURS)
def test_done_gives_the_step_its_result(stage: Stage, colour: Colour) -> None:
    start, sent = in_doubt(stage, colour)
    view = stage.client().settle("run", "act#0", Done({"id": 7}), by="anna")
    assert (view.status, view.reason) == ("queued", "settled")
    assert stage.step("act#0").status == "completed"
    assert start() == {"id": 7}
    assert start() == {"id": 7}
    assert sent == [1]
    (event,) = settlements(stage)
    assert (event.decision, event.by) == ("done", "anna")


@pytest.mark.parametrize("colour", COLOURS)
def test_not_done_lets_it_run_again_under_the_same_key(stage: Stage, colour: Colour) -> None:
    start, sent = in_doubt(stage, colour)
    key = stage.step("act#0").idempotency_key
    stage.client().settle("run", "act#0", NotDone())
    assert start() == "sent again"
    assert sent == [1, 1]
    assert stage.step("act#0").idempotency_key == key
    assert stage.step("act#0").attempts == 2


@pytest.mark.parametrize("colour", COLOURS)
def test_failed_reaches_the_workflow_as_an_error(stage: Stage, colour: Colour) -> None:
    start, sent = in_doubt(stage, colour)
    stage.client().settle("run", "act#0", Failed("the customer cancelled"))
    with pytest.raises(outlast.RunFailed) as failed:
        start()
    assert isinstance(failed.value.__cause__, outlast.StepFailed)
    assert failed.value.__cause__.message == "the customer cancelled"
    assert sent == [1]


@pytest.mark.parametrize(
    ("annotation", "json", "value"),
    [
        (Receipt, {"number": 7, "amount": "9.90"}, Receipt(7, Decimal("9.90"))),
        (Receipt, {"number": 7, "amount": "1", "kind": "cash"}, Receipt(7, Decimal(1), Kind.CASH)),
        (list[Receipt], [{"number": 1, "amount": "2"}], [Receipt(1, Decimal(2))]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Receipt | None, None, None),
        (Kind, "cash", Kind.CASH),
        (set[int], [1, 2], {1, 2}),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
    ids=str,
)
def test_the_json_becomes_what_the_step_says_it_returns(
    stage: Stage, annotation: Any, json: Any, value: Any
) -> None:
    start, _ = in_doubt(stage, annotation=annotation)
    stage.client().settle("run", "act#0", Done(json))
    result = start()
    assert result == value
    assert type(result) is type(value)


def test_a_value_that_does_not_fit_can_be_settled_again(stage: Stage) -> None:
    start, sent = in_doubt(stage, annotation=Receipt)
    stage.client().settle("run", "act#0", Done({"numero": 7}))
    with pytest.raises(outlast.RunHeld) as held:
        start()
    assert held.value.reason == "in-doubt"
    assert "number" in held.value.detail
    assert stage.step("act#0").status == "in-doubt"
    with pytest.raises(outlast.RunHeld):
        start()
    stage.client().settle("run", "act#0", Done({"number": 7, "amount": 1}))
    assert start() == Receipt(7, Decimal(1))
    assert sent == [1]


def test_a_second_decision_is_refused(stage: Stage) -> None:
    start, sent = in_doubt(stage)
    stage.client().settle("run", "act#0", Done("first"))
    with pytest.raises(outlast.UsageError, match="not in doubt"):
        stage.client().settle("run", "act#0", NotDone())
    assert start() == "first"
    with pytest.raises(outlast.UsageError, match="completed"):
        stage.client().settle("run", "act#0", NotDone())
    assert sent == [1]
    assert len(settlements(stage)) == 1


def test_only_what_is_in_doubt_is_settled_and_the_error_names_it(stage: Stage) -> None:
    start, _ = in_doubt(stage)
    with pytest.raises(outlast.UsageError, match="in doubt: act#0"):
        stage.client().settle("run", "act#1", NotDone())
    with pytest.raises(outlast.UnknownRun):
        stage.client().settle("no such run", "act#0", NotDone())
    with pytest.raises(outlast.UsageError, match="JSON"):
        stage.client().settle("run", "act#0", Done(object()))
    assert settlements(stage) == []
    with pytest.raises(outlast.RunHeld):
        start()


def test_no_steps_of_other_kinds_are_settled(stage: Stage) -> None:
    @outlast.step(effect="idempotent")
    def act() -> str:
        raise KeyboardInterrupt

    @outlast.workflow
    def flow() -> str:
        return act()

    with pytest.raises(KeyboardInterrupt):
        outlast.run(flow, run_id="run", store=stage.url)
    with pytest.raises(outlast.UsageError, match="not in doubt"):
        stage.client().settle("run", "act#0", Done("x"))


def test_with_two_doubts_the_run_waits_for_both_decisions(stage: Stage) -> None:
    sent: list[str] = []

    @outlast.step(effect="once", in_doubt="hold")
    async def send(name: str) -> str:
        sent.append(name)
        raise TimeoutError

    @outlast.workflow
    async def flow() -> list[str]:
        return await asyncio.gather(send("a"), send("b"))

    with pytest.raises(outlast.RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)
    client = stage.client()
    doubtful = [s.key for s in client.run("run").steps if s.status == "in-doubt"]
    assert len(doubtful) == 2
    assert client.settle("run", doubtful[0], Done("A")).status == "held"
    with pytest.raises(outlast.RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)
    assert client.settle("run", doubtful[1], Done("B")).status == "queued"
    assert sorted(outlast.run(flow, run_id="run", store=stage.url)) == ["A", "B"]
    assert sorted(sent) == ["a", "b"]


def test_nothing_is_settled_under_a_process_that_executes_the_run(stage: Stage) -> None:
    """Here it is this very process, in another thread."""
    inside, go_on = threading.Event(), threading.Event()

    def send() -> str:
        inside.set()
        assert go_on.wait(20)
        return "sent"

    flow = make_workflow("sync", make_step("sync", send, effect="once"))
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(outlast.run(flow, run_id="run", store=stage.url))
    )
    thread.start()
    try:
        assert inside.wait(20)
        with pytest.raises(outlast.UsageError, match="being executed"):
            stage.client().settle("run", "act#0", NotDone())
        assert stage.client().unfinished() == []
        with pytest.raises(TimeoutError, match="still running"):
            stage.client().wait("run", timeout=0.05)
    finally:
        go_on.set()
        thread.join()
    assert results == ["sent"]


@pytest.mark.parametrize(
    ("decision", "result", "sends"),
    [(Done("settled"), "settled", 1), (NotDone(), "sent", 2)],
    ids=["done", "not-done"],
)
def test_what_a_dead_process_left_can_be_settled_before_anybody_resumes(
    stage: Stage, decision: Any, result: str, sends: int
) -> None:
    program = PROGRAMS / "send_once.py"
    stage.kill_at("sent")
    assert stage.play(program).killed
    assert stage.client().run("run").interrupted
    stage.client().settle("run", "send#0", decision)
    assert stage.play(program).result == result
    assert len(stage.effects()) == sends


def test_a_decision_survives_a_crash_before_the_workflow_saw_it(stage: Stage) -> None:
    program = PROGRAMS / "send_once.py"
    stage.kill_at("sent")
    assert stage.play(program).killed
    assert stage.play(program).stopped == ("RunHeld", "in-doubt")
    stage.client().settle("run", "send#0", Done("settled"))
    stage.kill_at("resumed")
    assert stage.play(program).killed
    assert stage.play(program).result == "settled"
    assert len(stage.effects()) == 1


def test_a_not_done_that_was_acted_on_is_used_up(stage: Stage) -> None:
    """The operator spoke about the first attempt; nobody has said anything about the second."""
    program = PROGRAMS / "send_once.py"
    stage.kill_at("sent")
    assert stage.play(program).killed
    stage.client().settle("run", "send#0", NotDone())
    stage.kill_at("sent")
    assert stage.play(program).killed
    assert stage.play(program).stopped == ("RunHeld", "in-doubt")
    assert len(stage.effects()) == 2
