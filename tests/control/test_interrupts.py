"""A body of a killed run is interrupted in its thread, in a system call too; and no interrupt comes
out anywhere else than in a body."""

import asyncio
import contextlib
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import outlast
from outlast.control import Kill
from outlast.engine import interrupts
from outlast.engine.interrupts import StepInterrupted
from outlast.engine.requests import Body
from outlast.worker.stores import get_store
from outlast.world import World
from tests.checkers import check_all
from tests.ownership.children import until

BODIES = 20_000


def asked(fn: Callable[..., object], *args: object) -> Body:
    """What a driver asks for, as far as `call` looks at it."""
    run = SimpleNamespace(executing={})
    attempt = SimpleNamespace(run=run, key="act#0")
    return cast(Body, SimpleNamespace(fn=fn, args=args, kwargs={}, attempt=attempt))


# ---- where it comes out


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns at every opportunity."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("where", ["main thread", "other thread"])
@pytest.mark.usefixtures("impatient")
def test_however_often_bodies_are_struck_nothing_comes_out_between_them(where: str) -> None:
    run: Any = SimpleNamespace(executing={})
    over = threading.Event()

    def strike() -> None:
        while not over.is_set():
            interrupts.interrupt(run)

    said: list[str] = []

    def bodies() -> None:
        attempt = SimpleNamespace(run=run, key="act#0")
        for number in range(BODIES):
            body: Any = SimpleNamespace(fn=sum, args=([number],), kwargs={}, attempt=attempt)
            body.fn = (lambda of: [n for n in range(20) if n] and sum(of)) if number % 2 else sum
            try:
                said.append("returned" if interrupts.call(body) == number else "wrong")
            except StepInterrupted:
                said.append("interrupted")
            run.executing.pop("act#0", None)

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        if where == "main thread":
            with interrupts.hearing_nudges():
                bodies()
        else:
            thread = threading.Thread(target=bodies)
            thread.start()
            thread.join()
    finally:
        over.set()
        striker.join()
    assert len(said) == BODIES, "one came out between two bodies"
    assert set(said) == {"returned", "interrupted"}


def test_an_interrupt_that_is_being_sent_while_the_body_ends_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    striking, send = threading.Event(), interrupts._send
    body: Any = None

    def slowly(thread: int, exc: int | None) -> int:
        if exc is not None:  # the striker has looked, and seen that the body has not ended
            striking.set()
            until(lambda: body.leaving, "the end of the body")
        return int(send(thread, exc))

    monkeypatch.setattr(interrupts, "_send", slowly)
    request = asked(striking.wait)
    striker = threading.Thread(target=lambda: body.strike())

    def begin() -> bool:
        nonlocal body
        (body,) = request.attempt.run.executing.values()
        striker.start()
        return striking.wait()

    request.fn = begin  # type: ignore[misc]
    with contextlib.suppress(StepInterrupted):  # the way out of the body is where it may come
        interrupts.call(request)
    striker.join()
    assert sum(range(1000)) == 499500


def test_a_body_that_has_ended_is_not_struck() -> None:
    request = asked(sum, [1, 2])
    assert interrupts.call(request) == 3
    interrupts.interrupt(request.attempt.run)
    assert sum(range(1000)) == 499500


def test_an_interrupt_that_a_task_group_has_wrapped_is_one_all_the_same() -> None:
    async def tasks() -> None:
        async def act() -> None:
            interrupts.interrupt(request.attempt.run)
            for _ in range(1000):
                pass

        async with asyncio.TaskGroup() as group:
            group.create_task(act())

    request = asked(lambda: asyncio.run(tasks()))
    with pytest.raises(StepInterrupted):
        interrupts.call(request)


def test_a_programs_own_handler_stays_in_place() -> None:
    heard: list[int] = []

    def own(number: int, frame: object) -> None:
        heard.append(number)

    signal.signal(interrupts.NUDGE, own)
    try:
        with interrupts.hearing_nudges():
            assert signal.getsignal(interrupts.NUDGE) is own
    finally:
        signal.signal(interrupts.NUDGE, signal.SIG_DFL)
    with interrupts.hearing_nudges():
        assert signal.getsignal(interrupts.NUDGE) is interrupts._nudged
    assert signal.getsignal(interrupts.NUDGE) is signal.SIG_DFL
    assert heard == []


# ---- a run in this process


def sleeps(begun: threading.Event, log: list[str]) -> None:
    begun.set()
    time.sleep(20)


def spins(begun: threading.Event, log: list[str]) -> None:
    begun.set()
    while True:
        pass


def swallows(begun: threading.Event, log: list[str]) -> None:
    begun.set()
    for _ in range(2):
        try:
            time.sleep(20)
        except StepInterrupted:
            log.append("swallowed")
    time.sleep(20)


@pytest.mark.parametrize(
    ("colour", "body"),
    [
        *itertools.product(["sync", "async"], [sleeps, spins, swallows]),
        # With one it has a thread of its own, where no system call is interrupted.
        *itertools.product(["sync with a timeout", "async with a timeout"], [spins]),
    ],
)
def test_a_plain_body_of_a_killed_run_is_interrupted(
    tmp_path: Path,
    colour: str,
    body: Callable[[threading.Event, list[str]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nudge, nudged = signal.pthread_kill, list[int]()

    def send(thread: int, number: int) -> None:
        nudged.append(number)
        nudge(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", send)
    begun, log = threading.Event(), list[str]()
    url = f"sqlite:///{tmp_path}/store.db"
    timeout = 300 if "timeout" in colour else None

    @outlast.step(timeout=timeout)
    def act() -> None:
        body(begun, log)

    @outlast.workflow
    def flow() -> None:
        act()

    @outlast.workflow
    async def flow_async() -> None:
        act()

    killer = threading.Thread(target=kill, args=(url, begun, log))
    killer.start()
    with pytest.raises(outlast.RunKilled):
        outlast.run(flow if colour.startswith("sync") else flow_async, run_id="r", store=url)
    killer.join()
    assert log == (["killed"] if body is not swallows else ["killed", "swallowed", "swallowed"])
    assert body is spins or set(nudged) == {interrupts.NUDGE}, "it woke by itself"
    view = outlast.Client(url).run("r")
    assert (view.status, view.finished) == ("killed", 0)
    check_all(url, "r")


def kill(url: str, begun: threading.Event, log: list[str]) -> None:
    """Kill the run from a thread of its own process, as another process would."""
    begun.wait()
    log.append("killed")
    opened, world = get_store(url), World()
    item = Kill("r", world.wall(), world, opened.heart.claims, grace=60.0)
    opened.store.write(item, durable=True)
