"""Looking whether it happened: a reconcile function decides about a doubt, and only about that."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import outlast
from outlast import Done, NotDone, Retry, Unknown
from outlast.events import StepReconciled, decode
from tests.effects.colours import COLOURS, Colour, make_step, make_workflow
from tests.effects.stage import Stage

NO_WAIT = Retry(attempts=3, initial=0)


def raising() -> Any:
    raise RuntimeError("the bank's page is down")


def answers(stage: Stage, key: str = "act#0") -> list[tuple[str, str]]:
    events = (decode(e.kind, e.data) for e in stage.client().journal("run") if e.key == key)
    return [(e.answer, e.why) for e in events if isinstance(e, StepReconciled)]


def lost_answer(
    colour: Colour, sent: list[int], check: Callable[..., Any], **options: Any
) -> Callable[..., Any]:
    """A workflow whose step sends, then loses the answer the first time."""

    def send() -> str:
        sent.append(1)
        if len(sent) == 1:
            raise ConnectionResetError
        return "sent again"

    step = make_step(colour, send, effect="once", retry=NO_WAIT, **options)
    step.reconcile(check)
    return make_workflow(colour, step)  # type: ignore[no-any-return]


@pytest.mark.parametrize("colour", COLOURS)
def test_done_gives_the_step_its_result_without_another_attempt(
    stage: Stage, colour: Colour
) -> None:
    sent: list[int] = []
    flow = lost_answer(colour, sent, lambda: Done("found"))
    assert outlast.run(flow, run_id="run", store=stage.url) == "found"
    assert sent == [1]
    assert answers(stage) == [("done", "")]
    assert stage.step("act#0").status == "completed"
    assert stage.step("act#0").reconciled == "done"


@pytest.mark.parametrize("answer", [NotDone(), NotDone], ids=["object", "class"])
@pytest.mark.parametrize("colour", COLOURS)
def test_not_done_lets_it_run_again(stage: Stage, colour: Colour, answer: Any) -> None:
    sent: list[int] = []
    flow = lost_answer(colour, sent, lambda: answer)
    assert outlast.run(flow, run_id="run", store=stage.url) == "sent again"
    assert sent == [1, 1]
    assert answers(stage) == [("not-done", "")]


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (lambda: Unknown("two entries look alike"), "two entries look alike"),
        (lambda: Unknown(), ""),
        (lambda: Unknown, ""),
        (raising, "reconcile raised RuntimeError: the bank's page is down"),
        (lambda: None, "reconcile returned NoneType"),
        (lambda: True, "reconcile returned bool"),
        (lambda: "done", "reconcile returned str"),
        (lambda: Done, "reconcile returned type"),
    ],
    ids=[
        "unknown",
        "unknown bare",
        "unknown class",
        "raises",
        "None",
        "True",
        "text",
        "Done class",
    ],
)
@pytest.mark.parametrize("colour", COLOURS)
def test_any_other_answer_leaves_the_doubt(
    stage: Stage, colour: Colour, check: Callable[[], Any], why: str
) -> None:
    sent: list[int] = []
    flow = lost_answer(colour, sent, check)
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "in-doubt"
    assert why in held.value.detail
    ((answer, text),) = answers(stage)
    assert answer == "unknown"
    assert why in text
    assert stage.step("act#0").status == "in-doubt"
    assert sent == [1]


def test_with_in_doubt_raise_an_unknown_answer_reaches_the_workflow(stage: Stage) -> None:
    sent: list[int] = []
    flow = lost_answer("sync", sent, lambda: Unknown("no"), in_doubt="raise")
    assert outlast.run(flow, run_id="run", store=stage.url)[:2] == ["in doubt", "act#0"]
    assert answers(stage) == [("unknown", "no")]


def test_a_check_that_could_not_tell_is_asked_again_at_the_next_start(stage: Stage) -> None:
    sent: list[int] = []
    found: list[Any] = [Unknown("not yet"), Unknown("not yet"), Done("found")]
    flow = lost_answer("sync", sent, lambda: found.pop(0))
    for _ in range(2):
        with pytest.raises(outlast.RunHeld):
            outlast.run(flow, run_id="run", store=stage.url)
    assert outlast.run(flow, run_id="run", store=stage.url) == "found"
    assert sent == [1]
    assert [answer for answer, _ in answers(stage)] == ["unknown", "unknown", "done"]


def test_an_asynchronous_check(stage: Stage) -> None:
    sent: list[int] = []

    async def check() -> Any:
        await asyncio.sleep(0)
        return Done("found")

    flow = lost_answer("async", sent, check)
    assert outlast.run(flow, run_id="run", store=stage.url) == "found"
    assert sent == [1]


def test_it_gets_the_arguments_and_the_key_and_no_step_of_its_own(stage: Stage) -> None:
    calls: list[tuple[str, Any, str]] = []

    @outlast.step
    def look(order: str) -> str:
        return order.upper()

    @outlast.step(effect="once")
    def pay(order: str, *, amount: int = 5) -> str:
        calls.append(("pay", (order, amount), outlast.idempotency_key()))
        raise TimeoutError

    @pay.reconcile
    def _(order: str, *, amount: int = 5) -> outlast.Outcome[str]:
        calls.append(("look", (order, amount), outlast.idempotency_key()))
        return Done(look(order))

    @outlast.workflow
    def flow() -> str:
        return pay("o-1", amount=7)

    assert outlast.run(flow, run_id="run", store=stage.url) == "O-1"
    (_, *paid), (_, *looked) = calls
    assert paid == looked
    assert [s.name for s in stage.client().run("run").steps] == ["pay"]


def test_a_method_checks_on_its_own_object(stage: Stage) -> None:
    class Bank:
        def __init__(self) -> None:
            self.booked: dict[str, int] = {}

        @outlast.step(effect="once")
        def pay(self, amount: int) -> int:
            self.booked[outlast.idempotency_key()] = amount
            raise ConnectionResetError

        @pay.reconcile
        def _(self, amount: int) -> outlast.Outcome[int]:
            key = outlast.idempotency_key()
            return Done(self.booked[key]) if key in self.booked else NotDone()

    bank = Bank()

    @outlast.workflow
    def flow() -> int:
        return bank.pay(9)

    assert outlast.run(flow, store=stage.url) == 9
    assert list(bank.booked.values()) == [9]


def test_it_is_not_asked_when_there_is_no_doubt(stage: Stage) -> None:
    asked: list[int] = []

    def check() -> Any:
        asked.append(1)
        return Unknown()

    step = make_step("sync", lambda: "sent", effect="once")
    step.reconcile(check)
    assert outlast.run(make_workflow("sync", step), run_id="fine", store=stage.url) == "sent"

    def refused() -> None:
        raise ConnectionRefusedError

    step = make_step("sync", refused, effect="once", retry=Retry(attempts=1))
    step.reconcile(check)
    with pytest.raises(outlast.RunFailed):
        outlast.run(make_workflow("sync", step), run_id="refused", store=stage.url)
    assert asked == []


@pytest.mark.parametrize("colour", COLOURS)
def test_attempts_that_reconcile_calls_not_done_are_bounded(stage: Stage, colour: Colour) -> None:
    sent: list[int] = []

    def send() -> None:
        sent.append(1)
        raise TimeoutError("no answer")

    step = make_step(colour, send, effect="once", retry=NO_WAIT)
    step.reconcile(lambda: NotDone())
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(make_workflow(colour, step), run_id="run", store=stage.url)
    assert isinstance(failed.value.__cause__, TimeoutError)
    assert len(sent) == 3


def test_a_terminal_error_is_not_repeated_because_nothing_happened(stage: Stage) -> None:
    sent: list[int] = []

    def send() -> None:
        sent.append(1)
        raise ValueError("a bug behind the request")

    step = make_step("sync", send, effect="once", retry=NO_WAIT)
    step.reconcile(lambda: NotDone())
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(make_workflow("sync", step), run_id="run", store=stage.url)
    assert isinstance(failed.value.__cause__, ValueError)
    assert sent == [1]


def test_the_bound_counts_over_resumes(stage: Stage) -> None:
    sent: list[int] = []
    asked: list[int] = []

    def send() -> None:
        sent.append(1)
        raise TimeoutError("no answer")

    def check() -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return NotDone()

    step = make_step("sync", send, effect="once", retry=Retry(attempts=2, initial=0))
    step.reconcile(check)
    flow = make_workflow("sync", step)
    with pytest.raises(KeyboardInterrupt):
        outlast.run(flow, run_id="run", store=stage.url)
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(flow, run_id="run", store=stage.url)
    assert isinstance(failed.value.__cause__, TimeoutError)
    assert len(sent) == 2


@dataclass
class Receipt:
    number: int


def test_a_reconciled_value_is_stored_like_a_result(stage: Stage) -> None:
    lock = threading.Lock()
    found: list[Any] = [Receipt(3)]

    @outlast.step(effect="once")
    def pay() -> Receipt:
        raise TimeoutError

    @pay.reconcile
    def _() -> Any:
        return Done(found[0])

    @outlast.workflow
    def flow() -> Receipt:
        return pay()

    receipt = outlast.run(flow, run_id="fine", store=stage.url)
    assert receipt == Receipt(3)
    assert receipt is not found[0]
    found[0] = lock
    with pytest.raises(outlast.RunFailed, match="lock"):
        outlast.run(flow, run_id="run", store=stage.url)
    assert stage.step("pay#0").fault == "done-not-storable"


@pytest.mark.parametrize("colour", COLOURS)
def test_it_never_starts_while_the_body_may_still_run(stage: Stage, colour: Colour) -> None:
    """The step times out, but a plain body lives on in its thread."""
    running = threading.Event()
    may_end = threading.Event()
    overlapped: list[bool] = []

    @outlast.step(effect="once", timeout=0.05)
    def send() -> None:
        running.set()
        may_end.wait(20)
        running.clear()
        raise TimeoutError("no answer")  # so that its end does not tell what happened

    @send.reconcile
    def _() -> outlast.Outcome[None]:
        overlapped.append(running.is_set())
        return Done(None)

    if colour == "sync":

        @outlast.workflow
        def flow() -> None:
            send()
    else:

        @outlast.workflow(name="flow")
        async def flow() -> None:
            await asyncio.to_thread(send)

    def let_it_end() -> None:
        while "step.in_doubt" not in (stage.kinds() if stage.client().runs() else []):
            if may_end.wait(0.005):
                return
        may_end.wait(0.1)  # what would start wrongly has time to do so
        may_end.set()

    helper = threading.Thread(target=let_it_end)
    helper.start()
    try:
        outlast.run(flow, run_id="run", store=stage.url)
    finally:
        may_end.set()
        helper.join()
    assert overlapped == [False]


def test_a_body_that_does_not_end_leaves_the_run_stuck_and_unreconciled(stage: Stage) -> None:
    may_end = threading.Event()
    asked: list[int] = []

    @outlast.step(effect="once", timeout=0.02)
    def send() -> None:
        may_end.wait(20)

    @send.reconcile
    def _() -> outlast.Outcome[None]:
        asked.append(1)
        return NotDone()

    @outlast.workflow
    def flow() -> None:
        send()

    try:
        with pytest.raises(outlast.RunHeld) as held:
            outlast.run(flow, run_id="run", store=stage.url, settings=outlast.Settings(grace=0.05))
        assert held.value.reason == "stuck"
        assert asked == []
    finally:
        may_end.set()


def test_a_check_has_the_steps_timeout(stage: Stage) -> None:
    sent: list[int] = []

    async def check() -> Any:
        await asyncio.Event().wait()

    flow = lost_answer("async", sent, check, timeout=0.1)
    with pytest.raises(outlast.RunHeld, match="reconcile did not end"):
        outlast.run(flow, run_id="run", store=stage.url)
    assert sent == [1]


def test_a_call_that_is_cancelled_while_its_doubt_is_checked_stays_in_doubt(stage: Stage) -> None:
    asked: list[int] = []

    @outlast.step(effect="once")
    async def send() -> str:
        raise ConnectionResetError

    @send.reconcile
    async def _() -> outlast.Outcome[str]:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return Done("found")

    @outlast.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.1):
                return await send()
        except TimeoutError:
            return "too slow"

    with pytest.raises(outlast.RunHeld, match="in-doubt"):
        outlast.run(flow, run_id="run", store=stage.url)
    assert stage.step("send#0").status == "in-doubt"


def test_a_call_that_is_cancelled_between_attempts_is_not_in_doubt(stage: Stage) -> None:
    """Its last attempt certainly did nothing, so there is nothing to find out."""
    stops: list[int] = []

    @outlast.step(effect="once", retry=Retry(attempts=5, initial=59, maximum=60))
    async def send() -> str:
        raise ConnectionRefusedError

    @outlast.step
    def stop() -> None:
        stops.append(1)
        if len(stops) == 1:
            raise SystemExit(1)

    @outlast.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.1):
                await send()
        except TimeoutError:
            stop()
            return "too slow"
        return "unexpected"

    with pytest.raises(SystemExit):
        outlast.run(flow, run_id="run", store=stage.url)
    assert stage.step("send#0").status == "abandoned"
    assert outlast.run(flow, run_id="run", store=stage.url) == "too slow"
