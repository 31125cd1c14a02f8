"""Steps that need somebody's leave: nothing opens without it, and it is asked for once."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Approval
from outlast.testing import replay
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.stage import Stage, wait_for
from tests.engine.tools import dying_at
from tests.signals.test_signals import once

PAYING = Path(__file__).parent / "programs" / "paying.py"
TOUCHED: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    TOUCHED.clear()


def touch(*args: Any) -> Any:
    TOUCHED.append(args)
    return args[0] if args else None


def calling(colour: Colour, step: Any, *args: Any) -> Any:
    """A workflow that calls the step, and returns its value or what it was refused with."""
    if colour == "sync":

        @outlast.workflow
        def flow() -> Any:
            try:
                return step(*args)
            except (outlast.Denied, outlast.UsageError, ZeroDivisionError) as error:
                return [type(error).__name__, str(error)]

        return flow

    @outlast.workflow
    async def flow_async() -> Any:
        try:
            return await step(*args)
        except (outlast.Denied, outlast.UsageError, ZeroDivisionError) as error:
            return [type(error).__name__, str(error)]

    return flow_async


@pytest.mark.parametrize("colour", COLOURS)
def test_a_step_is_not_called_before_somebody_has_approved_of_it(
    colour: Colour, stage: Stage
) -> None:
    flow = calling(colour, make_step(colour, touch, approval=True, effect="once"), 900)
    assert once(flow, stage) is None
    assert TOUCHED == []
    assert "step.started" not in stage.kinds()
    (question,) = stage.client().inbox()
    assert question.what == "approval"
    assert question.key == "act#0"
    assert "900" in question.prompt
    stage.client().answer("run", Approval(True, "fine"), by="ann")
    assert once(flow, stage) == 900
    assert TOUCHED == [(900,)]
    assert stage.kinds("act#0") == [
        "wait.opened",
        "question.answered",
        "wait.ended",
        "step.started",
        "step.completed",
    ]
    replay("run", flow, store=stage.url)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_denied_step_is_an_error_that_stays_and_its_body_never_runs(
    colour: Colour, stage: Stage
) -> None:
    flow = calling(colour, make_step(colour, touch, approval=True), 900)
    once(flow, stage)
    stage.client().answer("run", Approval(False, "too much"), by="ann")
    said = ["Denied", "step act#0 (act(args=(900,))) was denied by ann: too much"]
    assert once(flow, stage) == said
    assert once(flow, stage) == said
    assert TOUCHED == []
    (view,) = stage.client().run("run").steps
    assert (view.status, view.fault, view.attempts) == ("failed", "denied", 0)
    replay("run", flow, store=stage.url)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_function_of_the_arguments_says_which_calls_need_leave(
    colour: Colour, stage: Stage
) -> None:
    def over_a_hundred(amount: int) -> bool | str:
        return amount > 100 and f"Pay {amount} EUR?"

    step = make_step(colour, touch, approval=over_a_hundred)
    assert once(calling(colour, step, 7), stage, "small") == 7
    assert once(calling(colour, step, 900), stage, "large") is None
    assert [q.prompt for q in stage.client().inbox()] == ["Pay 900 EUR?"]


@pytest.mark.parametrize(
    ("approval", "error"), [(lambda n: 1 / 0, "ZeroDivisionError"), (lambda n: None, "UsageError")]
)
def test_where_it_cannot_be_told_whether_leave_is_needed_nothing_opens(
    approval: Callable[[int], Any], error: str, stage: Stage
) -> None:
    flow = calling("sync", make_step("sync", touch, approval=approval), 900)
    assert once(flow, stage)[0] == error
    assert TOUCHED == []
    replay("run", flow, store=stage.url)


def test_approval_is_no_asynchronous_function() -> None:
    async def ask(amount: int) -> bool:
        return True

    for wrong in (ask, "yes", 1):
        with pytest.raises(outlast.UsageError, match="approval="):
            make_step("sync", touch, approval=wrong)


@pytest.mark.parametrize("point", ["approved", "paying"])
def test_leave_is_asked_for_once_across_sigkill(point: str, stage: Stage) -> None:
    stage.play(PAYING)
    stage.client().answer("run", Approval(True))
    stage.kill_at(point)
    assert stage.play(PAYING).killed
    assert stage.play(PAYING).result == 900
    assert stage.kinds().count("wait.opened") == 1
    assert stage.kinds().count("question.answered") == 1


def test_leave_is_asked_for_once_for_all_attempts(stage: Stage) -> None:
    stage.set("fails")
    stage.play(PAYING)
    stage.client().answer("run", Approval(True))
    assert stage.play(PAYING).result == 900
    assert stage.effects() == ["pay 900"] * 3
    assert stage.kinds().count("wait.opened") == 1


def test_leave_for_other_arguments_does_not_count(stage: Stage) -> None:
    amounts = iter([900, 90000, 90000])
    step = make_step("sync", touch, approval=True, match="name")

    @outlast.workflow
    def flow() -> Any:
        return step(next(amounts))

    once(flow, stage)
    old = stage.client().inbox()[0]
    stage.client().answer("run", Approval(True))
    assert once(flow, stage) is None
    assert TOUCHED == []
    (new,) = stage.client().inbox()
    assert new.question != old.question
    assert "90000" in new.prompt
    with pytest.raises(outlast.OutlastError):
        stage.client().answer(old.question, Approval(True))
    stage.client().answer(new.question, Approval(True))
    assert once(flow, stage) == 90000


def test_leave_that_was_taken_does_not_count_for_other_arguments(stage: Stage) -> None:
    amounts = iter([900, 900, 90000])
    step = make_step("sync", touch, approval=True, match="name")

    @outlast.workflow
    def flow() -> Any:
        return step(next(amounts))

    once(flow, stage)
    stage.client().answer("run", Approval(True))
    with dying_at(stage.url, kind="step.started"), pytest.raises(outlast.StoreError):
        once(flow, stage)
    assert stage.kinds("act#0")[-1] == "wait.ended"
    assert once(flow, stage) is None
    assert TOUCHED == []
    assert "90000" in stage.client().inbox()[0].prompt


def test_what_is_secret_is_bound_and_not_shown(stage: Stage) -> None:
    @outlast.step(approval=True, secret=["token"])
    def login(user: str, token: str) -> str:
        return user

    once(calling("sync", login, "ann", "hunter2"), stage)
    (question,) = stage.client().inbox()
    assert "hunter2" not in question.prompt + question.details
    assert "ann" in question.prompt


@pytest.mark.parametrize(
    "value",
    [
        "ls " + "a" * 150 + "; rm -rf / ;" + "a" * 150,
        ["ls"] * 40 + ["; rm -rf /"],
        {"deep": [[[[[["; rm -rf /"]]]]]]},
        {"script": b"a" * 300 + b"; rm -rf /"},
    ],
)
def test_who_gives_leave_is_shown_the_arguments_to_their_end(value: object, stage: Stage) -> None:
    once(calling("sync", make_step("sync", touch, approval=True), value), stage)
    (question,) = stage.client().inbox()
    assert "; rm -rf /" in question.details


def test_arguments_that_are_too_long_to_be_shown_say_so(stage: Stage) -> None:
    once(calling("sync", make_step("sync", touch, approval=True), "x" * 50_000), stage)
    (question,) = stage.client().inbox()
    assert len(question.details) < 21_000
    assert "more characters are not shown" in question.details


def test_a_step_that_waits_for_leave_and_is_cancelled_asks_no_more(stage: Stage) -> None:
    step = make_step("async", touch, approval=True)

    @outlast.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.05):
                await step(1)
        except TimeoutError:
            await outlast.wait_signal("end")
        return "gave up"

    outlast.submit(flow, run_id="run", store=stage.url)
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(outlast.run(flow, run_id="run", store=stage.url)),
        daemon=True,
    )
    thread.start()
    wait_for(lambda: "step.abandoned" in stage.kinds(), "the cancellation")
    assert stage.client().inbox() == []
    stage.client().signal("run", "end")
    thread.join()
    assert results == ["gave up"]
    assert TOUCHED == []
