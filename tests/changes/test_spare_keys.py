"""After `--accept-from`, a call that is made again comes under the idempotency key that it had,
wherever the code makes it now; and two different calls never come under one key."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import Client, step, turns, workflow
from outlast.engine.spare import SpareKeys
from outlast.events import StepStarted
from tests.changes.programs import HEAD, Workshop
from tests.changes.test_accept import Desk, accept, flow, run, started, until
from tests.checkers import check_all
from tests.engine.test_loading import check_nothing_is_missed
from tests.engine.tools import PATIENT, Bodies, dying_at


def keys_of(desk: Desk, since: int = 0) -> dict[str, list[str]]:
    """The idempotency keys under which each call was made, without repeats."""
    found: dict[str, list[str]] = {}
    for what, key in desk.keys[since:]:
        if key not in found.setdefault(what, []):
            found[what].append(key)
    return found


def shown(url: str) -> dict[str, str]:
    """The idempotency key of each step as an operator sees it, by its arguments."""
    return {s.preview: s.idempotency_key for s in Client(url).run("r").steps if s.name == "pay"}


# What the new code calls, where the old one had look 0, pay 1, pay 2, pay 3, look 9.
EDITS = {
    "a call in front": ["look 7", "look 0", "pay 1", "pay 2", "pay 3"],
    "a call between each": ["look 0", "look 7", "pay 1", "look 7", "pay 2", "look 7", "pay 3"],
    "the first is gone": ["pay 1", "pay 2", "pay 3"],
    "another order": ["pay 3", "pay 2", "look 0", "pay 1"],
}


@pytest.mark.parametrize("calls", EDITS.values(), ids=list(EDITS))
def test_a_repeat_keeps_its_key_wherever_the_code_makes_it_now(
    calls: list[str], url: str, bodies: Bodies
) -> None:
    desk = Desk(bodies)
    now = ["look 0", "pay 1", "pay 2", "pay 3"]

    async def body() -> None:
        for call in now:
            name, number = call.split()
            await getattr(desk, name)(int(number))
        await desk.look(9)

    until(flow(body), url, "look#4")
    first = keys_of(desk)
    assert all(len(keys) == 1 for keys in first.values())
    accept(url, "look#0")
    now = calls
    until(flow(body), url, f"look#{len(calls)}")
    paid = {f"pay {n}": first[f"pay {n}"] for n in (1, 2, 3)}
    assert {what: keys for what, keys in keys_of(desk).items() if "pay" in what} == paid
    assert shown(url) == {f"n={n}": first[f"pay {n}"][0] for n in (1, 2, 3)}
    # And once more: what was taken over is dropped, and found again at the old place.
    accept(url, next(s.key for s in Client(url).run("r").steps))
    now = ["look 0", "pay 1", "pay 2", "pay 3"]
    run(flow(body), url)
    assert {what: keys for what, keys in keys_of(desk).items() if "pay" in what} == paid
    assert {key: s.alias for key in ("pay#1", "pay#2") for s in started(url, key)[-1:]} == {
        "pay#1": "",
        "pay#2": "",
    }
    check_all(url, "r")


def test_a_death_between_opening_and_completion_keeps_the_key_that_was_taken_over(
    url: str, bodies: Bodies
) -> None:
    desk, new = Desk(bodies), False

    async def body() -> None:
        if new:
            await desk.look(0)
        await desk.pay(1)
        await desk.look(2)

    until(flow(body), url, "look#1")
    (first,) = keys_of(desk)["pay 1"]
    accept(url, "pay#0")
    new = True
    for _ in range(2):
        until(flow(body), url, "pay#1")
        assert shown(url) == {"n=1": first}
    run(flow(body), url)
    assert keys_of(desk)["pay 1"] == [first]
    assert [(e.attempt, e.alias) for e in started(url, "pay#1")] == [
        (n, "pay#0") for n in (1, 2, 3)
    ]
    check_all(url, "r")


def test_other_arguments_never_come_under_the_key(url: str, bodies: Bodies) -> None:
    desk, numbers = Desk(bodies), [1, 2]

    async def body() -> None:
        for number in numbers:
            await desk.pay(number)
        await desk.look(9)

    until(flow(body), url, "look#2")
    first = keys_of(desk)
    accept(url, "pay#0")
    numbers = [2, 30, 1]  # at a dropped position with nothing that fits; the others change places
    run(flow(body), url)
    again = keys_of(desk)
    assert (again["pay 1"], again["pay 2"]) == (first["pay 1"], first["pay 2"])
    assert len({key for keys in again.values() for key in keys}) == 4
    check_all(url, "r")


@pytest.mark.parametrize("now", [1, 2, 3])
def test_each_dropped_call_leaves_its_key_once(now: int, url: str, bodies: Bodies) -> None:
    desk, times = Desk(bodies), 2

    async def body() -> None:
        await desk.look(0)
        await asyncio.gather(*(task() for _ in range(times)))
        await desk.look(9)

    async def task() -> None:
        await desk.pay(5)

    until(flow(body), url, "look#1")
    (first, second), made = keys_of(desk)["pay 5"], len(desk.keys)
    accept(url, "look#0")
    times = now
    until(flow(body), url, "look#1")
    again = Counter(key for what, key in desk.keys[made:] if what == "pay 5")
    assert set(again.values()) == {1}
    assert len(again) == now
    assert set(again) >= ({first, second} if now > 1 else {first})
    run(flow(body), url)
    check_all(url, "r")


def test_a_step_whose_arguments_are_not_compared_takes_over_in_order(
    url: str, bodies: Bodies
) -> None:
    known: list[tuple[int, str]] = []
    numbers, skipped = [1, 2], True

    @step(name="ask", match="name", effect="idempotent")
    async def ask(n: int) -> int:
        known.append((n, outlast.idempotency_key()))
        return n

    desk = Desk(bodies)

    async def body() -> None:
        if not skipped:
            await desk.look(0)
        for number in numbers:
            await ask(number)
        await desk.look(9)

    until(flow(body), url, "look#2")
    accept(url, "ask#0")
    numbers, skipped = [10, 20, 30], False
    run(flow(body), url)
    (_, one), (_, two) = known[:2]
    assert [key for _, key in known[2:4]] == [two, one], "that of the same position first"
    assert known[4][1] not in (one, two)
    check_all(url, "r")


# ---- turn loops


@pytest.mark.parametrize("back", ["turns#0", "pay#0.t1.1"])
def test_a_key_taken_over_in_a_turn_that_is_skipped_is_not_given_out_again(
    back: str, url: str, bodies: Bodies
) -> None:
    desk, extra = Desk(bodies), False

    @workflow(name="loop", max_repeats=None)
    async def loop() -> None:
        async for turn in turns(n=0):
            await desk.look(turn.n)
            await desk.pay(7)  # the same in each turn: only its turn tells one from another
            if extra:
                await desk.pay(7)
            turn.n += 1
            if turn.n == 12:
                break

    def start() -> object:
        return outlast.run(loop, run_id="r", store=url, settings=PATIENT)

    with dying_at(url, kind="step.completed", key="look#0.t6.0"), pytest.raises(outlast.StoreError):
        start()
    made = len(desk.keys)
    accept(url, "turns#0" if back == "turns#0" else "pay#0.t1.1")
    extra = True
    for number in (4, 7, 9):
        key = f"look#0.t{number}.0"
        with dying_at(url, kind="step.completed", key=key), pytest.raises(outlast.StoreError):
            start()
        check_nothing_is_missed(url)
    start()
    paid = [key for what, key in desk.keys[made:] if what == "pay 7"]
    assert len(paid) == len(set(paid)), "two payments under one key"
    before = {key for what, key in desk.keys[:made] if what == "pay 7"}
    assert len(before & set(paid)) == (6 if back == "turns#0" else 5)
    check_all(url, "r")


# ---- threads


def test_calls_in_threads_take_a_key_each() -> None:
    spare = SpareKeys()
    many = 200
    for number in range(many):
        spare.drop(f"pay#{number}", StepStarted(digest="d"))
    taken, together = [], threading.Barrier(8)

    def ask(first: int) -> None:
        together.wait()
        taken.extend([spare.take(f"pay#s{first}.{n}", "d") for n in range(many // 8)])

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted((f"pay#{n}", 0) for n in range(many))


# ---- the command

SHOP = (
    HEAD
    + """
