"""A workflow called in a workflow is a run of its own, which its parent waits for."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import Budget, Cost, Settings, Terminal
from outlast.engine.run import active_runs
from outlast.engine.stop import Release
from outlast.testing import replay
from outlast.views import unfinished
from outlast.worker.stores import get_store
from outlast.world import World
from tests.effects.colours import COLOURS, Colour
from tests.effects.stage import Stage, wait_for

QUICK = Settings(grace=0.2)


class Refused(Exception):
    """An error of a child's own."""


def calling(colour: Colour, body: Callable[[int], Any], **options: Any) -> Any:
    """A workflow `flow` that calls the workflow `kid` once for each of the numbers that it gets;
    `kid` calls the step `act`, which is `body`."""

    @outlast.step(**options)
    def act(n: int) -> Any:
        return body(n)

    @outlast.workflow
    def kid(n: int) -> Any:
        return act(n)

    @outlast.workflow(name="kid")
    async def kid_async(n: int) -> Any:
        return act(n)

    @outlast.workflow
    def flow(ns: list[int]) -> list[Any]:
        return [kid(n) for n in ns]

    @outlast.workflow(name="flow")
    async def flow_async(ns: list[int]) -> list[Any]:
        return [await kid_async(n) for n in ns]

    return flow if colour == "sync" else flow_async


def start(stage: Stage, flow: Any, *args: Any, **options: Any) -> Any:
    return outlast.run(flow, *args, run_id="run", store=stage.url, **options)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_child_has_a_journal_of_its_own_and_its_parent_has_its_result(
    stage: Stage, colour: Colour
) -> None:
    flow = calling(colour, lambda n: n + 1)
    assert start(stage, flow, [1, 5], tags={"team": "red"}) == [2, 6]
    assert stage.kinds("kid#1") == ["child.started", "child.ended"]
    assert "step.completed" not in stage.kinds()
    assert stage.step("act#0", "run/kid#1").status == "completed"
    parent, child = (stage.client().run(run_id) for run_id in ("run", "run/kid#1"))
    assert (child.parent, child.status) == ("run", "completed")
    assert (child.trace_id, child.tags) == (parent.trace_id, {"team": "red"})
    assert [(one.key, one.workflow, one.status) for one in parent.children] == [
        ("kid#0", "kid", "completed"),
        ("kid#1", "kid", "completed"),
    ]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_child_that_has_ended_is_not_executed_again(stage: Stage, colour: Colour) -> None:
    def body(n: int) -> int:
        stage.log("act", n)
        if n == 2 and not stage.has("well"):
            raise outlast.NotDone
        return n

    flow = calling(colour, body, effect="once", in_doubt="hold")

    @outlast.step(effect="once")
    def gate() -> None:
        if not stage.has("well"):
            raise ValueError("in doubt")

    @outlast.workflow
    def outer() -> Any:
        first = flow([1])
        gate()
        return first

    if colour == "sync":
        with pytest.raises(outlast.RunHeld):
            start(stage, outer)
        stage.client().settle("run", "gate#1", outlast.Done(None))
        assert start(stage, outer) == [1]
        assert stage.effects() == ["act 1"]
    else:
        assert start(stage, flow, [1]) == [1]
        assert start(stage, flow, [1]) == [1]
        assert stage.effects() == ["act 1"]


@pytest.mark.parametrize("colour", COLOURS)
def test_the_error_of_a_child_reaches_its_parent_as_that_of_a_step_does(
    stage: Stage, colour: Colour
) -> None:
    seen: list[BaseException] = []

    def body(n: int) -> int:
        raise Refused("no", n)

    inner = calling(colour, body, retry=outlast.Retry(attempts=1))

    def caught(error: Refused) -> list[Any]:
        seen.append(error)
        return list(error.args)

    @outlast.workflow
    def outer() -> Any:
        try:
            return inner([3])
        except Refused as error:
            return caught(error)

    @outlast.workflow(name="outer")
    async def outer_async() -> Any:
        try:
            return await inner([3])
        except Refused as error:
            return caught(error)

    flow = outer if colour == "sync" else outer_async
    assert start(stage, flow) == ["no", 3]
    assert "child run run/flow#0" in "".join(seen[0].__notes__)
    (child,) = stage.client().run("run").children
    assert (child.status, child.reason) == ("failed", f"{Refused.__module__}.Refused")


