"""`resume RUN --accept-from STEP`: the code at hand counts, and what was recorded from STEP on does
not; but nothing that a `once` step did or may have done is ever dropped."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import Raw

import outlast
from outlast import Client, Failed, NotDone, step, turns, workflow
from outlast.engine.history import build
from outlast.events import Event, StepLate, StepStarted, decode
from outlast.journal import Entry, Evidence
from outlast.records import StoredEvent
from outlast.worker.stores import get_store
from tests.changes.programs import HEAD, Workshop
from tests.checkers import check_all
from tests.engine.test_loading import check_nothing_is_missed, loaded
from tests.engine.tools import PATIENT, Bodies, dying_at, journal


class Desk:
    """Steps that count their bodies, and a workflow of them that is changed."""

    def __init__(self, bodies: Bodies) -> None:
        self.keys: list[tuple[str, str]] = []

        def make(name: str, effect: Any = None) -> Any:
            async def body(n: int) -> int:
                bodies(f"{name} {n}")
                self.keys.append((f"{name} {n}", outlast.idempotency_key()))
                return n

            return step(body, name=name, effect=effect)

        self.look, self.think = make("look", "read"), make("think")
        self.pay, self.send = make("pay", "idempotent"), make("send", "once")


def flow(body: Callable[[], Any]) -> Any:
    return workflow(body, name="flow")


def until(workflow: Any, url: str, key: str, kind: str = "step.completed") -> None:
    """Run up to the write of an event, and die instead of it."""
    with dying_at(url, kind=kind, key=key) as died, pytest.raises(outlast.StoreError):
        outlast.run(workflow, run_id="r", store=url, settings=PATIENT)
    assert died()


def run(workflow: Any, url: str, run_id: str = "r") -> Any:
    return outlast.run(workflow, run_id=run_id, store=url, settings=PATIENT)


def accept(url: str, key: str) -> list[str]:
    """Keys of the steps that were dropped."""
    return [s.key for s in Client(url).accept_from("r", key, by="ann")]


def started(url: str, key: str) -> list[StepStarted]:
    found: list[Event] = [decode(e.kind, e.data) for e in journal(url) if e.key == key]
    return [e for e in found if isinstance(e, StepStarted)]


def test_the_code_at_hand_goes_on_with_what_was_recorded_before(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)
    number = 2

    async def body() -> list[int]:
        return [await desk.look(1), await desk.think(number), await desk.look(3)]

    until(flow(body), url, "look#2")
    number = 20
    with pytest.raises(outlast.RunHeld, match="diverged"):
        run(flow(body), url)
    before = journal(url)
    assert accept(url, "think#1") == ["think#1", "look#2"]
    assert journal(url)[: len(before)] == before, "the journal only grows"
    view = Client(url).run("r")
    assert (view.status, view.reason, view.owner) == ("queued", "accepted", None)
    assert [s.key for s in view.steps] == ["look#0"]
    assert run(flow(body), url) == [1, 20, 3]
    assert bodies.ran == {"look 1": 1, "think 2": 1, "think 20": 1, "look 3": 2}
    check_all(url, "r")


def test_a_call_that_began_before_keeps_its_later_result(url: str, bodies: Bodies) -> None:
    desk, go = Desk(bodies), asyncio.Event()

    @step
    async def slow() -> str:
        bodies("slow")
        await go.wait()
        return "slow"

    async def body() -> list[object]:
        task = asyncio.create_task(slow_task())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first = await desk.think(1)
        go.set()
        return [first, await task, await desk.think(2)]

    async def slow_task() -> str:
        return await slow()

    until(flow(body), url, "think#1")
    order = [(e.kind, e.key) for e in journal(url)]
    assert order.index(("step.started", "slow#s0.0")) < order.index(("step.started", "think#0"))
    assert ("step.completed", "slow#s0.0") in order
    assert accept(url, "think#0") == ["think#0", "think#1"]
    assert run(flow(body), url) == [1, "slow", 2]
    assert bodies.ran == {"slow": 1, "think 1": 2, "think 2": 2}
    check_all(url, "r")


def test_a_cancellation_that_a_dropped_result_brought_about_need_not_come_again(
    url: str, bodies: Bodies
) -> None:
    desk, cancels = Desk(bodies), True

    @step(effect="read")
    async def slow() -> str:
        bodies("slow")
        if cancels:
            await asyncio.Event().wait()
        return "slow"

    async def body() -> list[object]:
        task = asyncio.create_task(slow_task())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first = await desk.think(1)
        if cancels:
            task.cancel()
            await asyncio.wait({task})
            return [first, await desk.think(2)]
        return [first, await task]

    async def slow_task() -> str:
        return await slow()

    until(flow(body), url, "think#1")
    assert "step.abandoned" in [e.kind for e in journal(url)]
    accept(url, "think#0")
    cancels = False
    assert run(flow(body), url) == [1, "slow"]
    assert bodies.ran["slow"] == 2
    check_all(url, "r")


def test_a_decision_by_patched_goes_with_what_follows_from_it(url: str, bodies: Bodies) -> None:
    desk, new = Desk(bodies), False

    async def body() -> list[int]:
        first = await desk.look(1)
        second = await desk.look(2)
        if new and outlast.patched("more"):
            return [first, second, await desk.look(30)]
        return [first, second, await desk.look(3), await desk.look(4)]

    until(flow(body), url, "look#3")
    new = True  # look#2 has been made with the old code, so the answer is recorded as False
    until(flow(body), url, "look#3")
    assert accept(url, "look#1") == ["look#1", "look#2", "look#3"]
    assert run(flow(body), url) == [1, 2, 30]
    check_all(url, "r")


# ---- once


def completes(desk: Desk, ends: asyncio.Event) -> Any:
    async def body(n: int) -> int:
        return n

    return step(body, name="send", effect="once")


def _raising(error: Callable[[], BaseException], **options: Any) -> Callable[..., Any]:
    def make(desk: Desk, ends: asyncio.Event) -> Any:
        async def body(n: int) -> int:
            raise error()

        return step(body, name="send", effect="once", **options)

    return make


def returns_what_cannot_be_stored(desk: Desk, ends: asyncio.Event) -> Any:
    async def body(n: int) -> object:
        return ends

    return step(body, name="send", effect="once")


def is_cancelled(desk: Desk, ends: asyncio.Event) -> Any:
    async def body(n: int) -> None:
        await asyncio.Event().wait()

    return step(body, name="send", effect="once", in_doubt="raise")


in_doubt = _raising(TimeoutError)
in_doubt_for_the_agent = _raising(TimeoutError, in_doubt="raise")
certainly_not = _raising(lambda: NotDone("refused"))


def once_flow(desk: Desk, send: Any) -> Any:
    async def body() -> list[object]:
        first = await desk.look(1)
        try:
            async with asyncio.timeout(0.01 if send.spec_name == "cancel" else None):
                sent = await send.step(2)
        except (outlast.StepFailed, outlast.InDoubt, NotDone, outlast.NotStorable, TimeoutError):
            sent = None
        return [first, sent, await desk.look(3)]

    return flow(body)


class Sending:
    def __init__(self, step: Any, name: str = "") -> None:
        self.step, self.spec_name = step, name


HAPPENED = [
    (completes, "look#2", "completed"),
    (completes, "send#1", "in-doubt"),  # killed while it ran
    (in_doubt, None, "in-doubt"),
    (in_doubt_for_the_agent, "look#2", "failed (unknown-outcome)"),
    (returns_what_cannot_be_stored, "look#2", "failed (done-not-storable)"),
    (is_cancelled, "look#2", "in-doubt"),
]


@pytest.mark.parametrize(
    ("make", "dies", "state"), HAPPENED, ids=lambda v: getattr(v, "__name__", v)
)
def test_what_a_once_step_did_or_may_have_done_is_not_dropped(
    make: Callable[..., Any], dies: str | None, state: str, url: str, bodies: Bodies
) -> None:
    desk = Desk(bodies)
    name = "cancel" if make is is_cancelled else ""
    body = once_flow(desk, Sending(make(desk, asyncio.Event()), name))
    if dies is None:
        with pytest.raises(outlast.RunHeld, match="in-doubt"):
            run(body, url)
    else:
        until(body, url, dies)
    before = journal(url)
    with pytest.raises(outlast.UsageError) as refused:
        Client(url).accept_from("r", "look#0")
    said = str(refused.value).splitlines()
    assert "`once`" in said[0]
    assert f"  send#1 (n=2): once, {state}" in said
    assert said[-1] == "  outlast fork r --from 'look#0'"
    assert journal(url) == before
    # What comes after it can go.
    if dies == "look#2":
        assert accept(url, "look#2") == ["look#2"]


def test_a_once_step_that_an_operator_let_fail_may_have_happened(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)
    body = once_flow(desk, Sending(in_doubt(desk, asyncio.Event())))
    with pytest.raises(outlast.RunHeld):
        run(body, url)
    Client(url).settle("r", "send#1", Failed("gave up"), by="bob")
    with pytest.raises(outlast.UsageError, match=r"failed \(settled failed by bob\)"):
        Client(url).accept_from("r", "send#1")
    until(body, url, "look#2")
    with pytest.raises(outlast.UsageError, match=r"failed \(settled failed by bob\)"):
        Client(url).accept_from("r", "send#1")


@pytest.mark.parametrize("settled", [False, True], ids=["it said so", "an operator said so"])
def test_a_once_step_that_certainly_did_not_happen_can_be_dropped(
    settled: bool, url: str, bodies: Bodies
) -> None:
    desk = Desk(bodies)
    if settled:
        body = once_flow(desk, Sending(in_doubt(desk, asyncio.Event())))
        with pytest.raises(outlast.RunHeld):
            run(body, url)
        Client(url).settle("r", "send#1", NotDone())
    else:
        until(once_flow(desk, Sending(certainly_not(desk, asyncio.Event()))), url, "look#2")
    assert "send#1" in accept(url, "look#0")
    assert run(once_flow(desk, Sending(completes(desk, asyncio.Event()))), url) == [1, 2, 3]
    check_all(url, "r")


def test_a_late_result_shows_that_it_did_happen(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)
    with pytest.raises(outlast.RunHeld):
        run(once_flow(desk, Sending(in_doubt(desk, asyncio.Event()))), url)
    Client(url).settle("r", "send#1", NotDone())
    _late(url, "send#1", epoch=1)
    with pytest.raises(outlast.UsageError, match="happened or may have"):
        Client(url).accept_from("r", "send#1")


def test_a_late_result_of_a_dropped_attempt_settles_nothing(url: str, bodies: Bodies) -> None:
    """Its epoch tells it from one of the step that is made under the same key afterwards."""
    desk = Desk(bodies)
    body = once_flow(desk, Sending(in_doubt(desk, asyncio.Event())))
    with pytest.raises(outlast.RunHeld):
        run(body, url)
    Client(url).settle("r", "send#1", NotDone())
    accept(url, "send#1")
    _late(url, "send#1", epoch=1)
    assert "send#1" not in [s.key for s in Client(url).run("r").steps]
    for _ in range(2):
        with pytest.raises(outlast.RunHeld, match="in-doubt"):
            run(body, url)
    check_all(url, "r")


def _late(url: str, key: str, epoch: int) -> None:
    event = StepLate(1, value=Raw(b"7"))
    store = get_store(url).store
    item = Evidence("r", epoch, store.world.wall(), (Entry(event, key),))
    store.write(item, durable=True)


@pytest.mark.parametrize("happened", [True, False])
def test_a_hold_recommends_only_what_would_not_be_refused(
    happened: bool, url: str, bodies: Bodies
) -> None:
    desk, number = Desk(bodies), 1

    async def body() -> None:
        await desk.look(number)
        await desk.send(2)
        await desk.look(3)

    until(flow(body), url, "look#2" if happened else "send#1", kind="step.started")
    number = 10
    with pytest.raises(outlast.RunHeld, match="diverged") as held:
        run(flow(body), url)
    assert ("--accept-from" in held.value.fix) is not happened
    assert ("since send#1 has the effect `once`" in held.value.fix) is happened
    assert "outlast fork r --from 'look#0'" in held.value.fix
    if happened:
        with pytest.raises(outlast.UsageError, match="send#1"):
            accept(url, "look#0")
    else:
        assert accept(url, "look#0") == ["look#0"]


# ---- refusals


def test_a_run_that_is_over_drops_nothing(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> int:
        return await desk.look(1)  # type: ignore[no-any-return]

    run(flow(body), url)
    with pytest.raises(outlast.UsageError, match=r"is completed.*outlast fork r --from 'look#0'"):
        accept(url, "look#0")


def test_a_run_that_is_executed_drops_nothing(url: str, bodies: Bodies) -> None:
    desk, said = Desk(bodies), []

    async def body() -> int:
        await desk.look(1)
        try:
            accept(url, "look#0")
        except outlast.UsageError as refused:
            said.append(str(refused))
        return 1

    run(flow(body), url)
    assert "being executed by process" in said[0]


def test_an_unknown_step_is_refused_with_what_is_near(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> int:
        await desk.look(1)
        await desk.think(2)
        return 1

    until(flow(body), url, "think#1")
    for unknown in ("think#2", "@end", ""):
        with pytest.raises(outlast.UsageError, match=r"no step .* the nearest are: .*think#1"):
            accept(url, unknown)
    accept(url, "think#1")
    with pytest.raises(outlast.UsageError, match=r"dropped before.*outlast resume r"):
        accept(url, "think#1")
    with pytest.raises(outlast.UnknownRun):
        Client(url).accept_from("nobody", "think#1")


# ---- idempotency keys


def test_a_repeat_keeps_its_key_and_other_arguments_get_another(url: str, bodies: Bodies) -> None:
    desk, number = Desk(bodies), 3

    async def body() -> list[int]:
        return [await desk.pay(number), await desk.look(4)]

    def key_shown() -> str:
        (pay,) = [s for s in Client(url).run("r").steps if s.key == "pay#0"]
        return pay.idempotency_key

    until(flow(body), url, "look#1")
    first = key_shown()
    accept(url, "pay#0")
    until(flow(body), url, "look#1")
    assert key_shown() == first
    accept(url, "pay#0")
    number = 30
    until(flow(body), url, "pay#0")  # a crash between open and completion
    other = key_shown()
    assert other != first
    until(flow(body), url, "look#1")
    assert key_shown() == other
    accept(url, "pay#0")
    number = 300
    until(flow(body), url, "look#1")
    third = key_shown()
    assert third not in (first, other)
    accept(url, "pay#0")
    number = 3
    assert run(flow(body), url) == [3, 4]
    assert key_shown() == first
    assert desk.keys == [
        ("pay 3", first),
        ("look 4", desk.keys[1][1]),
        ("pay 3", first),
        ("look 4", desk.keys[1][1]),
        ("pay 30", other),
        ("pay 30", other),
        ("look 4", desk.keys[1][1]),
        ("pay 300", third),
        ("look 4", desk.keys[1][1]),
        ("pay 3", first),
        ("look 4", desk.keys[1][1]),
    ]
    check_all(url, "r")


def test_a_step_of_another_name_has_its_own_key_anyway(url: str, bodies: Bodies) -> None:
    desk, second = Desk(bodies), "pay"

    async def body() -> int:
        return await getattr(desk, second)(3)  # type: ignore[no-any-return]

    until(flow(body), url, "pay#0")
    accept(url, "pay#0")
    second = "think"
    until(flow(body), url, "think#0")
    assert started(url, "think#0")[0].variant == 0
    accept(url, "think#0")
    second = "pay"
    assert run(flow(body), url) == 3
    assert [e.variant for e in started(url, "pay#0")] == [0, 0]


# ---- turn loops


@workflow(name="loop")
async def loop(n: int) -> str:
    await tick("before")
    async for turn in turns(said=""):
        turn.said += await tick(f"turn {len(turn.said)}")
        if len(turn.said) >= n:
            break
    return await tick(turn.said)


@step(effect="read")
async def tick(text: str) -> str:
    return text if text.startswith(("before", "x")) else "x"


def start(url: str, n: int) -> Any:
    return outlast.run(loop, n, run_id="r", store=url, settings=PATIENT)


def die_in_turn(url: str, turn: int, n: int = 250) -> None:
    key = f"tick#1.t{turn}.0"
    with dying_at(url, kind="step.completed", key=key) as died, pytest.raises(outlast.StoreError):
        start(url, n)
    assert died()


@pytest.mark.parametrize("key", ["tick#1.t4.0", "turns#1", "tick#0"])
def test_a_long_loop_goes_back_to_an_early_turn(url: str, key: str) -> None:
    die_in_turn(url, 150)
    accept(url, key)
    kept = build(journal(url))
    saved = [event.turn for event in kept.turns.get("1", [])]
    assert saved[-1:] == ([4] if "t4" in key else [])
    assert ("1" in kept.calls) is ("t4" in key)
    view, listed = Client(url).run("r"), Client(url).runs()[0]
    assert view.turn == listed.turn == (4 if "t4" in key else None)
    assert view.finished == listed.finished == {"tick#1.t4.0": 5, "turns#1": 1, "tick#0": 0}[key]
    check_nothing_is_missed(url)
    die_in_turn(url, 3 if "t4" not in key else 6)
    check_nothing_is_missed(url)
    die_in_turn(url, 180)
    check_nothing_is_missed(url)
    few = len(loaded(url)[0])
    assert few < len(journal(url)) - 150, "later turns are skipped again"
    assert Client(url).run("r").turn == 180
    die_in_turn(url, 240)
    check_nothing_is_missed(url)
    assert len(loaded(url)[0]) < few + 60
    assert start(url, 250) == "x" * 250
    check_all(url, "r")


def test_every_death_after_an_acceptance_reads_what_it_needs(url: str) -> None:
    die_in_turn(url, 12, 20)
    accept(url, "tick#1.t3.0")
    for number in range(1, 60):
        with dying_at(url, number) as died, contextlib.suppress(outlast.StoreError):
            start(url, 20)
        check_nothing_is_missed(url)
        if not died():
            break
    assert start(url, 20) == "x" * 20
    check_all(url, "r")


# ---- what is shown


def test_a_repeat_of_an_undeclared_step_is_shown_as_such(url: str, bodies: Bodies) -> None:
    desk, number = Desk(bodies), 2

    async def body() -> list[int]:
        return [await desk.think(1), await desk.think(number), await desk.look(3)]

    until(flow(body), url, "look#2")
    accept(url, "think#0")
    number = 20
    run(flow(body), url)
    shown = {s.key: (s.repeated, s.attempts) for s in Client(url).run("r").steps}
    assert shown == {"think#0": (True, 1), "think#1": (False, 1), "look#2": (False, 1)}


def test_accepting_lets_crashes_count_anew(url: str, bodies: Bodies) -> None:
    desk = Desk(bodies)

    async def body() -> list[int]:
        return [await desk.look(1), await desk.look(2)]

    until(flow(body), url, "look#1")
    accept(url, "look#1")
    rows: list[StoredEvent] = journal(url)
    assert build(rows).claims_without_progress == 0
    assert rows[-1].kind == "run.accepted"


# ---- the command

PAY = (
    HEAD
    + """