@outlast.step(effect="idempotent")
def charge(order: str) -> str:
    did("charge", order, outlast.idempotency_key())
    return order

@outlast.step(effect="read")
def check(order: str) -> bool:
    return True

@outlast.step(effect="read")
def ship() -> None:
    did("ship")

@outlast.workflow
def desk():
    for order in "ABC":
        charge(order)
    ship()
"""
)


EDIT: dict[str, Callable[[str], str]] = {
    "a check before each": lambda text: text.replace(
        "        charge(order)\n    ship", "        check(order)\n        charge(order)\n    ship"
    ),
    "the first is gone": lambda text: text.replace('"ABC"', '"BC"'),
}


@pytest.mark.parametrize("edit", EDIT.values(), ids=list(EDIT))
@pytest.mark.parametrize("how", [(), ("--in-process",)], ids=["worker", "in-process"])
def test_orders_that_were_charged_are_recognised(
    how: tuple[str, ...], edit: Callable[[str], str], shop: Workshop
) -> None:
    shop.write(SHOP)
    shop.die_at("ship")
    assert shop.run().killed
    charged = {line for line in shop.effects() if line.startswith("charge")}
    assert len(charged) == 3
    shop.write(edit(SHOP))
    done = shop.command("resume", "r", "--accept-from", "charge#0", *how)
    assert done.code == 0, done.stderr
    assert {line for line in shop.effects() if line.startswith("charge")} == charged
    steps: list[Any] = [s for s in shop.view().steps if s.name == "charge"]
    assert {f"charge {s.preview[7:8]} {s.idempotency_key}" for s in steps} <= charged