def test_an_error_that_cannot_be_rebuilt_says_which_child_failed(stage: Stage) -> None:
    class Local(Exception):
        pass

    @outlast.workflow
    def kid() -> None:
        raise Local("hidden")

    @outlast.workflow
    def flow() -> Any:
        try:
            kid()
        except outlast.ChildFailed as error:
            return [error.run_id, error.message]

    assert start(stage, flow) == ["run/kid#0", "hidden"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_held_child_holds_its_parent_and_an_operator_lets_both_go_on(
    stage: Stage, colour: Colour
) -> None:
    def body(n: int) -> int:
        stage.log("act", n)
        raise ValueError("who knows")

    flow = calling(colour, body, effect="once")
    with pytest.raises(outlast.RunHeld) as held:
        start(stage, flow, [1])
    assert held.value.reason == "in-doubt"
    assert "child run run/kid#0 is held (in-doubt): step act#0" in held.value.detail
    assert "outlast settle 'run/kid#0' 'act#0'" in held.value.fix
    assert "outlast resume run" in held.value.fix
    assert stage.client().run("run").held_at == "kid#0"
    stage.client().settle("run/kid#0", "act#0", outlast.Done(7))
    assert start(stage, flow, [1]) == [7]
    assert stage.effects() == ["act 1"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_child_that_was_killed_alone_is_an_error_in_its_parent(
    stage: Stage, colour: Colour
) -> None:
    def killing(n: int) -> int:
        stage.client().kill("run/flow#0/kid#0", reason="enough")
        return n

    inner = calling(colour, killing)

    @outlast.workflow
    def outer() -> Any:
        try:
            return inner([3])
        except outlast.ChildKilled as error:
            return [error.run_id, error.why]

    @outlast.workflow(name="outer")
    async def outer_async() -> Any:
        try:
            return await inner([3])
        except outlast.ChildKilled as error:
            return [error.run_id, error.why]

    flow = outer if colour == "sync" else outer_async
    assert start(stage, flow, settings=QUICK) == ["run/flow#0/kid#0", "enough"]
    assert stage.client().run("run/flow#0").status == "failed"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("command", ["kill", "pause"])
def test_children_are_killed_and_paused_with_their_parent(
    stage: Stage, colour: Colour, command: str
) -> None:
    def body(n: int) -> int:
        if not stage.has("done"):
            stage.set("done")
            getattr(stage.client(), command)("run")
        return n

    flow = calling(colour, body)
    expected = outlast.RunKilled if command == "kill" else outlast.RunHeld
    with pytest.raises(expected):
        start(stage, flow, [1, 2], settings=QUICK)
    status = "killed" if command == "kill" else "held"
    assert {run.run_id: run.status for run in stage.client().runs()} == {
        "run": status,
        "run/kid#0": status,
    }
    assert "child.ended" not in stage.kinds()
    if command == "pause":
        assert stage.resume(flow) == [1, 2]


def test_a_parent_that_cancels_the_call_ends_the_child(stage: Stage) -> None:
    begun, ended = asyncio.Event(), []

    @outlast.step
    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    @outlast.workflow
    async def kid() -> None:
        await work()

    @outlast.workflow
    async def flow() -> str:
        task = asyncio.create_task(kid())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return "went on"

    assert start(stage, flow) == "went on"
    assert ended == ["work"]
    (child,) = stage.client().run("run").children
    assert (child.status, child.detail) == ("killed", "its parent cancelled it")
    assert stage.kinds("kid#0") == ["child.started", "step.abandoned"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_child_that_waits_parks_its_parent_with_it(stage: Stage, colour: Colour) -> None:
    @outlast.workflow
    def kid() -> str:
        outlast.sleep(3600).result()
        return "late"

    @outlast.workflow(name="kid")
    async def kid_async() -> str:
        await outlast.sleep(3600)
        return "late"

    @outlast.workflow
    def flow() -> str:
        return kid()

    @outlast.workflow(name="flow")
    async def flow_async() -> str:
        return await kid_async()

    with pytest.raises(outlast.RunWaiting) as waiting:
        start(stage, flow if colour == "sync" else flow_async, wait=False)
    parent, child = (stage.client().run(run_id) for run_id in ("run", "run/kid#0"))
    assert (parent.status, child.status) == ("waiting", "waiting")
    assert waiting.value.due == parent.due_at == child.due_at


def test_only_the_parent_takes_a_child_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    @outlast.workflow
    def kid() -> None:
        outlast.sleep(3600).result()

    @outlast.workflow
    def flow() -> None:
        kid()

    with pytest.raises(outlast.RunWaiting):
        start(stage, flow, wait=False)
    monkeypatch.setattr(World, "wall", lambda world: 1e10)
    assert [row.run_id for row in unfinished(get_store(stage.url).store, frozenset())] == ["run"]


@pytest.mark.parametrize("colour", COLOURS)
def test_children_spend_from_the_budget_of_the_run_at_the_top(stage: Stage, colour: Colour) -> None:
    inner = calling(colour, lambda n: n, cost=Cost(actual=0.4))

    @outlast.workflow(budget=Budget(usd=1))
    def outer() -> Any:
        return inner([1, 2, 3])

    @outlast.workflow(name="outer", budget=Budget(usd=1))
    async def outer_async() -> Any:
        return await inner([1, 2, 3])

    flow = outer if colour == "sync" else outer_async
    with pytest.raises(outlast.RunHeld) as held:
        start(stage, flow)
    assert held.value.reason == "over-budget"
    child = "run/flow#0/kid#2"
    assert stage.client().run(child).status == "held"
    assert stage.client().run(child).budget == stage.client().run("run").budget
    stage.client().add_budget(child, Budget(usd=1))
    assert start(stage, flow) == [1, 2, 3]
    spending = stage.client().run("run").spending
    assert spending is not None
    assert str(spending.settled.usd) == "1.2"


def test_a_budget_of_the_childs_own_does_not_count_and_is_warned_of(stage: Stage) -> None:
    @outlast.step
    def act() -> int:
        return 1

    @outlast.workflow(budget=Budget(calls=1))
    def kid() -> int:
        return act() + act()

    @outlast.workflow
    def flow() -> int:
        return kid()

    with pytest.warns(outlast.OutlastWarning, match="workflow kid has a budget of its own"):
        assert start(stage, flow) == 2


def test_an_asynchronous_child_of_a_plain_workflow_is_refused(stage: Stage) -> None:
    @outlast.workflow
    async def kid() -> None: ...

    @outlast.workflow
    def flow() -> str:
        try:
            kid()
        except outlast.UsageError as error:
            return str(error)
        return ""

    assert "make the calling workflow `async def`" in start(stage, flow)


def test_a_workflow_called_in_a_step_is_a_part_of_the_step(stage: Stage) -> None:
    inner = calling("sync", lambda n: n)

    @outlast.step
    def act() -> Any:
        return inner([1, 2])

    @outlast.workflow
    def flow() -> Any:
        return act()

    assert start(stage, flow) == [1, 2]
    assert [run.run_id for run in stage.client().runs()] == ["run"]


def test_a_long_id_of_a_child_is_cut_and_still_tells_the_children_apart(stage: Stage) -> None:
    inner = calling("sync", lambda n: n)
    outlast.run(inner, [1, 2], run_id="r" * 199, store=stage.url)
    ids = [run.run_id for run in stage.client().runs()]
    assert len(ids) == len(set(ids)) == 3
    assert max(map(len, ids)) <= 200


# ---- handles


@pytest.mark.parametrize("colour", COLOURS)
def test_a_started_child_goes_on_beside_its_parent(stage: Stage, colour: Colour) -> None:
    go, both = threading.Event(), threading.Barrier(3, timeout=30)

    @outlast.step
    def act(n: int) -> int:
        both.wait()
        return n

    @outlast.workflow
    def kid(n: int) -> int:
        return act(n)

    @outlast.workflow
    def flow() -> Any:
        handles = [outlast.start_child(kid, n) for n in (1, 2)]
        both.wait()
        go.set()
        return [(handle.result(), handle.run_id) for handle in handles]

    @outlast.workflow(name="flow")
    async def flow_async() -> Any:
        handles = [outlast.start_child(kid, n) for n in (1, 2)]
        await asyncio.to_thread(both.wait)
        return [(await handle, handle.run_id) for handle in handles]

    expected = [(1, "run/kid#0"), (2, "run/kid#1")]
    assert start(stage, flow if colour == "sync" else flow_async) == expected


@pytest.mark.parametrize("colour", COLOURS)
def test_a_child_that_nobody_waits_for_may_still_come_to_its_end(
    stage: Stage, colour: Colour
) -> None:
    kid = calling(colour, lambda n: n)

    @outlast.workflow
    def outer() -> str:
        outlast.start_child(kid, [1])
        return "done"

    @outlast.workflow(name="outer")
    async def outer_async() -> str:
        outlast.start_child(kid, [1])
        return "done"

    assert start(stage, outer if colour == "sync" else outer_async) == "done"
    assert {run.status for run in stage.client().runs()} == {"completed"}
    assert stage.kinds("flow#0") == ["child.started", "child.ended"]


@pytest.mark.parametrize("colour", COLOURS)
def test_what_is_left_of_the_children_is_killed_with_the_end_of_the_parent(
    stage: Stage, colour: Colour
) -> None:
    @outlast.workflow
    def kid() -> None:
        outlast.sleep(3600).result()

    @outlast.workflow(name="kid")
    async def kid_async() -> None:
        await outlast.sleep(3600)

    @outlast.workflow
    def outer() -> str:
        outlast.start_child(kid)
        return "done"

    @outlast.workflow(name="outer")
    async def outer_async() -> str:
        outlast.start_child(kid_async)
        return "done"

    flow = outer if colour == "sync" else outer_async
    assert start(stage, flow, settings=QUICK) == "done"
    (child,) = stage.client().run("run").children
    assert (child.status, child.detail) == ("killed", "its parent has ended")
    wait_for(lambda: not strands("kid#0"), "the threads of the child to end")


def strands(key: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if key in thread.name]


# ---- replay


def test_a_replay_takes_children_from_the_parents_journal(stage: Stage) -> None:
    def body(n: int) -> int:
        stage.log("act", n)
        return n

    flow = calling("async", body)
    start(stage, flow, [1, 2])
    assert replay("run", flow, store=stage.url).run_id == "run"
    assert stage.effects() == ["act 1", "act 2"]


def test_other_arguments_for_a_child_are_a_divergence(stage: Stage) -> None:
    @outlast.step(effect="once")
    def gate() -> None:
        raise ValueError("in doubt")

    kid = calling("sync", lambda n: n)

    @outlast.workflow
    def outer() -> None:
        kid([2] if stage.has("changed") else [1])
        gate()

    with pytest.raises(outlast.RunHeld):
        start(stage, outer)
    stage.set("changed")
    with pytest.raises(outlast.RunHeld) as held:
        start(stage, outer)
    assert held.value.reason == "diverged"
    assert "flow#0 was recorded with other arguments" in held.value.detail


def test_a_dropped_call_of_a_child_makes_another_child(stage: Stage) -> None:
    def body(n: int) -> int:
        if not stage.has("well"):
            raise Terminal("no")
        return n

    kid = calling("sync", body)

    @outlast.workflow
    def outer() -> Any:
        try:
            return kid([1])
        except Terminal:
            gate()

    @outlast.step(effect="read")
    def gate() -> None:
        stage.client().pause("run")

    with pytest.raises(outlast.RunHeld):
        start(stage, outer)
    stage.client().accept_from("run", "flow#0")
    stage.client().resume("run")
    stage.set("well")
    assert start(stage, outer) == [1]
    assert [one.run_id for one in stage.client().run("run").children] == [
        "run/flow#0",
        "run/flow#0~2",
    ]


def test_a_fork_takes_over_what_children_came_to(stage: Stage) -> None:
    def body(n: int) -> int:
        stage.log("act", n)
        return n

    flow = calling("async", body)
    start(stage, flow, [1, 2])
    with pytest.raises(outlast.UsageError, match="act#0 of run/kid#1"):
        stage.client().fork("run", "kid#1", new_id="copy")
    stage.client().fork("run", "kid#1", new_id="copy", repeat_effects=True)
    assert outlast.run(flow, [1, 2], run_id="copy", store=stage.url) == [1, 2]
    assert stage.effects() == ["act 1", "act 2", "act 2"]
    assert [one.run_id for one in stage.client().run("copy").children] == ["copy/kid#1"]


def test_what_a_child_has_done_once_is_not_dropped(stage: Stage) -> None:
    kid = calling("sync", lambda n: n, effect="once")

    @outlast.step(effect="read")
    def gate() -> None:
        stage.client().pause("run")

    @outlast.workflow
    def outer() -> None:
        kid([1])
        gate()

    with pytest.raises(outlast.RunHeld):
        start(stage, outer)
    with pytest.raises(outlast.UsageError, match="act#0 of run/flow#0/kid#0"):
        stage.client().accept_from("run", "flow#0")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_parent_that_lets_go_of_its_run_lets_go_of_the_children(
    stage: Stage, colour: Colour
) -> None:
    """The step under way comes to its end and is recorded. No crash is counted."""
    begun, may_end = threading.Event(), threading.Event()

    def body(n: int) -> int:
        stage.log("act", n)
        begun.set()
        assert may_end.wait(30)
        return n

    @outlast.step
    async def act(n: int) -> int:
        return await asyncio.to_thread(body, n)

    @outlast.workflow(name="kid")
    async def kid_async(n: int) -> int:
        return await act(n) + await act(n + 1)

    @outlast.workflow(name="flow")
    async def flow_async() -> int:
        return await kid_async(1)

    @outlast.step(name="act")
    def act_sync(n: int) -> int:
        return body(n)

    @outlast.workflow
    def kid(n: int) -> int:
        return act_sync(n) + act_sync(n + 1)

    @outlast.workflow
    def flow() -> int:
        return kid(1)

    released = flow if colour == "sync" else flow_async

    async def leave() -> None:
        task = asyncio.create_task(outlast.execute(released, run_id="run", store=stage.url))
        await asyncio.to_thread(begun.wait)
        for run in active_runs():
            if run.run_id == "run":
                run.request_stop(Release("to be tested"))
        may_end.set()
        with pytest.raises(outlast.RunReleased):
            await task

    asyncio.run(leave())
    assert [run.status for run in stage.client().runs()] == ["queued", "queued"]
    assert start(stage, released) == 3
    assert stage.effects() == ["act 1", "act 2"]
    assert not any(b'"crash":true' in e.data for e in stage.client().journal("run/kid#0"))


def test_a_child_whose_call_was_dropped_ends_with_its_parent(stage: Stage) -> None:
    @outlast.workflow
    def kid() -> None:
        outlast.sleep(3600).result()

    @outlast.workflow
    def flow() -> str:
        if not stage.has("changed"):
            kid()
        return "done"

    with pytest.raises(outlast.RunWaiting):
        start(stage, flow, wait=False)
    stage.set("changed")
    stage.client().accept_from("run", "kid#0")
    assert start(stage, flow) == "done"
    (child,) = stage.client().run("run").children
    assert (child.status, child.detail) == ("killed", "its parent has ended")


def test_a_parent_hears_at_once_what_its_waiting_child_waits_for(stage: Stage) -> None:
    """Beside a step that goes on for so long that the parent cannot leave to wait."""
    told = asyncio.Event()

    @outlast.step
    async def beside() -> str:
        await told.wait()
        return "beside"

    @outlast.step
    async def tell() -> None:
        told.set()

    @outlast.workflow
    async def kid() -> int:
        got = await outlast.wait_signal("go", int)
        await tell()
        return got

    @outlast.workflow
    async def flow() -> list[Any]:
        return list(await asyncio.gather(kid(), beside()))

    def signal() -> None:
        wait_for(lambda: stage.client().run("run/kid#0").status == "waiting", "the child")
        stage.client().signal("run/kid#0", "go", 7)

    thread = threading.Thread(target=lambda: stage.when("child.started", signal))
    thread.start()
    rarely = Settings(max_sleep=3600)
    assert start(stage, flow, wait=False, settings=rarely) == [7, "beside"]
    thread.join()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_pause_that_is_lifted_while_a_step_of_a_child_runs_changes_nothing(
    stage: Stage, colour: Colour
) -> None:
    def body(n: int) -> int:
        stage.log("act", n)
        stage.client().pause("run")
        stage.client().resume("run")
        return n

    flow = calling(colour, body, effect="once")
    assert start(stage, flow, [1, 2]) == [1, 2]
    assert stage.effects() == ["act 1", "act 2"]
    for run_id in ("run/kid#0", "run/kid#1"):
        assert "step.late" not in stage.kinds(run_id=run_id)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_body_that_hangs_in_a_child_does_not_keep_the_parent_from_ending(
    stage: Stage, colour: Colour
) -> None:
    ended: list[str] = []

    def body(n: int) -> int:
        try:
            wait_for(lambda: False, "an interrupt")
        except BaseException as problem:
            ended.append(type(problem).__name__)
            raise
        return n

    kid = calling("sync", body)

    @outlast.workflow
    def outer() -> str:
        outlast.start_child(kid, [1])
        return "done"

    @outlast.workflow(name="outer")
    async def outer_async() -> str:
        outlast.start_child(kid, [1])
        return "done"

    assert start(stage, outer if colour == "sync" else outer_async, settings=QUICK) == "done"
    assert len(ended) == 1
    assert ended != ["AssertionError"], "it was interrupted"
    assert stage.client().run("run/flow#0").status == "killed"


def test_the_handle_of_a_child_that_was_cancelled_says_so_as_often_as_it_is_asked(
    stage: Stage,
) -> None:
    @outlast.workflow
    async def kid() -> None:
        await outlast.sleep(3600)

    @outlast.workflow
    async def flow() -> list[str]:
        handle = outlast.start_child(kid)
        task = asyncio.ensure_future(_wait(handle))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        said = []
        for _ in range(2):
            try:
                await handle
            except outlast.ChildKilled as error:
                said.append(error.why)
        return said

    assert start(stage, flow) == ["its parent cancelled it"] * 2


async def _wait(handle: Any) -> None:
    await handle


def test_started_children_that_wait_for_their_turn_keep_no_process(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that may go on at once sleep, and so does their parent with those behind them."""
    monkeypatch.setattr("outlast.engine.kin.MOST_STARTED", 2)

    @outlast.workflow
    def kid() -> None:
        outlast.sleep(30).result()

    @outlast.workflow
    def flow() -> list[None]:
        return [handle.result() for handle in [outlast.start_child(kid) for _ in range(4)]]

    with pytest.raises(outlast.RunWaiting):
        start(stage, flow, wait=False)
    assert {run.status for run in stage.client().runs()} == {"waiting", "queued"}, "none has ended"
