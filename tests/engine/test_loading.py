"""A resume in a turn loop reads little, and learns from it all that the whole journal says."""

import asyncio
import contextlib
from collections.abc import Callable

import apsw
import pytest

import outlast
from outlast import step, turns, workflow
from outlast.engine.history import History, build
from outlast.engine.loading import load
from outlast.records import StoredEvent
from outlast.worker.stores import get_store
from tests.engine.tools import PATIENT, dying_at, journal


@step
async def look(n: int) -> int:
    return n


@step
async def fails(n: int) -> int:
    raise ValueError(n)


@workflow
async def chat(n: int) -> int:
    await look(-1)
    async for turn in turns(said=[]):
        await asyncio.gather(look(len(turn.said)), look(0))
        if len(turn.said) == n:
            await outlast.sleep(3600)
        turn.said.append("x" * 900)
    return 0


@workflow
async def two_loops(n: int) -> int:
    for _ in range(2):
        async for turn in turns(i=0):
            await look(turn.i)
            if turn.i == n:
                break
            turn.i += 1
    await outlast.sleep(3600)
    return 0


@workflow
async def with_company(n: int) -> int:
    async def beside() -> None:
        for i in range(n):
            await look(i)
        await outlast.sleep(3600)

    async with asyncio.TaskGroup() as group:
        group.create_task(beside())
        async for turn in turns(i=0):
            await look(turn.i)
            turn.i += 1
            if turn.i == 2 * n:
                break
    return 0


@workflow
async def loops_in_tasks(n: int) -> int:
    async def loop() -> None:
        async for turn in turns(i=0):
            await look(turn.i)
            if turn.i == n:
                await outlast.sleep(3600)
            turn.i += 1

    await asyncio.gather(loop(), loop())
    return 0


@workflow
async def loops_in_turns(n: int) -> int:
    async def inner() -> None:
        async for turn in turns(i=0):
            await look(turn.i)
            if turn.i == n:
                break
            turn.i += 1

    async for turn in turns(i=0):
        await asyncio.create_task(inner())
        if turn.i == n:
            await outlast.sleep(3600)
        turn.i += 1
    return 0


@workflow
async def with_errors(n: int) -> int:
    async for turn in turns(i=0):
        with contextlib.suppress(ValueError):
            await fails(turn.i)
        await outlast.sleep(0)
        if turn.i == n:
            await outlast.sleep(3600)
        turn.i += 1
    return 0


ALL = [chat, two_loops, with_company, loops_in_tasks, loops_in_turns, with_errors]


def loaded(url: str, run_id: str = "r") -> tuple[list[StoredEvent], StoredEvent | None]:
    """What a resume would read."""
    store = get_store(url).store
    loop, since = store.read("read_claimed", run_id=run_id)[0][1:]
    assert loop is None or isinstance(loop, str)
    assert isinstance(since, int)
    return load(store, run_id, loop, since)


def check_nothing_is_missed(url: str, run_id: str = "r") -> History:
    """A resume learns the same from the part that it reads as from all of it."""
    rows, altered = loaded(url, run_id)
    assert altered is None
    seen, whole = build(rows), build(journal(url, run_id))
    assert seen == whole
    return seen


def start(url: str, flow: Callable[..., object], n: int) -> None:
    with contextlib.suppress(outlast.RunWaiting):
        outlast.run(flow, n, run_id="r", store=url, wait=False, settings=PATIENT)


@pytest.mark.parametrize("flow", ALL, ids=lambda flow: flow.__name__)
def test_a_part_of_the_journal_says_the_same_as_all_of_it(
    url: str, flow: Callable[..., object]
) -> None:
    """At every death of a run, and after the resume that follows."""
    for number in range(2, 400):
        with dying_at(url, number) as died, contextlib.suppress(outlast.StoreError):
            start(url, flow, 3)
        check_nothing_is_missed(url)
        if not died():
            break
    else:
        raise AssertionError("the run does not come to its sleep")


def test_of_the_turns_before_only_saves_are_read(url: str) -> None:
    start(url, chat, 200)
    rows, _ = loaded(url)
    skipped = [e for e in rows if ".t" in (e.key or "") and ".t200." not in (e.key or "")]
    assert not skipped
    assert sum(e.kind == "turn.saved" for e in rows) < 200
    assert len(journal(url)) > 1000


def test_a_resume_in_the_middle_of_a_long_loop_comes_to_the_same_end(url: str) -> None:
    with dying_at(url, 700), contextlib.suppress(outlast.StoreError):
        start(url, chat, 150)
    assert len(loaded(url)[0]) < len(journal(url)) - 200
    start(url, chat, 150)
    assert check_nothing_is_missed(url).turns["1"][-1].turn == 150


@pytest.mark.parametrize("back", [0, 1], ids=["the last save", "the one before"])
def test_a_saved_state_that_was_altered_is_noticed(url: str, back: int) -> None:
    start(url, chat, 8)
    seq = [e.seq for e in journal(url) if e.kind == "turn.saved"][-1 - back]
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("DROP TRIGGER events_are_not_changed")
    connection.execute(
        "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'xxx', 'yxx') AS BLOB) "
        "WHERE seq = ?",
        (seq,),
    )
    connection.close()
    _, altered = loaded(url)
    assert altered is not None
    assert altered.seq == seq


def test_what_happens_beside_a_loop_after_its_last_save_is_read_once(url: str) -> None:
    async def beside(go: asyncio.Event) -> None:
        await go.wait()
        with contextlib.suppress(ValueError):
            await fails(0)

    @workflow
    async def flow(n: int) -> None:
        go = asyncio.Event()
        company = asyncio.create_task(beside(go))
        async for turn in turns(i=0):
            await look(turn.i)
            if turn.i == n:
                go.set()
                await company
                await look(turn.i)  # from here on there is nothing but the loop again
                await outlast.sleep(3600)
            turn.i += 1

    start(url, flow, 3)
    seen = check_nothing_is_missed(url)
    assert [past.failures for past in seen.calls.values() if past.name == "fails"] == [1]
