"""Racing steps: a replay repeats every decision that the live run took."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop

import outlast
from outlast import step, workflow
from outlast.store import writer
from outlast.worker.stores import get_store
from tests.engine.tools import PATIENT, copy_store, dying_at, kinds, url_of

DELAY = random.Random(11)

SEEN: list[object] = []
"""What the workflow decided, as it went."""


@step
async def probe(what: str) -> str:
    if DELAY.random() < 0.3:
        await asyncio.sleep(DELAY.random() * 0.004)
    else:
        for _ in range(DELAY.randrange(20)):
            await asyncio.sleep(0)
    return what


@step
async def note(decided: object) -> None:
    """Its argument is compared on replay, so another decision there holds the run."""


def see(decided: object) -> object:
    outlast.random()  # as any call into the run, it ends a workflow that must stop
    SEEN.append(decided)
    return decided


async def _two(name: str) -> str:
    return await probe(f"{name}/{await probe(name)}")


async def first_completed() -> object:
    left = {asyncio.create_task(_two(str(n)), name=str(n)) for n in range(4)}
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        await note(see(sorted(t.get_name() for t in done)))
    return None


async def first_wins_and_the_others_are_cancelled() -> object:
    left = {asyncio.create_task(_two(str(n)), name=str(n)) for n in range(4)}
    done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await note(see(sorted(t.get_name() for t in done)))
    await asyncio.wait(left)
    await note(see([t.get_name() for t in sorted(left, key=lambda t: t.get_name())]))
    return None


async def append_order() -> object:
    order: list[str] = []

    async def one(name: str) -> None:
        for part in "abc":
            await probe(name + part)
            order.append(name + part)
            see(name + part)

    await asyncio.gather(*(one(str(n)) for n in range(3)))
    await note(order)
    return order


async def as_completed() -> object:
    order = []
    for done in outlast.as_completed([_two(str(n)) for n in range(4)]):
        order.append(see(await done))
        await note(list(order))
    return order


async def nested_gathers() -> object:
    order: list[str] = []

    async def level(depth: int, name: str) -> None:
        if depth:
            await asyncio.gather(*(level(depth - 1, f"{name}{n}") for n in range(2)))
        await probe(name)
        order.append(name)
        see(name)

    async def watcher() -> None:
        for n in range(6):
            await probe(f"w{n}")
            await note(see(list(order)))

    await asyncio.gather(level(3, ""), watcher())
    return order


async def nested_groups() -> object:
    order: list[str] = []

    async def level(depth: int, name: str) -> None:
        if depth:
            async with anyio.create_task_group() as group:
                for n in range(2):
                    group.start_soon(level, depth - 1, f"{name}{n}")
        await probe(name)
        order.append(name)
        see(name)

    async def watcher() -> None:
        for n in range(6):
            await probe(f"w{n}")
            await note(see(list(order)))

    async with asyncio.TaskGroup() as group:
        group.create_task(level(3, ""))
        group.create_task(watcher())
    return order


async def queue_workers() -> object:
    queue: asyncio.Queue[int] = asyncio.Queue()
    for n in range(9):
        queue.put_nowait(n)

    async def worker(name: str) -> None:
        while not queue.empty():
            item = queue.get_nowait()
            await probe(f"{name} does {see(item)}")  # who does what follows from the order

    await asyncio.gather(*(worker(f"w{n}") for n in range(3)))
    return None


async def steps_and_timers() -> object:
    order: list[str] = []

    async def ticker() -> None:
        for n in range(6):
            await outlast.sleep(0.002)
            order.append(f"tick {n}")
            see(f"tick {n}")

    async def worker(name: str) -> None:
        for n in range(6):
            await probe(f"{name}{n}")
            order.append(f"{name}{n}")
            see(f"{name}{n}")

    await asyncio.gather(ticker(), worker("x"), worker("y"))
    await note(order)
    return order


PROGRAMS = [
    first_completed, first_wins_and_the_others_are_cancelled, append_order, as_completed,
    nested_gathers, nested_groups, queue_workers, steps_and_timers,
]  # fmt: skip


def _run(flow: Callable[..., Any], url: str, *, uv: bool = False) -> object:
    SEEN.clear()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else None) as runner:
        return runner.run(outlast.execute(flow, run_id="r", store=url, settings=PATIENT))


def _replays_agree(
    flow: Callable[..., Any], folder: Path, *, number: int = 10**9, replays: int = 8
) -> None:
    """Run live, die at a write (at last at the one that says "completed"), and replay copies."""
    folder.mkdir()
    live = url_of(folder / "live.db")
    with dying_at(live, number, kind="run.completed") as died, pytest.raises(outlast.StoreError):
        _run(flow, live)
    assert died()
    decided = list(SEEN)
    for again in range(replays):
        copy = copy_store(live, folder / f"copy{again}.db")
        _run(flow, copy, uv=bool(again % 2))
        assert SEEN[: len(decided)] == decided, "\n".join(kinds(live))
        get_store(copy).store.close()
    get_store(live).store.close()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_replay_takes_the_decisions_of_the_live_run(
    program: Callable[[], Coroutine[Any, Any, object]], tmp_path: Path
) -> None:
    """Interrupted at its very end, so that all is recorded, and half-way, so that recorded and
    live steps race each other."""
    flow = workflow(program)
    for number in range(3):
        _replays_agree(flow, tmp_path / f"end{number}", replays=10)
    for number in range(5):
        at = DELAY.randrange(4, 40)
        _replays_agree(flow, tmp_path / f"mid{number}", number=at, replays=4)


def test_a_timer_does_not_overtake_a_result_that_was_committed_before_it(
    url: str, replica: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The news of the result's commit is held back until the timer was committed too."""
    told = threading.Event()
    real_deliver = writer.deliver

    def late(batch: Any) -> None:
        entries = [e for entry in batch.entries for e in getattr(entry.item, "entries", ())]
        if any(e.event.kind == "step.completed" for e in entries):
            told.wait(5)
        real_deliver(batch)

    def watched(name: str) -> None:
        real = getattr(writer.Store, name)

        def method(self: Any, item: Any, **more: Any) -> Any:
            result = real(self, item, **more)
            if any(e.event.kind == "timer.fired" for e in getattr(item, "entries", ())):
                told.set()
            return result

        monkeypatch.setattr(writer.Store, name, method)

    monkeypatch.setattr(writer, "deliver", late)
    watched("submit")
    watched("write_now")

    @workflow
    async def race() -> list[str]:
        order: list[str] = []

        async def stepping() -> None:
            order.append(await probe("step"))

        async def sleeping() -> None:
            await outlast.sleep(0.1)
            order.append("timer")

        await asyncio.gather(sleeping(), stepping())
        see(list(order))
        return order

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        _run(race, url)
    decided = list(SEEN)
    assert decided == [["step", "timer"]]
    _run(race, replica())
    assert decided == SEEN
