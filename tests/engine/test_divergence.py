"""Changed code is noticed at the first call that does not fit, before that call runs (P10)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import step, workflow
from tests.engine.tools import Bodies, dying_at, kinds


class Desk:
    """The workflow that the run starts with, and its steps."""

    def __init__(self, bodies: Bodies) -> None:
        def made(name: str) -> Callable[[int], Any]:
            async def body(n: int) -> int:
                bodies(f"{name} {n}")
                return n

            body.__qualname__ = body.__name__ = name
            return step(body)

        self.look, self.think, self.act, self.tell = map(made, ("look", "think", "act", "tell"))


def flow(fn: Callable[[], Any]) -> Any:
    """Whatever the code is now, it is the same workflow to the run."""
    return workflow(name="desk")(fn)


def original(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await d.think(2)
        await d.act(3)
        await d.tell(4)
        return "done"

    return flow(body)


def inserted(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await d.tell(9)
        await d.think(2)
        await d.act(3)
        return "done"

    return flow(body)


def renamed(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await outlast.step(d.think.plain, name="ponder")(2)
        await d.act(3)
        return "done"

    return flow(body)


def swapped(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await d.act(3)
        await d.think(2)
        return "done"

    return flow(body)


def deleted(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await d.act(3)
        await d.tell(4)
        return "done"

    return flow(body)


def other_arguments(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await d.think(20)
        await d.act(3)
        return "done"

    return flow(body)


def returns_early(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        return "done"

    return flow(body)


def raises_early(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        raise ValueError("new code")

    return flow(body)


def another_kind(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        await outlast.sleep(60)
        return "done"

    return flow(body)


def a_time_instead(d: Desk) -> Any:
    async def body() -> str:
        await d.look(1)
        outlast.now()
        return "done"

    return flow(body)


CHANGES = [
    (inserted, ["think#1", "calls tell"]),
    (renamed, ["think#1", "calls ponder"]),
    (swapped, ["think#1", "calls act"]),
    (deleted, ["think#1", "calls act"]),
    (other_arguments, ["think#1", "other arguments", "20"]),
    (returns_early, ["without asking for 2 recorded calls", "think#1"]),
    (raises_early, ["without asking for 2 recorded calls", "think#1"]),
    (another_kind, ["think#1", "calls sleep"]),
    (a_time_instead, ["think#1", "calls now"]),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=lambda c: getattr(c, "__name__", ""))
def test_a_change_holds_the_run_before_the_misfit_runs_and_the_old_code_resumes_it(
    change: Callable[[Desk], Any], said: list[str], url: str, bodies: Bodies
) -> None:
    desk = Desk(bodies)
    _run_until(original(desk), url, "act#2")
    bodies.ran.clear()
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(change(desk), run_id="r", store=url)
    assert held.value.reason == "diverged"
    for part in said:
        assert part in held.value.detail
    assert not bodies.ran
    view = outlast.Client(url).run("r")
    assert (view.status, view.reason) == ("held", "diverged")
    # Held again as long as the code does not fit; nothing is lost by trying.
    with pytest.raises(outlast.RunHeld):
        outlast.run(change(desk), run_id="r", store=url)
    assert outlast.run(original(desk), run_id="r", store=url) == "done"
    assert bodies.ran == {"act 3": 1, "tell 4": 1}


def _run_until(workflow: Any, url: str, key: str) -> None:
    """Die inside the body at `key`: it has begun, its outcome is not recorded."""
    with dying_at(url, kind="step.completed", key=key) as died, pytest.raises(outlast.StoreError):
        outlast.run(workflow, run_id="r", store=url)
    assert died()


def test_a_branch_on_something_unrecorded_is_found(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)
    weather = "sun"

    async def body() -> None:
        if weather == "sun":
            await desk.look(1)
        else:
            await desk.think(2)
        await desk.act(3)

    _run_until(flow(body), url, "act#1")
    weather = "rain"
    with pytest.raises(outlast.RunHeld, match="journal has look#0, the code now calls think"):
        outlast.run(flow(body), run_id="r", store=url)
    assert "think 2" not in bodies.ran


def test_new_calls_behind_the_recorded_ones_are_no_divergence(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def short() -> str:
        await desk.look(1)
        return "short"

    async def longer() -> str:
        await desk.look(1)
        await desk.think(2)
        return "longer"

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow(short), run_id="r", store=url)
    assert outlast.run(flow(longer), run_id="r", store=url) == "longer"
    assert bodies.ran == {"look 1": 1, "think 2": 1}


@pytest.mark.parametrize("colour", ["plain", "async"])
@pytest.mark.parametrize("bound", ["stops later", "a larger max"])
def test_a_loop_does_not_go_on_in_front_of_what_was_done_behind_it(
    bound: str, colour: str, url: str, bodies: Bodies
) -> None:
    """An effect of a turn that never was would come after what is recorded as having followed."""
    last = 2

    @step(effect="once")
    def mail(n: int) -> None:
        bodies(f"mail {n}")

    @step(effect="once")
    def report() -> None:
        bodies("report")

    @step
    def archive() -> None:
        bodies("archive")

    def turn(state: Any) -> bool:
        mail(state.n)
        state.n += 1
        return bound == "stops later" and state.n == last

    def loop() -> Any:
        return outlast.turns(n=0, max=9 if bound == "stops later" else last)

    def plain() -> str:
        for state in loop():
            if turn(state):
                break
        report()
        archive()
        return "done"

    async def awaited() -> str:
        async for state in loop():
            if turn(state):
                break
        report()
        archive()
        return "done"

    body = plain if colour == "plain" else awaited
    _run_until(flow(body), url, "archive#2")
    bodies.ran.clear()
    last = 4
    for _ in range(2):
        with pytest.raises(outlast.RunHeld, match="goes on with report#1") as held:
            outlast.run(flow(body), run_id="r", store=url)
        assert held.value.reason == "diverged"
    assert not bodies.ran
    last = 2
    assert outlast.run(flow(body), run_id="r", store=url) == "done"
    assert bodies.ran == {"archive": 1}


def test_a_call_in_front_of_tasks_that_are_recorded_is_found(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)
    changed = False

    async def branch(n: int) -> None:
        await desk.look(n)
        await desk.think(n)

    async def body() -> str:
        if changed:
            await desk.tell(9)
        await asyncio.gather(branch(1), branch(2))
        await asyncio.gather(branch(3))
        return "done"

    _run_until(flow(body), url, "look#s2.0")
    bodies.ran.clear()
    changed = True
    with pytest.raises(outlast.RunHeld, match=r"goes on with look#s0\.0, the code calls tell"):
        outlast.run(flow(body), run_id="r", store=url)
    assert not bodies.ran
    changed = False
    assert outlast.run(flow(body), run_id="r", store=url) == "done"
    assert bodies.ran == {"look 3": 1, "think 3": 1}


def test_a_call_that_was_made_and_not_yet_begun_is_none(url: str, bodies: Bodies) -> None:
    """Its position is in front of what is recorded; the code comes by it all the same."""
    desk = Desk(bodies)

    made = []

    async def body() -> str:
        later = desk.look(1)  # a coroutine: nothing of it has begun
        made.append(later)
        await desk.think(2)
        await desk.act(3)
        await later
        return "done"

    _run_until(flow(body), url, "act#2")
    assert outlast.run(flow(body), run_id="r", store=url) == "done"
    assert bodies.ran == {"think 2": 1, "act 3": 2, "look 1": 1}
    made[0].close()


def test_a_loop_of_which_nothing_is_recorded_is_no_misfit(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> str:
        async for _ in outlast.turns(n=0, max=1):
            pass
        await desk.look(1)
        await desk.think(2)
        return "done"

    _run_until(flow(body), url, "think#2")
    assert outlast.run(flow(body), run_id="r", store=url) == "done"
    assert bodies.ran == {"look 1": 1, "think 2": 2}


def test_a_loop_whose_max_is_below_the_saved_turn_is_held(url: str, bodies: Bodies) -> None:
    desk, most = Desk(bodies), 5

    async def body() -> int:
        async for turn in outlast.turns(n=0, max=most):
            turn.n += await desk.look(1)
        return turn.n

    _run_until(flow(body), url, "look#0.t3.0")
    most = 2
    with pytest.raises(outlast.RunHeld, match="turn 3 was saved, and the loop's max is 2 now"):
        outlast.run(flow(body), run_id="r", store=url)
    most = 5
    assert outlast.run(flow(body), run_id="r", store=url) == 5


@pytest.mark.parametrize("misfit", ["now", "plain step", "turns"])
def test_a_misfit_found_without_awaiting_does_not_block_the_loop(misfit: str, url: str) -> None:
    """The other task's attempt ends in the same event loop, so nobody may wait for it there."""

    @step
    async def slow() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        return 1

    @step
    def plain() -> int:
        return 2

    @step
    def other() -> int:
        return 3

    changed = False

    async def body() -> int:
        task = asyncio.create_task(slow_twice())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not changed:
            other()
        elif misfit == "now":
            outlast.now()
        elif misfit == "turns":
            for turn in outlast.turns(x=1, max=2):
                turn.x += other()
        else:
            plain()
        await task
        return 4

    async def slow_twice() -> None:
        await slow()

    with dying_at(url, kind="step.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow(body), run_id="r", store=url)
    changed = True
    patient = outlast.Settings(grace=3600)  # nobody could wait for it
    with pytest.raises(outlast.RunHeld, match="diverged"):
        outlast.run(flow(body), run_id="r", store=url, settings=patient)
    # The open attempt came to its end before the run was given back.
    assert "step.completed slow#s0.0" in kinds(url)
    changed = False
    assert outlast.run(flow(body), run_id="r", store=url) == 4


def test_steps_of_skipped_turns_are_not_missed(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> int:
        async for turn in outlast.turns(n=0, max=4):
            turn.n += await desk.act(1)
        return await desk.tell(turn.n)  # type: ignore[no-any-return]

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow(body), run_id="r", store=url)
    assert outlast.run(flow(body), run_id="r", store=url) == 4
    assert bodies.ran == {"act 1": 4, "tell 4": 1}


@pytest.mark.parametrize("saved", [False, True], ids=["in its first turn", "after a saved turn"])
@pytest.mark.parametrize("change", ["a step", "no loop"])
def test_a_loop_that_became_something_else_is_found(
    saved: bool, change: str, url: str, bodies: Bodies
) -> None:
    desk = Desk(bodies)

    async def loop() -> str:
        async for turn in outlast.turns(n=0, max=2):
            turn.n += await desk.act(turn.n)
        await desk.tell(4)
        return "done"

    async def changed() -> str:
        await desk.think(1) if change == "a step" else await desk.tell(4)
        return "done"

    _run_until(flow(loop), url, f"act#0.t{int(saved)}.0")
    bodies.ran.clear()
    with pytest.raises(outlast.RunHeld, match="journal has turns#0, the code now calls"):
        outlast.run(flow(changed), run_id="r", store=url)
    assert not bodies.ran
    assert outlast.run(flow(loop), run_id="r", store=url) == "done"


def test_a_step_that_became_a_loop_is_found(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def loop() -> str:
        async for _ in outlast.turns(n=0, max=2):
            await desk.look(1)
        return "done"

    _run_until(original(desk), url, "think#1")
    bodies.ran.clear()
    with pytest.raises(outlast.RunHeld, match="journal has look#0, the code now calls turns"):
        outlast.run(flow(loop), run_id="r", store=url)
    assert not bodies.ran
    assert outlast.run(original(desk), run_id="r", store=url) == "done"


@pytest.mark.parametrize("recorded", ["now", "sleep", "turns", "step"])
@pytest.mark.parametrize("called", ["now", "sleep", "turns", "step"])
def test_a_call_of_another_kind_is_noticed_even_under_the_same_name(
    recorded: str, called: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such names are refused today, but a journal may have them."""
    monkeypatch.setattr("outlast.api.decorators.RESERVED", frozenset())
    named = called if recorded == "step" else recorded

    @step(name=named)
    def act() -> int:
        return 1

    def call(what: str) -> None:
        if what == "now":
            outlast.now()
        elif what == "sleep":
            outlast.sleep(0).result()
        elif what == "turns":
            for _ in outlast.turns(n=0, max=2):
                pass
        else:
            act()

    what = recorded

    def body() -> str:
        call(what)
        return "done"

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow(body), run_id="r", store=url)
    what = called
    if recorded == called:
        assert outlast.run(flow(body), run_id="r", store=url) == "done"
        return
    with pytest.raises(outlast.RunHeld, match="the code now calls") as held:
        outlast.run(flow(body), run_id="r", store=url)
    assert held.value.reason == "diverged"
    what = recorded
    assert outlast.run(flow(body), run_id="r", store=url) == "done"
