"""`handle.events()` and `outlast.emit`: what happens in a run, as it happens."""

import asyncio
import threading

import pytest

import outlast
from outlast.engine import emitting
from tests.ownership.children import until
from tests.serving.programs import desk
from tests.serving.stage import Stage


def test_a_listener_that_comes_back_gets_every_event_once_and_in_order(stage: Stage) -> None:
    handle = outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
    stage.serve()
    first = []
    for event in handle.events():
        assert isinstance(event, outlast.StoredEvent)
        first.append(event)
        if event.kind == "step.completed":
            break
    stage.open("a")
    rest = list(handle.events(after=first[-1].seq))
    assert first + rest == stage.client.journal("a")
    assert stage.kinds("a")[-1] == "run.completed"


@pytest.mark.parametrize("when", ["live", "afterwards"])
def test_what_a_step_emits_comes_between_its_start_and_its_end(stage: Stage, when: str) -> None:
    @outlast.step(retry=outlast.Retry(attempts=2, initial=0.01))
    async def think() -> str:
        outlast.emit("token", "a")
        await asyncio.sleep(0)
        outlast.emit("token", "b")
        if outlast.current().attempt == 1:
            raise ConnectionError("try again")
        return "ab"

    @outlast.workflow
    async def flow() -> str:
        return await think()

    async def main() -> list[object]:
        async with outlast.serving(flow, store=stage.url):
            handle = await outlast.start(flow, run_id="f", store=stage.url)
            listening = handle.events()
            if when == "afterwards":
                await handle.result(timeout=30)
            return [told async for told in listening]

    found = [
        (e.name, e.data, e.step, e.attempt) if isinstance(e, outlast.Emitted) else e.kind
        for e in asyncio.run(main())
        if isinstance(e, outlast.Emitted) or e.kind.startswith("step.")  # type: ignore[attr-defined]
    ]
    assert found == [
        "step.started",
        ("token", "a", "think#0", 1),
        ("token", "b", "think#0", 1),
        "step.failed",
        "step.started",
        ("token", "a", "think#0", 2),
        ("token", "b", "think#0", 2),
        "step.completed",
    ]
    assert "token" not in "".join(event.data.decode() for event in stage.stored("f"))


def test_a_plain_step_is_heard_in_a_plain_loop(stage: Stage) -> None:
    heard, told = threading.Event(), []

    @outlast.step
    def think() -> None:
        outlast.emit("thought", {"of": "lamps"})
        assert heard.wait(30), "before the step has ended"

    @outlast.workflow
    def flow() -> None:
        think()

    handle = outlast.submit(flow, run_id="f", store=stage.url)
    listening = handle.events()
    with outlast.serving(flow, store=stage.url):
        for item in listening:
            if isinstance(item, outlast.Emitted):
                told.append(item.data)
                heard.set()
    assert told == [{"of": "lamps"}]


def test_a_listener_that_does_not_listen_forgets_the_oldest_and_holds_no_step_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitting, "BUFFER", 3)

    @outlast.step
    async def chatter() -> None:
        for n in range(10):
            outlast.emit("n", n)

    @outlast.workflow
    async def flow() -> None:
        await chatter()

    handle = outlast.submit(flow, run_id="f", store=stage.url)
    slow = handle.events()
    with outlast.serving(flow, store=stage.url):
        handle.result(timeout=30).result()
    heard = [item.data for item in slow if isinstance(item, outlast.Emitted)]
    assert (heard, slow.dropped) == ([7, 8, 9], 7)


def test_nobody_has_to_listen_and_listeners_that_go_are_forgotten(stage: Stage) -> None:
    @outlast.step
    async def chatter() -> None:
        outlast.emit("n", 1)

    @outlast.workflow
    async def flow() -> None:
        await chatter()

    handle = outlast.submit(flow, run_id="f", store=stage.url)
    listening = handle.events()
    del listening
    with outlast.serving(flow, store=stage.url):
        handle.result(timeout=30).result()
        until(lambda: not emitting._listeners, "the listeners to be forgotten")


def test_emit_is_for_the_bodies_of_steps(stage: Stage) -> None:
    with pytest.raises(outlast.OutsideRun, match="body of a step"):
        outlast.emit("token", "a")

    @outlast.workflow
    async def flow() -> None:
        outlast.emit("token", "a")

    handle = outlast.submit(flow, run_id="f", store=stage.url)
    with (
        outlast.serving(flow, store=stage.url),
        pytest.raises(outlast.RunFailed, match="body of a step"),
    ):
        handle.result(timeout=30).result()


def test_a_run_that_is_held_is_listened_to_until_it_has_ended(stage: Stage) -> None:
    handle = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
    stage.client.pause("a")
    kinds: list[str] = []
    for event in handle.events():
        assert isinstance(event, outlast.StoredEvent)
        kinds.append(event.kind)
        if event.kind == "run.held":
            stage.client.kill("a")
    assert kinds == ["run.created", "run.held", "run.killed"]
