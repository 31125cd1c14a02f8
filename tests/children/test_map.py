"""`outlast.map`: one function for many items."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import outlast
from outlast import Settings, Terminal
from outlast.engine import fanout
from outlast.events import MapEnded, MapProgressed
from outlast.testing import replay
from tests.effects.colours import COLOURS, Colour
from tests.effects.stage import Stage, wait_for


def mapping(colour: Colour, fn: Callable[..., Any], items: Any, **options: Any) -> Any:
    """A workflow that maps a step of this body over the items."""
    if colour == "sync":

        @outlast.step(name="act", retry=outlast.Retry(attempts=1))
        def act(item: Any) -> Any:
            return fn(item)

        @outlast.workflow
        def flow() -> Any:
            return outlast.map(act, items, **options).result()

        return flow

    @outlast.step(name="act", retry=outlast.Retry(attempts=1))
    async def act_async(item: Any) -> Any:
        return await asyncio.to_thread(fn, item)

    @outlast.workflow(name="flow")
    async def flow_async() -> Any:
        return await outlast.map(act_async, items, **options)

    return flow_async


def start(stage: Stage, flow: Any, **options: Any) -> Any:
    return outlast.run(flow, run_id="run", store=stage.url, **options)


@pytest.mark.parametrize("colour", COLOURS)
def test_results_come_in_the_order_of_the_items(stage: Stage, colour: Colour) -> None:
    later = threading.Event()

    def body(item: str) -> str:
        if item == "b":
            later.set()
        else:
            assert later.wait(30)
        return item.upper()

    flow = mapping(colour, body, ["a", "b", "a"])
    assert start(stage, flow) == ["A", "B", "A"]
    assert [s.key.partition("#")[0] for s in stage.client().run("run").steps] == ["act"] * 3
    assert len({s.key for s in stage.client().run("run").steps}) == 3


class Counted:
    """Bodies that count how many of them are under way. They go on in groups of `size`."""

    def __init__(self, size: int) -> None:
        self.most = self.now = 0
        self._lock = threading.Lock()
        self._together = threading.Barrier(size, timeout=30)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self._together.wait()  # so many at least
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


@pytest.mark.parametrize("colour", COLOURS)
def test_so_many_items_are_under_way_and_no_more(stage: Stage, colour: Colour) -> None:
    counted = Counted(size=3)

    def body(item: int) -> int:
        with counted.under_way():
            return item

    flow = mapping(colour, body, range(12), limit=3)
    assert start(stage, flow) == list(range(12))
    assert counted.most == 3


def test_a_plain_function_is_mapped_in_threads_of_an_asynchronous_workflow(stage: Stage) -> None:
    counted = Counted(size=12)

    @outlast.step
    def act(item: int) -> int:
        with counted.under_way():
            return item

    @outlast.workflow
    async def flow() -> Any:
        return await outlast.map(act, range(12))

    assert start(stage, flow) == list(range(12))


@pytest.mark.parametrize("colour", COLOURS)
def test_an_error_ends_the_fan_out_and_what_is_open_comes_to_its_end(
    stage: Stage, colour: Colour
) -> None:
    failed, both = threading.Event(), threading.Barrier(2, timeout=30)

    def body(item: int) -> int:
        stage.log("begins", item)
        if item < 2:
            both.wait()
        if item == 0:
            failed.set()
            raise Terminal("no")
        assert failed.wait(30)
        stage.log("ends", item)
        return item

    flow = mapping(colour, body, range(6), limit=2)
    with pytest.raises(outlast.RunFailed, match="Terminal: no"):
        start(stage, flow)
    assert sorted(stage.effects()) in (
        ["begins 0", "begins 1", "ends 1"],
        ["begins 0", "begins 1", "begins 2", "ends 1", "ends 2"],  # it came before the error
    )
    statuses = {s.status for s in stage.client().run("run").steps}
    assert statuses == {"completed", "failed"}, "nothing is cut off"


@pytest.mark.parametrize("colour", COLOURS)
def test_errors_are_collected_if_that_is_wanted(stage: Stage, colour: Colour) -> None:
    def body(item: int) -> int:
        if item % 2:
            raise Terminal("odd", item)
        return item

    inner = mapping(colour, body, range(4), on_error="collect")

    @outlast.workflow
    def outer() -> Any:
        return [repr(one) for one in inner()]

    @outlast.workflow(name="outer")
    async def outer_async() -> Any:
        return [repr(one) for one in await outlast.map(odd_async, range(4), on_error="collect")]

    @outlast.step(retry=outlast.Retry(attempts=1))
    async def odd_async(item: int) -> int:
        return body(item)

    @outlast.step(retry=outlast.Retry(attempts=1))
    def odd(item: int) -> int:
        return body(item)

    @outlast.workflow(name="outer")
    def outer_sync() -> Any:
        return [repr(one) for one in outlast.map(odd, range(4), on_error="collect").result()]

    flow = outer_sync if colour == "sync" else outer_async
    assert start(stage, flow) == ["0", "Terminal('odd', 1)", "2", "Terminal('odd', 3)"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_fan_out_that_an_error_has_ended_ends_with_that_error_again(
    stage: Stage, colour: Colour
) -> None:
    """Whichever of several failing items comes first in a later life."""
    seen = []

    def inner(item: int) -> int:
        stage.log("act", item)
        if item == 0:
            wait_for(lambda: "step.failed" in stage.kinds(), "the other one to fail")
        raise Terminal("no", item)

    @outlast.step(effect="once")
    def gate() -> None:
        raise ValueError("in doubt")

    @outlast.step(retry=outlast.Retry(attempts=1))
    def act(item: int) -> int:
        return inner(item)

    @outlast.step(name="act", retry=outlast.Retry(attempts=1))
    async def act_async(item: int) -> int:
        return await asyncio.to_thread(inner, item)

    @outlast.workflow
    def flow() -> Any:
        try:
            outlast.map(act, range(2)).result()
        except Terminal as error:
            seen.append(error.args[1])
            gate()

    @outlast.workflow(name="flow")
    async def flow_async() -> Any:
        try:
            await outlast.map(act_async, range(2))
        except Terminal as error:
            seen.append(error.args[1])
            gate()

    body_of = flow if colour == "sync" else flow_async
    with pytest.raises(outlast.RunHeld):
        start(stage, body_of)
    stage.client().settle("run", "gate#1", outlast.Done(None))
    start(stage, body_of)
    assert seen[0] == seen[1]
    assert sorted(stage.effects()) == ["act 0", "act 1"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_function_over_steps_and_a_fan_out_in_a_fan_out(stage: Stage, colour: Colour) -> None:
    @outlast.step
    def act(n: int) -> int:
        return n + 1

    def inner(n: int) -> Any:
        return [act(act(n)), *outlast.map(act, [n, n]).result()]

    async def inner_async(n: int) -> Any:
        return [act(act(n)), *await outlast.map(act, [n, n])]

    @outlast.workflow
    def flow() -> Any:
        return outlast.map(inner, [1, 2]).result()

    @outlast.workflow(name="flow")
    async def flow_async() -> Any:
        return await outlast.map(inner_async, [1, 2])

    body = flow if colour == "sync" else flow_async
    assert start(stage, body) == [[3, 2, 2], [4, 3, 3]]
    assert len(stage.client().run("run").steps) == 8
    assert replay("run", body, store=stage.url).run_id == "run"


def test_items_are_told_apart_by_a_key_if_one_is_given(stage: Stage) -> None:
    class Ticket:
        def __init__(self, number: int) -> None:
            self.number = number

    @outlast.step(ignore=["ticket"])
    def act(ticket: Ticket) -> int:
        return ticket.number

    @outlast.workflow
    def flow(keyed: bool) -> Any:
        tickets = [Ticket(1), Ticket(2)]
        key = (lambda ticket: ticket.number) if keyed else None
        return outlast.map(act, tickets, key=key).result()

    with pytest.raises(outlast.RunFailed, match="key="):
        outlast.run(flow, False, run_id="without", store=stage.url)
    assert outlast.run(flow, True, run_id="run", store=stage.url) == [1, 2]


@pytest.mark.parametrize("colour", COLOURS)
def test_progress_is_shown_and_not_written_for_each_of_many_items(
    stage: Stage, colour: Colour
) -> None:
    flow = mapping(colour, lambda item: item, range(300))
    assert len(start(stage, flow)) == 300
    assert 1 <= stage.kinds("map#0").count("map.progressed") <= 100
    (shown,) = stage.client().run("run").maps
    assert (shown.key, shown.done, shown.total, shown.ended) == ("map#0", 300, 300, True)


@pytest.mark.parametrize("colour", COLOURS)
def test_an_item_that_is_held_holds_the_run(stage: Stage, colour: Colour) -> None:
    def body(item: int) -> int:
        stage.log("act", item)
        if item == 1:
            stage.client().pause("run")
        return item

    flow = mapping(colour, body, range(3), limit=1)
    with pytest.raises(outlast.RunHeld):
        start(stage, flow, settings=Settings(grace=0.2))
    assert stage.effects() == ["act 0", "act 1"]
    assert stage.resume(flow) == [0, 1, 2]
    assert stage.effects() == ["act 0", "act 1", "act 2"]


@pytest.mark.parametrize("colour", COLOURS)
def test_items_that_wait_leave_the_process_together(stage: Stage, colour: Colour) -> None:
    def nap(item: int) -> None:
        outlast.sleep(1000 * item).result()

    async def nap_async(item: int) -> None:
        await outlast.sleep(1000 * item)

    @outlast.workflow
    def flow() -> Any:
        return outlast.map(nap, [3, 1, 2]).result()

    @outlast.workflow(name="flow")
    async def flow_async() -> Any:
        return await outlast.map(nap_async, [3, 1, 2])

    with pytest.raises(outlast.RunWaiting):
        start(stage, flow if colour == "sync" else flow_async, wait=False)
    dues = [e for e in stage.client().journal("run") if e.kind == "timer.set"]
    assert len(dues) == 3
    view = stage.client().run("run")
    assert view.due_at is not None
    assert abs(view.due_at - (dues[0].at + 1000)) < 900, "that of the first one"


def test_a_cancelled_fan_out_ends_its_items(stage: Stage) -> None:
    begun, ended = asyncio.Event(), list[int]()

    @outlast.step
    async def act(n: int) -> None:
        if n == 1:
            begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(n)

    @outlast.workflow
    async def flow() -> str:
        async def fan() -> None:
            await outlast.map(act, range(2))

        task = asyncio.create_task(fan())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return "went on"

    assert start(stage, flow) == "went on"
    assert sorted(ended) == [0, 1]
    assert {s.status for s in stage.client().run("run").steps} == {"abandoned"}


def test_odd_options_are_refused(stage: Stage) -> None:
    @outlast.step
    async def act(n: int) -> None: ...

    @outlast.workflow
    def flow() -> list[str]:
        said = []
        for options in ({"limit": 0}, {"on_error": "ignore"}, {}):
            try:
                outlast.map(act, [1], **options)  # type: ignore[call-overload]
            except outlast.UsageError as error:
                said.append(str(error))
        return said

    limit, on_error, colour = start(stage, flow)
    assert "a whole number above 0" in limit
    assert "'raise' or 'collect'" in on_error
    assert "act is asynchronous" in colour
    with pytest.raises(outlast.OutsideRun):
        outlast.map(act, [1])


@pytest.mark.parametrize("colour", COLOURS)
def test_a_replay_of_an_interrupted_fan_out_fits(stage: Stage, colour: Colour) -> None:
    """Each item goes as far as its record; the code that is gone is missed all the same."""

    def body(item: int) -> int:
        if item == 1 and not stage.has("well"):
            stage.client().pause("run")
        return item

    flow = mapping(colour, body, range(4), limit=1)  # so that item 0 is recorded before
    with pytest.raises(outlast.RunHeld):
        start(stage, flow)
    assert replay("run", flow, store=stage.url).run_id == "run"
    other = mapping(colour, body, range(1, 4), limit=1)
    with pytest.raises(outlast.testing.Misfit):
        replay("run", other, store=stage.url)


def test_a_fan_out_that_stops_while_its_progress_is_written_is_not_recorded_as_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(item: int) -> int:
        if item == 1:
            stage.client().pause("run")
        return item

    def progress(done: int, failed: int) -> MapProgressed:
        wait_for(lambda: not _items_under_way(), "the next item to be refused")
        return MapProgressed(done, failed)

    flow = mapping("sync", body, range(3), limit=1)
    monkeypatch.setattr(fanout, "MapProgressed", progress)
    with pytest.raises(outlast.RunHeld):
        start(stage, flow)
    monkeypatch.undo()
    assert MapEnded.kind not in stage.kinds()
    assert stage.resume(flow) == [0, 1, 2]


def _items_under_way() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("outlast map#0")]


def test_an_item_that_waits_does_not_stop_those_that_work(stage: Stage) -> None:
    @outlast.step
    def act(n: int) -> None:
        wait_for(lambda: "timer.set" in stage.kinds(), "the other item to wait")
        stage.log("act", n)

    def item(n: int) -> None:
        if n == 0:
            outlast.sleep(3600).result()
        else:
            for again in range(5):
                act(again)

    @outlast.workflow
    def flow() -> None:
        outlast.map(item, range(2)).result()

    with pytest.raises(outlast.RunWaiting):
        start(stage, flow, wait=False)
    assert stage.effects() == [f"act {n}" for n in range(5)]


def listing(stage: Stage, colour: Colour, items: list[int]) -> Any:
    """A workflow that maps a step over a list which may change, and then calls two more steps, the
    last of which is in doubt at first."""

    @outlast.step
    def act(item: int) -> int:
        stage.log("act", item)
        return item

    @outlast.step
    def after(total: int) -> int:
        stage.log("after", total)
        return total

    @outlast.step(effect="once")
    def gate() -> None:
        raise ValueError("in doubt")

    @outlast.workflow
    def flow() -> int:
        total = sum(outlast.map(act, items, limit=1).result())
        gate()
        return after(total)

    @outlast.workflow(name="flow")
    async def flow_async() -> int:
        total = sum(await outlast.map(act, items, limit=1))
        gate()
        return after(total)

    return flow if colour == "sync" else flow_async


@pytest.mark.parametrize("changed", [[1, 3], [1, 2, 3, 4]], ids=["an item less", "one more"])
@pytest.mark.parametrize("colour", COLOURS)
def test_another_list_for_a_fan_out_that_has_ended_holds_the_run_before_anything_is_done(
    stage: Stage, colour: Colour, changed: list[int]
) -> None:
    """The workflow has gone on with the results of the old one."""
    items = [1, 2, 3]
    flow = listing(stage, colour, items)
    with pytest.raises(outlast.RunHeld):
        start(stage, flow)
    stage.client().settle("run", "gate#1", outlast.Done(None))
    items[:] = changed
    with pytest.raises(outlast.RunHeld) as held:
        start(stage, flow)
    assert held.value.reason == "diverged"
    assert stage.effects() == ["act 1", "act 2", "act 3"]
    items[:] = [3, 2, 1]
    assert start(stage, flow) == 6


@pytest.mark.parametrize("colour", COLOURS)
def test_an_item_of_a_fan_out_can_be_dropped_and_made_again(stage: Stage, colour: Colour) -> None:
    """The fan-out ends anew with it, in the run itself and in a copy."""
    flow = listing(stage, colour, [1, 2, 3])
    with pytest.raises(outlast.RunHeld):
        start(stage, flow)
    second = stage.client().run("run").steps[1].key
    stage.client().fork("run", second, new_id="copy", repeat_effects=True)
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="copy", store=stage.url)
    assert held.value.reason == "in-doubt"
    again = ["act 1", "act 2", "act 3", "act 2", "act 3"]
    assert stage.effects() == again
    stage.client().settle("copy", "gate#1", outlast.Done(None))
    assert outlast.run(flow, run_id="copy", store=stage.url) == 6
