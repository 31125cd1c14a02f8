"""`fork RUN --from STEP`: a new run of what another one has done; it repeats no effect unasked."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import outlast
from outlast import Client, NotDone, step, turns, workflow
from outlast.events import RunCreated, decode
from outlast.worker.execution import check_run_id
from outlast.worker.stores import get_store
from tests.changes.programs import Workshop
from tests.changes.test_accept import PAY, Desk, accept, flow, run, tick, until
from tests.checkers import check_all
from tests.engine.test_loading import check_nothing_is_missed, loaded
from tests.engine.tools import PATIENT, Bodies, dying_at, journal


def fork(url: str, key: str, **options: Any) -> outlast.RunView:
    return Client(url).fork("r", key, new_id="f", **options)


def whole_store(url: str) -> list[Any]:
    """All that is written, to see that nothing was."""
    store = get_store(url).store
    runs = store.read("list_runs", status=None, workflow=None, limit=-1)
    return [runs, *(store.read("read_events", run_id=row[0]) for row in runs)]


@pytest.mark.parametrize("ended", [False, True], ids=["interrupted", "completed"])
def test_a_fork_goes_on_from_a_step_and_leaves_its_source_alone(
    ended: bool, url: str, bodies: Bodies
) -> None:
    desk, number = Desk(bodies), 2

    async def body() -> list[int]:
        return [await desk.pay(1), await desk.look(number), await desk.look(3)]

    if ended:
        run(flow(body), url)
    else:
        until(flow(body), url, "look#2")
    before, source = journal(url), Client(url).run("r")
    view = fork(url, "look#1", by="ann")
    assert (view.run_id, view.status, view.forked_from, view.forked_at) == (
        "f",
        "queued",
        "r",
        "look#1",
    )
    assert view.trace_id != source.trace_id
    assert [s.key for s in view.steps] == ["pay#0"]
    number = 20
    assert run(flow(body), url, "f") == [1, 20, 3]
    assert bodies.ran == {"pay 1": 1, "look 2": 1, "look 20": 1, "look 3": 2}
    assert journal(url) == before
    first = journal(url, "f")[0]
    created = decode(first.kind, first.data)
    assert isinstance(created, RunCreated)
    assert created.forked is not None
    assert (created.forked.seq, created.forked.head) == (source.seq, source.head)
    assert (created.forked.step, created.forked.by) == ("look#1", "ann")
    copied = [(e.kind, e.key, e.data, e.at) for e in journal(url, "f")[1:3]]
    assert copied == [(e.kind, e.key, e.data, e.at) for e in before[2:4]]
    check_all(url, "f")


def test_what_a_fork_would_repeat_is_listed_and_wants_a_yes(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    @step(effect="once")
    async def refused(n: int) -> None:
        raise NotDone("no")

    async def body() -> list[int]:
        first = [await desk.look(1), await desk.think(2), await desk.pay(3), await desk.send(4)]
        try:
            await refused(5)
        except NotDone:
            first.append(5)
        return [*first, await desk.pay(6)]

    until(flow(body), url, "pay#5")
    before = whole_store(url)
    with pytest.raises(outlast.UsageError) as said:
        fork(url, "look#0")
    assert str(said.value).splitlines()[1:] == [
        "  think#1 (n=2): assumed, completed",
        "  pay#2 (n=3): idempotent, completed",
        "  send#3 (n=4): once, completed",
        "  pay#5 (n=6): idempotent, interrupted",
        "  outlast fork r --from 'look#0' --id f --repeat-effects",
    ]
    assert whole_store(url) == before
    fork(url, "look#0", repeat_effects=True)
    assert run(flow(body), url, "f") == [1, 2, 3, 4, 5, 6]
    assert bodies.ran["send 4"] == 2
    assert desk.keys[-1][1] != dict(desk.keys[:-1])["pay 6"], "a fork has keys of its own"
    check_all(url, "f")


def test_what_stays_but_has_not_ended_is_made_again(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> list[object]:
        return list(await asyncio.gather(desk.send(1), desk.look(2), outlast.sleep(0)))

    until(flow(body), url, "send#0")
    with pytest.raises(outlast.UsageError, match=r"send#0 \(n=1\): once, in-doubt"):
        fork(url, "@end")
    view = fork(url, "@end", repeat_effects=True)
    assert "send#0" not in [s.key for s in view.steps]
    assert run(flow(body), url, "f") == [1, 2, None]
    assert bodies.ran["send 1"] == 2
    check_all(url, "f")


def test_a_settled_step_is_not_made_again(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> list[int]:
        return [await desk.send(1), await desk.look(2)]

    until(flow(body), url, "send#0")
    Client(url).settle("r", "send#0", outlast.Done(7))
    fork(url, "@end")
    assert run(flow(body), url, "f") == [7, 2]
    assert bodies.ran == {"send 1": 1, "look 2": 1}
    check_all(url, "f")


def test_a_run_that_failed_behind_its_last_step_goes_on_in_a_fork(url: str, bodies: Bodies) -> None:
    desk, broken = Desk(bodies), True

    async def body() -> list[int]:
        done = [await desk.send(1), await desk.pay(2)]
        if broken:
            raise ValueError("after all that")
        return done

    with pytest.raises(outlast.RunFailed):
        run(flow(body), url)
    fork(url, "@end")
    broken = False
    assert run(flow(body), url, "f") == [1, 2]
    assert bodies.ran == {"send 1": 1, "pay 2": 1}


def test_what_was_dropped_is_not_copied_but_its_effects_are_told(url: str, bodies: Bodies) -> None:
    desk, number = Desk(bodies), 2

    async def body() -> list[int]:
        return [await desk.look(1), await desk.look(number), await desk.pay(number)]

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        run(flow(body), url)
    assert accept(url, "look#1") == ["look#1", "pay#2"]
    number = 20
    until(flow(body), url, "pay#2", kind="step.started")
    with pytest.raises(outlast.UsageError, match=r"pay#2 \(n=2\): idempotent, completed"):
        fork(url, "@end")
    view = fork(url, "@end", repeat_effects=True)
    assert [(s.key, s.preview) for s in view.steps] == [("look#0", "n=1"), ("look#1", "n=20")]
    assert "run.accepted" not in [e.kind for e in journal(url, "f")]
    assert run(flow(body), url, "f") == [1, 20, 20]
    check_all(url, "f")


def test_a_copied_cancellation_waits_as_long_as_it_did(url: str, bodies: Bodies) -> None:
    """How long the time-out may take that cancels the call again follows from the source's claims,
    which a fork does not have."""
    desk = Desk(bodies)

    @step(effect="read")
    async def slow() -> None:
        bodies("slow")
        await asyncio.Event().wait()

    async def body() -> list[object]:
        try:
            async with asyncio.timeout(0.01):
                await slow()
        except TimeoutError:
            return [await desk.look(1), await desk.look(2)]
        return []

    until(flow(body), url, "look#2")
    fork(url, "look#2")
    seen = check_nothing_is_missed(url, "f")
    assert 0 < seen.calls["0"].patience < 3600
    Client(url).fork("f", "@end", new_id="g")
    assert check_nothing_is_missed(url, "g").calls["0"].patience == seen.calls["0"].patience
    assert run(flow(body), url, "g") == [1, 2]
    assert bodies.ran["slow"] == 1
    check_all(url, "g")


def test_a_fork_of_a_run_under_way(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)
    said: list[object] = []

    async def body() -> list[int]:
        done = [await desk.look(1)]
        if outlast.current().run_id == "r":
            said.append(Client(url).fork("r", "@end", new_id="f").status)
        return [*done, await desk.look(2)]

    assert run(flow(body), url) == [1, 2]
    assert said == ["queued"]
    assert run(flow(body), url, "f") == [1, 2]
    assert bodies.ran == {"look 1": 1, "look 2": 2}


def test_ids_of_forks(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> int:
        return await desk.look(1)  # type: ignore[no-any-return]

    long = "r" * 200
    run(flow(body), url, long)
    client = Client(url)
    made = client.fork(long, "@end").run_id
    check_run_id(made)
    assert made.startswith("rrr")
    assert "-fork-" in made
    before = whole_store(url)
    with pytest.raises(outlast.UsageError, match="already; choose another id"):
        client.fork(long, "@end", new_id=long)
    with pytest.raises(outlast.UsageError, match="200 printable characters"):
        client.fork(long, "@end", new_id="@last")
    with pytest.raises(outlast.UsageError, match="the nearest are: look#0"):
        client.fork(long, "look#7", new_id="g")
    with pytest.raises(outlast.UnknownRun):
        client.fork("nobody", "look#0")
    assert whole_store(url) == before


@workflow(name="loop")
async def loop(n: int) -> str:
    await tick("before")
    async for turn in turns(said=""):
        turn.said += await tick(f"turn {len(turn.said)}")
        if len(turn.said) >= n:
            break
    return await tick(turn.said)


def start(url: str, run_id: str, n: int = 250) -> Callable[[], Any]:
    return lambda: outlast.run(loop, n, run_id=run_id, store=url, settings=PATIENT)


def die_in_turn(url: str, run_id: str, turn: int) -> None:
    key = f"tick#1.t{turn}.0"
    with dying_at(url, kind="step.completed", key=key) as died, pytest.raises(outlast.StoreError):
        start(url, run_id)()
    assert died()


@pytest.mark.parametrize("step", ["tick#1.t150.0", "tick#1.t40.0", "@end"])
def test_a_fork_in_a_long_loop_reads_little_when_it_is_resumed(url: str, step: str) -> None:
    die_in_turn(url, "r", 150)
    assert fork(url, step).turn == (40 if "t40" in step else 150)
    check_nothing_is_missed(url, "f")
    few = len(loaded(url, "f")[0])
    assert few < len(journal(url, "f")) - 30
    die_in_turn(url, "f", 200)
    check_nothing_is_missed(url, "f")
    assert start(url, "f")() == "x" * 250
    check_all(url, "f")


# ---- the command


def test_the_command_forks_and_goes_on(shop: Workshop) -> None:
    shop.write(PAY)
    assert shop.run().result == [1, 20, 3]
    shop.write(PAY.replace("look(3)", "look(30)"))
    refused = shop.command("fork", "r", "--from", "look#0", "--id", "f")
    assert refused.code == 2
    assert refused.stderr.splitlines()[1:] == [
        "  pay#1 (n=2): idempotent, completed",
        "  outlast fork r --from 'look#0' --id f --repeat-effects",
    ]
    done = shop.command("fork", "r", "--from", "look#2", "--id", "f")
    assert done.result == [1, 20, 30]
    assert "run f is a fork of r at look#2" in done.stderr
    assert "forked from r at look#2" in shop.command("show", "f").stdout
    assert shop.effects() == ["look 1", "pay 2", "look 3", "look 30"]
    ended = shop.command("fork", "r", "--from", "look#0", "--repeat-effects", "--json")
    view = json.loads(ended.stdout)
    assert (view["result"], view["forked_from"]) == ([1, 20, 30], "r")
    assert view["run_id"].startswith("r-fork-")
    assert {v.ok for v in Client(shop.url).verify()} == {True}


def test_of_two_forks_with_one_id_one_is_made(shop: Workshop) -> None:
    shop.write(PAY)
    assert shop.run().code == 0
    words = ("fork", "r", "--from", "look#2", "--id", "f", "--wait")
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda _: shop.command(*words), range(2)))
    assert sorted(e.code for e in ended) == [0, 2]
    assert "already; choose another id" in next(e.stderr for e in ended if e.code == 2)
    assert shop.effects().count("look 3") == 2
