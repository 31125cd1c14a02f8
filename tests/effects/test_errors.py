"""P4 for errors: what a workflow catches is the same live and on replay."""

import dataclasses
import threading
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import pytest

import outlast
from outlast import Retry
from outlast.codec import MAX_BYTES
from tests.effects.stage import Stage

ONE = Retry(attempts=1)


class Plain(Exception):
    pass


class WithInit(Exception):
    """Takes other arguments than it hands to its base."""

    def __init__(self, status: int, *, hint: str) -> None:
        super().__init__(f"status {status}: {hint}")
        self.status = status
        self.hint = hint


@dataclasses.dataclass
class Detail:
    code: int


class WithData(ValueError):
    def __init__(self, detail: Detail) -> None:
        super().__init__(detail)
        self.detail = detail
        self.also: dict[str, Any] = {"tags": ("a", "b")}


class WithLock(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def local_class() -> Exception:
    class Local(Exception):
        pass

    return Local("local", 3)


def os_error() -> Exception:
    try:
        open("/nonexistent/file")  # noqa: SIM115, PTH123
    except OSError as exc:
        return exc
    raise AssertionError


def caught(
    stage: Stage, make: Callable[[], Exception], runs: int = 2, colour: str = "sync"
) -> list[Exception]:
    """What the workflow catches from a step that raises, live and in each replay."""
    seen: list[Exception] = []

    def body() -> None:
        raise make()

    async def body_async() -> None:
        raise make()

    @outlast.step
    def stop() -> None:
        if len(seen) < runs:
            raise SystemExit(1)

    if colour == "sync":
        act = outlast.step(body, name="act", retry=ONE)

        @outlast.workflow
        def flow() -> None:
            try:
                act()
            except Exception as exc:
                seen.append(exc)
            stop()
    else:
        act_async = outlast.step(body_async, name="act", retry=ONE)

        @outlast.workflow(name="flow")
        async def flow() -> None:
            try:
                await act_async()
            except Exception as exc:
                seen.append(exc)
            stop()

    for _ in range(runs - 1):
        with pytest.raises(SystemExit):
            outlast.run(flow, run_id="run", store=stage.url)
    outlast.run(flow, run_id="run", store=stage.url)
    return seen


def picture(exc: Exception) -> tuple[Any, ...]:
    return type(exc), exc.args, str(exc), exc.__dict__, getattr(exc, "filename", None)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Plain(),
        lambda: Plain("text", 3, None),
        lambda: ValueError("a bug"),
        lambda: KeyError("missing"),
        lambda: WithInit(503, hint="later"),
        lambda: WithData(Detail(4)),
        os_error,
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        lambda: outlast.NotDone("no"),
        lambda: TimeoutError(),
        lambda: Plain("a\0b", "\udc97", float("inf"), 2**80, b"\xff"),
    ],
    ids=lambda make: str(picture(make())[:2]),
)
def test_an_error_that_can_be_rebuilt_arrives_as_an_equal_copy(
    stage: Stage, make: Callable[[], Exception], colour: str
) -> None:
    made: list[Exception] = []

    def remember() -> Exception:
        made.append(make())
        return made[-1]

    live, replayed = caught(stage, remember, colour=colour)
    assert picture(live) == picture(replayed)
    # `__notes__` aside it is what the step raised, but never that very object.
    assert {k: v for k, v in live.__dict__.items() if k != "__notes__"} == made[0].__dict__
    assert (type(live), live.args) == (type(made[0]), made[0].args)
    assert live is not made[0]
    assert len(made) == 1


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (local_class, "Local"),
        (WithLock, "WithLock"),
        (SaysNothing, "SaysNothing"),
        (lambda: ExceptionGroup("two", [ValueError(1), KeyError(2)]), "ExceptionGroup"),
    ],
    ids=["local", "lock", "no text", "group"],
)
def test_any_other_arrives_as_step_failed_live_too(
    stage: Stage, make: Callable[[], Exception], name: str
) -> None:
    live, replayed = caught(stage, make)
    assert isinstance(live, outlast.StepFailed)
    assert picture(live) == picture(replayed)
    assert name in live.type
    assert live.fault == "terminal"


