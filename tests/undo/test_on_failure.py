"""`@workflow(on_failure="undo")`: a workflow that raises takes back what its steps did."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest

import outlast
from outlast import Done, NotDone, RunFailed, RunHeld, Terminal, step, workflow
from outlast.testing import replay
from tests.effects.stage import Stage
from tests.undo import trip
from tests.undo.trip import FLOWS, TROUBLE, Colour, happened

COLOURS = pytest.mark.parametrize("colour", ["plain", "async"])


def fail(stage: Stage, name: str, colour: Colour, *args: Any) -> RunFailed:
    with pytest.raises(RunFailed) as failed:
        outlast.run(FLOWS[name, colour], *args, run_id="run", store=stage.url)
    return failed.value


@COLOURS
def test_what_was_done_is_undone_in_reverse_order_and_the_run_fails_as_it_did(
    stage: Stage, colour: Colour
) -> None:
    failed = fail(stage, "failing", colour)

    assert "ValueError: no car left" in str(failed)
    assert isinstance(failed.__cause__, ValueError)
    assert happened[-2:] == ["cancel hotel", "cancel flight"]
    assert sorted(stage.kinds("book.undo#u.3")) == ["step.completed", "step.started"]
    assert stage.step("book.undo#u.3").preview == "what='hotel'"


@COLOURS
def test_what_has_no_undo_is_listed_and_what_only_read_is_not(stage: Stage, colour: Colour) -> None:
    fail(stage, "failing", colour)

    view = stage.client().run("run")
    assert view.undone == ["book#3", "book#0"]
    assert view.left == ["mail#2"]
    assert (view.status, view.reason) == ("failed", "ValueError")


@COLOURS
def test_a_workflow_that_returns_undoes_nothing(stage: Stage, colour: Colour) -> None:
    assert outlast.run(FLOWS["trip", colour], "", run_id="run", store=stage.url) == "booked"
    assert not any(line.startswith("cancel") for line in happened)
    assert stage.client().run("run").undone is None


@COLOURS
def test_a_compensation_is_retried_as_its_step_under_one_idempotency_key(
    stage: Stage, colour: Colour
) -> None:
    TROUBLE["hotel"] = [outlast.Transient("busy"), outlast.Transient("busy")]
    fail(stage, "failing", colour)

    assert stage.step("book.undo#u.3").attempts == 3
    assert len(trip.KEYS["book.undo#u.3"]) == 1
    assert trip.KEYS["book.undo#u.3"] != trip.KEYS["book.undo#u.0"]
    assert stage.client().run("run").undone == ["book#3", "book#0"]


@COLOURS
def test_a_compensation_that_fails_for_good_holds_the_run_and_nothing_before_it_is_undone(
    stage: Stage, colour: Colour
) -> None:
    TROUBLE["hotel"] = [Terminal("closed")]
    flow = FLOWS["failing", colour]
    with pytest.raises(RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)

    assert held.value.reason == "undo-failed"
    assert "book.undo#u.3" in str(held.value)
    assert "cancel flight" not in happened

    with pytest.raises(RunFailed, match="no car left"):
        stage.resume(flow)
    assert happened[-2:] == ["cancel hotel", "cancel flight"]
    assert sum(line.startswith("book") for line in happened) == 2
    assert len(trip.KEYS["book.undo#u.3"]) == 1


@pytest.mark.parametrize("left", [True, False], ids=["left", "done by hand"])
@COLOURS
def test_an_operator_decides_about_a_compensation_that_has_failed(
    stage: Stage, colour: Colour, left: bool
) -> None:
    TROUBLE["hotel"] = [Terminal("closed")]
    flow = FLOWS["failing", colour]
    with pytest.raises(RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)

    decision = outlast.Failed("they keep the money") if left else Done(None)
    stage.client().settle("run", "book.undo#u.3", decision)
    with pytest.raises(RunFailed, match="no car left"):
        outlast.run(flow, run_id="run", store=stage.url)

    view = stage.client().run("run")
    assert "cancel hotel" not in happened
    assert ("book#3" in (view.left or [])) == left
    assert ("book#3" in (view.undone or [])) != left
    assert "book#0" in (view.undone or [])


@pytest.mark.parametrize("answer", trip.ANSWERED, ids=["done", "not-done"])
@COLOURS
def test_a_step_in_doubt_is_asked_about_before_anything_is_undone(
    stage: Stage, colour: Colour, answer: Any
) -> None:
    trip.ANSWERS += [outlast.Unknown(), answer]  # the first one is for the workflow itself
    fail(stage, "paying", colour)

    done = isinstance(answer, Done)
    assert happened == [
        "book flight",
        "pay hotel",
        *(["repay hotel 7"] if done else []),
        "cancel flight",
    ]
    assert stage.client().run("run").undone == ["pay#1", "book#0"][not done :]
    assert stage.client().run("run").left == []


@pytest.mark.parametrize("decision", [Done({"what": "hotel", "number": 9}), NotDone()])
@COLOURS
def test_a_doubt_that_nobody_can_resolve_holds_the_run_before_anything_is_undone(
    stage: Stage, colour: Colour, decision: Any
) -> None:
    flow = FLOWS["paying", colour]
    with pytest.raises(RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "in-doubt"
    assert happened == ["book flight", "pay hotel"]

    stage.client().settle("run", "pay#1", decision)
    with pytest.raises(RunFailed, match="cannot pay"):
        outlast.run(flow, run_id="run", store=stage.url)

    repaid = ["repay hotel 9"] if isinstance(decision, Done) else []
    assert happened == ["book flight", "pay hotel", *repaid, "cancel flight"]


@COLOURS
def test_a_settled_value_that_is_no_result_of_the_step_is_asked_for_again(
    stage: Stage, colour: Colour
) -> None:
    flow = FLOWS["paying", colour]
    with pytest.raises(RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)
    stage.client().settle("run", "pay#1", Done(["nonsense"]))
    with pytest.raises(RunHeld, match="does not fit"):
        outlast.run(flow, run_id="run", store=stage.url)

    stage.client().settle("run", "pay#1", Done({"what": "hotel", "number": 9}))
    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert happened[2:] == ["repay hotel 9", "cancel flight"]


@COLOURS
def test_steps_of_all_turns_are_undone(stage: Stage, colour: Colour) -> None:
    fail(stage, "looping", colour, 3)
    assert happened[3:] == ["cancel night 2", "cancel night 1", "cancel night 0"]


@COLOURS
def test_a_run_that_is_held_while_it_is_undone_fits_its_code(stage: Stage, colour: Colour) -> None:
    TROUBLE["hotel"] = [Terminal("closed")]
    for name in ("failing", "paying"):
        with pytest.raises(RunHeld):
            outlast.run(FLOWS[name, colour], run_id=name, store=stage.url)
        assert replay(name, FLOWS[name, colour], store=stage.url).workflow == name


@COLOURS
def test_a_run_that_was_undone_still_fits_its_code(stage: Stage, colour: Colour) -> None:
    fail(stage, "failing", colour)
    fits = replay("run", FLOWS["failing", colour], store=stage.url)
    assert fits.calls == fits.recorded == 4


@pytest.mark.parametrize("decision", [Done("paid"), NotDone()], ids=["done", "not-done"])
def test_a_decision_about_a_call_that_was_cancelled_does_not_change_what_the_workflow_sees(
    stage: Stage, decision: Any
) -> None:
    seen: list[str] = []

    @step(effect="once", in_doubt="raise")
    async def pay() -> str:
        await asyncio.Event().wait()
        return "paid"

    @pay.undo
    async def _(result: str) -> None:
        seen.append(f"not {result}")

    @workflow(on_failure="undo")
    async def flow() -> None:
        try:
            await asyncio.wait_for(pay(), 0.05)
        except TimeoutError:
            seen.append("cancelled")
            raise ValueError("too slow") from None
        seen.append("went on")

    with pytest.raises(RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)
    stage.client().settle("run", "pay#0", decision)
    with pytest.raises(RunFailed, match="too slow"):
        outlast.run(flow, run_id="run", store=stage.url)
    undone = ["not paid"] if isinstance(decision, Done) else []
    assert seen == ["cancelled", "cancelled", *undone]


def test_parallel_steps_are_undone_in_the_reverse_order_of_their_ends(stage: Stage) -> None:
    ended: list[str] = []
    gates = {name: asyncio.Event() for name in "abc"}

    @step(effect="idempotent")
    async def act(name: str, opens: str) -> None:
        await gates[name].wait()
        ended.append(name)
        if opens:
            gates[opens].set()

    @act.undo
    async def _(name: str) -> None:
        ended.append(f"not {name}")

    @workflow(on_failure="undo")
    async def flow() -> None:
        gates["b"].set()
        await asyncio.gather(act("a", ""), act("b", "c"), act("c", "a"))
        raise ValueError

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert ended == ["b", "c", "a", "not a", "not c", "not b"]


def test_tasks_that_a_workflow_left_behind_open_nothing_while_it_is_undone(stage: Stage) -> None:
    done: list[str] = []
    undoing = asyncio.Event()

    @step(effect="idempotent")
    async def act(name: str) -> None:
        done.append(name)

    @act.undo
    async def _(name: str) -> None:
        undoing.set()
        await asyncio.sleep(0)
        done.append(f"not {name}")

    @workflow(on_failure="undo")
    async def flow() -> None:
        async def beside() -> None:
            await undoing.wait()
            await act("late")

        task = asyncio.create_task(beside())
        await act("early")
        assert not task.done()
        raise ValueError

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert done == ["early", "not early"]


def test_threads_that_a_workflow_left_behind_open_nothing_while_it_is_undone(stage: Stage) -> None:
    done: list[str] = []
    undoing, tried = threading.Event(), threading.Event()

    @step(effect="idempotent")
    def act(name: str) -> None:
        done.append(name)

    @act.undo
    def _(name: str) -> None:
        undoing.set()
        assert tried.wait(30)
        done.append(f"not {name}")

    def beside() -> None:
        undoing.wait()
        try:
            act("late")
        except outlast.StopRun:
            done.append("refused")
        tried.set()

    @workflow(on_failure="undo")
    def flow() -> None:
        act("early")
        threading.Thread(target=contextvars.copy_context().run, args=(beside,)).start()
        raise ValueError

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert done == ["early", "refused", "not early"]


def test_a_result_that_cannot_be_stored_fails_the_run_and_undoes_it(stage: Stage) -> None:
    done: list[str] = []

    @step(effect="idempotent")
    def act() -> None:
        done.append("act")

    @act.undo
    def _() -> None:
        done.append("undo")

    @workflow(on_failure="undo")
    def flow() -> object:
        act()
        return object()

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert done == ["act", "undo"]


@pytest.mark.parametrize("wants", [True, False], ids=["wants result", "wants none"])
def test_a_result_that_could_not_be_stored_keeps_only_an_undo_from_its_work_that_wants_it(
    stage: Stage, wants: bool
) -> None:
    undone: list[str] = []

    @step(effect="idempotent")
    def act(name: str) -> object:
        return object()

    if wants:

        @act.undo
        def _(name: str, result: object) -> None:
            undone.append(name)
    else:

        @act.undo
        def _(name: str) -> None:
            undone.append(name)

    @workflow(on_failure="undo")
    def flow() -> None:
        act("a")

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert undone == ([] if wants else ["a"])
    assert stage.client().run("run").left == (["act#0"] if wants else [])


def test_a_step_that_failed_is_left_unless_it_surely_had_no_effect(stage: Stage) -> None:
    def raises() -> None:
        raise Terminal("refused")

    def not_done() -> None:
        raise NotDone("refused")

    may = step(effect="idempotent")(raises)
    never = step(effect="once")(not_done)
    for one in (may, never):
        one.undo(lambda: None)

    @workflow(on_failure="undo")
    def flow() -> None:
        for one in (never, may):
            try:
                one()
            except (NotDone, Terminal):
                continue
        raise ValueError

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert stage.client().run("run").left == ["raises#1"]
    assert stage.client().run("run").undone == []


def test_no_budget_keeps_a_run_from_being_undone(stage: Stage) -> None:
    flow = FLOWS["failing", "plain"]
    with pytest.raises(RunFailed, match="no car left"):
        outlast.run(flow, run_id="run", store=stage.url, budget=outlast.Budget(calls=4, steps=4))
    assert happened[-2:] == ["cancel hotel", "cancel flight"]


def test_many_alike_compensations_are_no_loop(stage: Stage) -> None:
    undone: list[int] = []

    @step(effect="idempotent", match="name")
    def act(n: int) -> None:
        pass

    @act.undo
    def _(n: int) -> None:
        undone.append(1)

    @workflow(on_failure="undo")
    def flow() -> None:
        for _ in range(15):
            act(1)
        raise ValueError

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert len(undone) == 15
