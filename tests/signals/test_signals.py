"""Signals: checked at once, kept until they are wanted, delivered once and in order."""

import asyncio
import contextvars
import itertools
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import workflow
from outlast.engine import asking
from outlast.engine.run import Run
from outlast.engine.stop import Asleep
from outlast.testing import replay
from tests.effects.stage import Stage, wait_for

TILL = Path(__file__).parent / "programs" / "till.py"
PATIENT = outlast.Settings(max_sleep=3600)
"""Who waits is woken by news alone."""


@dataclass
class Payment:
    amount: int


@workflow
def till() -> list[int]:
    return [outlast.wait_signal("paid", Payment).result().amount for _ in range(2)]


@workflow
async def till_async() -> list[int]:
    return [(await outlast.wait_signal("paid", Payment)).amount for _ in range(2)]


TILLS = pytest.mark.parametrize("flow", [till, till_async])


def has_opened(stage: Stage, count: int) -> bool:
    return stage.kinds().count("wait.opened") == count


def once(flow: Any, stage: Stage, run_id: str = "run") -> Any:
    """Execute a run as far as it goes by itself; None if it waits."""
    try:
        return outlast.run(flow, run_id=run_id, store=stage.url, wait=False)
    except outlast.RunWaiting:
        return None


@TILLS
def test_a_run_that_waits_for_a_signal_needs_no_process_and_is_not_due(
    flow: Any, stage: Stage
) -> None:
    with pytest.raises(outlast.RunWaiting, match="waits for signal paid") as waiting:
        outlast.run(flow, run_id="run", store=stage.url, wait=False)
    assert waiting.value.due is None
    client = stage.client()
    view = client.run("run")
    assert (view.status, view.due_at, view.owner) == ("waiting", None, None)
    assert view.detail == "waits for signal paid"
    assert client.unfinished() == []
    assert client.upcoming() == []


@TILLS
def test_a_signal_makes_a_waiting_run_due(flow: Any, stage: Stage) -> None:
    once(flow, stage)
    stage.client().signal("run", "paid", {"amount": 1})
    assert stage.client().unfinished() == ["run"]