def test_an_http_error_of_the_standard_library_is_caught_as_itself_or_described(
    stage: Stage,
) -> None:
    def make() -> Exception:
        return urllib.error.HTTPError("http://127.0.0.1/", 404, "Not Found", Message(), None)

    live, replayed = caught(stage, make)
    assert picture(live) == picture(replayed)
    assert "404" in str(live)


def test_the_original_traceback_is_kept_as_a_note(stage: Stage) -> None:
    def deep_inside() -> Exception:
        raise Plain("from below")

    live, replayed = caught(stage, deep_inside)
    for exc in (live, replayed):
        (note,) = exc.__notes__
        assert note.startswith("step act#0, original traceback:")
        assert "deep_inside" in note
    assert live.__notes__ == replayed.__notes__


def test_the_chain_of_causes_stays_in_the_note(stage: Stage) -> None:
    def chained() -> Exception:
        try:
            raise KeyError("first")
        except KeyError as exc:
            raise Plain("second") from exc

    live, _ = caught(stage, chained)
    assert "KeyError: 'first'" in live.__notes__[0]


def test_the_original_is_not_kept_alive_or_altered(stage: Stage) -> None:
    original = Plain("once")
    live, _ = caught(stage, lambda: original)
    assert not hasattr(original, "__notes__")
    assert live is not original


def test_an_error_caught_and_raised_again_fails_the_run_with_itself(stage: Stage) -> None:
    @outlast.step
    def act() -> None:
        raise WithInit(400, hint="wrong")

    @outlast.workflow
    def flow() -> None:
        act()

    for _ in range(2):  # live, then from the store
        with pytest.raises(outlast.RunFailed) as failed:
            outlast.run(flow, run_id="run", store=stage.url)
        cause = failed.value.__cause__
        assert isinstance(cause, WithInit)
        assert (cause.status, cause.hint) == (400, "wrong")
    assert "WithInit" in (stage.client().run("run").error or "")


def test_a_step_that_stops_an_iteration_fails_like_any_other(stage: Stage) -> None:
    live, replayed = caught(stage, lambda: StopIteration("empty"))
    assert picture(live) == picture(replayed)
    assert isinstance(live, RuntimeError | outlast.StepFailed)


# ---- done, but not storable


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_result_that_cannot_be_stored_is_one_send_and_a_terminal_error(
    stage: Stage, colour: str, effect: Any
) -> None:
    sent: list[int] = []
    seen: list[Exception] = []
    reconciled: list[int] = []

    def send() -> Any:
        sent.append(1)
        return {"lock": threading.Lock()}

    async def send_async() -> Any:
        return send()

    @outlast.step
    def stop() -> None:
        if len(seen) == 1:
            raise SystemExit(1)

    body: Any = send if colour == "sync" else send_async
    act = outlast.step(body, name="send", effect=effect, retry=Retry(attempts=5, initial=0))
    if effect == "once":

        @act.reconcile
        def _() -> outlast.Outcome[Any]:
            reconciled.append(1)
            return outlast.NotDone()

    if colour == "sync":

        @outlast.workflow
        def flow() -> str:
            try:
                act()
            except outlast.NotStorable as exc:
                seen.append(exc)
            stop()
            return "caught"
    else:

        @outlast.workflow(name="flow")
        async def flow() -> str:
            try:
                await act()
            except outlast.NotStorable as exc:
                seen.append(exc)
            stop()
            return "caught"

    with pytest.raises(SystemExit):
        outlast.run(flow, run_id="run", store=stage.url)
    assert outlast.run(flow, run_id="run", store=stage.url) == "caught"
    assert sent == [1]
    assert reconciled == []
    live, replayed = seen
    assert picture(live) == picture(replayed)
    assert "send#0" in str(live)
    assert "lock" in str(live)
    step = stage.step("send#0")
    assert (step.status, step.fault, step.attempts) == ("failed", "done-not-storable", 1)


def test_a_result_above_the_size_limit_is_one_send(stage: Stage) -> None:
    sent: list[int] = []

    @outlast.step(effect="once")
    def send() -> bytes:
        sent.append(1)
        return bytes(MAX_BYTES + 1)

    @outlast.workflow
    def flow() -> str:
        try:
            send()
        except outlast.NotStorable as exc:
            return str(exc)
        return "unexpected"

    assert "send#0" in outlast.run(flow, run_id="run", store=stage.url)
    assert sent == [1]