@outlast.step(effect="read")
def look(n: int) -> int:
    did("look", n)
    return n

@outlast.step(effect="idempotent")
def pay(n: int) -> int:
    did("pay", n)
    return n * 10

@outlast.step(effect="once")
def send(n: int) -> int:
    did("send", n)
    return n * 100

@outlast.workflow
def desk():
    return [look(1), pay(2), look(3)]
"""
)


@pytest.fixture
def killed(shop: Workshop) -> Workshop:
    """Killed in `look 3`; then `pay` gets other arguments."""
    shop.write(PAY)
    shop.die_at("look 3")
    assert shop.run().killed
    shop.write(PAY.replace("pay(2)", "pay(20)"))
    return shop


def test_the_command_says_what_it_drops_and_goes_on(killed: Workshop) -> None:
    held = killed.resume()
    assert held.code == 3
    assert "outlast resume r --accept-from 'pay#1'" in held.stderr
    done = killed.command("resume", "r", "--accept-from", "pay#1")
    assert done.result == [1, 200, 3]
    assert done.stderr.splitlines()[:3] == [
        "run r: dropped 2 steps from pay#1 on",
        "  pay#1 (n=2) completed, may happen twice",
        "  look#2 (n=3) interrupted",
    ]
    assert killed.effects() == ["look 1", "pay 2", "look 3", "pay 20", "look 3"]
    again = killed.command("resume", "r", "--accept-from", "pay#1")
    assert again.code == 2
    assert "is completed" in again.stderr
    assert killed.command("journal", "r").stdout.count("calls from pay#1 on") == 1
    both = killed.command("resume", "--all", "--accept-from", "pay#1")
    assert both.code == 2
    assert "belongs to one run" in both.stderr


def test_the_command_lists_what_it_refuses_to_drop(shop: Workshop) -> None:
    shop.write(PAY.replace("pay(2)", "send(2)"))
    shop.die_at("look 3")
    assert shop.run().killed
    refused = shop.command("resume", "r", "--accept-from", "look#0")
    assert refused.code == 2
    assert refused.stderr.splitlines()[1:] == [
        "  send#1 (n=2): once, completed",
        "  outlast fork r --from 'look#0'",
    ]
    assert shop.resume().code == 0


def test_of_many_processes_that_accept_and_resume_one_goes_on(killed: Workshop) -> None:
    words = [("--accept-from", "pay#1"), ("--accept-from", "pay#1"), ("--wait",), ("--wait",)]
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda w: killed.command("resume", "r", *w), words))
    # 0: it went on; 2: too late to drop anything; 3: it resumed first, and the code does not fit;
    # 6: another one executes it.
    assert {e.code for e in ended} <= {0, 2, 3, 6}, ended
    assert sum("dropped 2 steps" in e.stderr for e in ended) <= 1
    if killed.view().status != "completed":
        assert killed.command("resume", "r", "--accept-from", "pay#1").code == 0
    assert killed.view().result == [1, 200, 3]
    assert killed.effects().count("pay 20") == 1