@TILLS
def test_a_signal_that_comes_while_the_run_leaves_makes_it_due(
    flow: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_stop = Run.request_stop

    def at_the_last_moment(run: Run, stop: Any) -> None:
        if isinstance(stop, Asleep):
            stage.client().signal("run", "paid", {"amount": 1})
        request_stop(run, stop)

    monkeypatch.setattr(Run, "request_stop", at_the_last_moment)
    assert once(flow, stage) is None
    assert stage.client().unfinished() == ["run"]


@workflow
def asking_child() -> bool:
    return outlast.ask("Go on?", bool).result()


@workflow
def parent() -> list[bool]:
    return [asking_child()]


def test_what_a_child_waits_for_wakes_its_parent(stage: Stage) -> None:
    once(parent, stage)
    assert stage.client().unfinished() == []
    (question,) = stage.client().inbox()
    stage.client().answer(question.question, True)
    assert "run" in stage.client().unfinished()
    assert once(parent, stage) == [True]


def test_what_comes_for_a_child_while_its_parent_leaves_wakes_the_parent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_stop = Run.request_stop

    def at_the_last_moment(run: Run, stop: Any) -> None:
        if isinstance(stop, Asleep) and run.run_id == "run":
            token = stage.client().inbox()[0].question
            contextvars.Context().run(stage.client().answer, token, True)  # not from within a run
        request_stop(run, stop)

    monkeypatch.setattr(Run, "request_stop", at_the_last_moment)
    assert once(parent, stage) is None
    assert "run" in stage.client().unfinished()


def test_a_signal_of_another_name_does_not_end_a_wait(stage: Stage) -> None:
    once(till, stage)
    stage.client().signal("run", "paid late", {"amount": 1})
    assert stage.client().unfinished() == []
    assert once(till, stage) is None
    assert [s.name for s in stage.client().run("run").signals] == ["paid late"]


@TILLS
def test_signals_that_come_before_the_wait_are_kept_and_delivered_in_order(
    flow: Any, stage: Stage
) -> None:
    outlast.submit(flow, run_id="run", store=stage.url)
    for amount in (7, 9):
        stage.client().signal("run", "paid", {"amount": amount})
    assert once(flow, stage) == [7, 9]
    assert stage.client().run("run").signals == []


@TILLS
def test_a_process_that_waits_is_woken_by_a_signal(flow: Any, stage: Stage) -> None:
    results: list[Any] = []

    def execute() -> None:
        results.append(outlast.run(flow, run_id="run", store=stage.url, settings=PATIENT))

    outlast.submit(flow, run_id="run", store=stage.url)
    thread = threading.Thread(target=execute, daemon=True)
    thread.start()
    for amount in (1, 2):
        wait_for(partial(has_opened, stage, amount), "the wait")
        stage.client().signal("run", "paid", Payment(amount))
    thread.join()
    assert results == [[1, 2]]


@TILLS
def test_a_completed_run_is_replayed_with_its_signals(flow: Any, stage: Stage) -> None:
    outlast.submit(flow, run_id="run", store=stage.url)
    for amount in (7, 9):
        stage.client().signal("run", "paid", {"amount": amount})
    once(flow, stage)
    assert stage.client().run("run").result == [7, 9]
    replay("run", flow, store=stage.url)


def test_a_waiting_run_is_replayed_up_to_its_wait(stage: Stage) -> None:
    once(till, stage)
    stage.client().signal("run", "paid", {"amount": 7})
    before = len(stage.client().journal("run"))
    replay("run", till, store=stage.url)
    assert len(stage.client().journal("run")) == before


@pytest.mark.parametrize(
    ("value", "why"), [("seven", "object"), ({"amount": "7"}, "integer"), ({}, "amount")]
)
def test_a_signal_that_does_not_fit_is_refused_with_the_reason(
    value: object, why: str, stage: Stage
) -> None:
    once(till, stage)
    before = stage.kinds()
    with pytest.raises(outlast.UsageError, match=why):
        stage.client().signal("run", "paid", value)
    assert stage.kinds() == before
    assert stage.client().unfinished() == []


def test_what_came_before_the_wait_and_does_not_fit_is_set_aside(stage: Stage) -> None:
    outlast.submit(till, run_id="run", store=stage.url)
    client = stage.client()
    client.signal("run", "paid", "seven", by="ann")
    client.signal("run", "paid", {"amount": 8})
    client.signal("run", "paid", {"amount": 9})
    assert once(till, stage) == [8, 9]
    (aside,) = client.run("run").signals
    assert (aside.value, aside.by) == ("seven", "ann")
    assert "Payment" in aside.note
    assert stage.kinds().count("wait.refused") == 1


def test_a_run_that_has_ended_takes_no_signals(stage: Stage) -> None:
    @workflow
    def short() -> int:
        return 1

    once(short, stage)
    with pytest.raises(outlast.UsageError, match="run is completed"):
        stage.client().signal("run", "paid", 1)


@pytest.mark.parametrize("seconds", [1e15, 1e300])
def test_a_wait_may_end_beyond_any_calendar(seconds: float, stage: Stage) -> None:
    @workflow
    def patient() -> int:
        return outlast.wait_signal("paid", int, timeout=seconds).result()

    assert once(patient, stage) is None
    stage.client().signal("run", "paid", 5)
    assert once(patient, stage) == 5


@pytest.mark.parametrize(
    "seconds", [-1, float("inf"), float("nan"), pytest.param(10**400, id="huge"), True, "5"]
)
def test_a_time_out_is_a_number_of_seconds(seconds: Any, stage: Stage) -> None:
    @workflow
    def patient() -> object:
        return outlast.wait_signal("paid", int, timeout=seconds).result()

    with pytest.raises(outlast.RunFailed, match="a number of seconds"):
        once(patient, stage)


def test_waits_for_one_signal_beside_each_other_get_one_each(stage: Stage) -> None:
    @workflow
    async def both() -> list[int]:
        return list(
            await asyncio.gather(outlast.wait_signal("n", int), outlast.wait_signal("n", int))
        )

    once(both, stage)
    stage.client().signal("run", "n", 1)
    assert once(both, stage) is None
    stage.client().signal("run", "n", 2)
    first = once(both, stage)
    assert sorted(first) == [1, 2]
    assert outlast.run(both, run_id="run", store=stage.url) == first


def test_a_signal_that_does_not_come_in_time_is_an_error_that_stays(stage: Stage) -> None:
    @workflow
    async def patient() -> str:
        try:
            return str(await outlast.wait_signal("paid", int, timeout=0))
        except outlast.AskTimeout as late:
            return f"{late.key}: {late}"

    said = once(patient, stage)
    assert said == "wait_signal#0: run run: signal paid did not come in time (wait_signal#0)"
    assert once(patient, stage) == said


def test_a_signal_that_is_there_is_taken_although_the_time_is_over(stage: Stage) -> None:
    @workflow
    def patient() -> int:
        return outlast.wait_signal("paid", int, timeout=0).result()

    outlast.submit(patient, run_id="run", store=stage.url)
    stage.client().signal("run", "paid", 5)
    assert once(patient, stage) == 5


def test_a_signal_that_comes_just_before_the_time_out_is_recorded_wins(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    def patient() -> int:
        return outlast.wait_signal("paid", int, timeout=0).result()

    look, looks = asking.next_mail, itertools.count()
    # It has not come yet when the run looks for it the first times.
    monkeypatch.setattr(asking, "next_mail", lambda *of: look(*of) if next(looks) > 1 else None)
    outlast.submit(patient, run_id="run", store=stage.url)
    stage.client().signal("run", "paid", 5)
    assert once(patient, stage) == 5


def test_a_wait_with_a_time_limit_is_due_at_that_time(stage: Stage) -> None:
    @workflow
    def patient() -> int:
        return outlast.wait_signal("paid", int, timeout=3600).result()

    once(patient, stage)
    view = stage.client().run("run")
    assert view.due_at is not None
    assert view.due_at > view.created_at + 3000
    assert [run_id for run_id, _ in stage.client().upcoming()] == ["run"]
    assert stage.client().unfinished() == []


def test_a_cancelled_wait_takes_nothing_from_a_later_one(stage: Stage) -> None:
    @workflow
    async def impatient() -> list[object]:
        got: list[object] = []
        try:
            async with asyncio.timeout(0.01):
                await outlast.wait_signal("paid", int)
        except TimeoutError:
            got.append("late")
        got.append(await outlast.wait_signal("paid", int))
        return got

    outlast.submit(impatient, run_id="run", store=stage.url)
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(outlast.run(impatient, run_id="run", store=stage.url)),
        daemon=True,
    )
    thread.start()
    wait_for(lambda: "step.abandoned" in stage.kinds(), "the cancellation")
    stage.client().signal("run", "paid", 5)
    thread.join()
    assert results == [["late", 5]]


def test_what_a_cancelled_wait_had_taken_and_not_delivered_goes_to_a_later_one(
    stage: Stage,
) -> None:
    program = Path(__file__).parent / "programs" / "taker.py"
    stage.play(program)
    stage.client().signal("run", "paid", 5)
    stage.kill_at("taken")
    assert stage.play(program).killed
    stage.set("cancel")
    assert stage.play(program).result == ["cancelled", 5]


def test_another_signal_at_a_recorded_place_is_held_as_diverged(stage: Stage) -> None:
    names = iter(["paid", "refunded"])

    @workflow
    def edited() -> object:
        return outlast.wait_signal(next(names)).result()

    once(edited, stage)
    with pytest.raises(outlast.RunHeld, match="diverged"):
        outlast.run(edited, run_id="run", store=stage.url, wait=False)


def test_a_run_whose_process_died_beside_an_endless_wait_can_go_on(stage: Stage) -> None:
    program = Path(__file__).parent / "programs" / "beside.py"
    stage.kill_at("between")
    assert stage.play(program).killed
    assert stage.client().run("run").status == "waiting"
    assert stage.client().unfinished() == ["run"]


@pytest.mark.parametrize("point", ["taking", "taken", "logged"])
def test_no_signal_is_lost_or_delivered_twice_across_sigkill(point: str, stage: Stage) -> None:
    stage.play(TILL)
    for amount in (1, 2, 3):
        stage.client().signal("run", "paid", amount)
        stage.kill_at(f"logged-{amount}" if point == "logged" else point)
        assert stage.play(TILL).killed
        assert stage.client().unfinished() == ["run"]
    stage.play(TILL)
    assert stage.client().run("run").result == [1, 2, 3]
    assert list(dict.fromkeys(stage.effects())) == ["paid 1", "paid 2", "paid 3"]
    taken = [e for e in stage.client().journal("run") if e.kind == "wait.ended"]
    assert len(taken) == 3


def test_signals_of_finished_turns_stay_delivered(stage: Stage) -> None:
    @workflow
    def loop() -> list[int]:
        for turn in outlast.turns(got=[], max=4):
            turn.got.append(outlast.wait_signal("paid", int).result())
        return list(turn.got)

    once(loop, stage)
    for amount in (1, 2, 3):
        stage.client().signal("run", "paid", amount)
        assert once(loop, stage) is None
    stage.client().signal("run", "paid", 4)
    assert once(loop, stage) == [1, 2, 3, 4]


def test_a_dropped_wait_gives_its_signal_back(stage: Stage) -> None:
    names = iter(["first", "first", "second", "first", "second"])

    @workflow
    def edited() -> list[object]:
        got = [outlast.wait_signal("paid", int).result()]
        return [*got, outlast.wait_signal(next(names)).result()]

    outlast.submit(edited, run_id="run", store=stage.url)
    stage.client().signal("run", "paid", 5)
    assert once(edited, stage) is None
    stage.client().accept_from("run", "wait_signal#0")
    assert [s.value for s in stage.client().run("run").signals] == [5]
    stage.client().signal("run", "first", "x")
    assert once(edited, stage) == [5, "x"]


def test_a_paused_run_keeps_what_is_sent_to_it(stage: Stage) -> None:
    once(till, stage)
    stage.client().pause("run")
    for amount in (7, 9):
        stage.client().signal("run", "paid", {"amount": amount})
    assert stage.client().unfinished() == []
    assert stage.resume(till) == [7, 9]


@pytest.mark.parametrize("what", [outlast.wait_signal, outlast.ask])
def test_waits_are_for_workflow_code(what: Any, stage: Stage) -> None:
    with pytest.raises(outlast.OutsideRun):
        what("paid")

    @outlast.step
    def act() -> str:
        with pytest.raises(outlast.OutsideRun, match="workflow code"):
            what("paid")
        return "refused"

    @workflow
    def flow() -> str:
        with pytest.raises(outlast.UsageError):
            what("")
        with pytest.raises(outlast.UsageError, match="seconds"):
            what("paid", timeout=-1)
        return act()

    assert once(flow, stage) == "refused"
