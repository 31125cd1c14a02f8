"""Rules and errors of any shape: each attempt gets an outcome, and the workflow sees what is on
record; and calls that the loop guard cannot tell apart."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import outlast
from outlast import Fault, Retry
from outlast.engine.spec import StepSpec
from outlast.engine.verdict import LONGEST_WAIT, judge
from outlast.events import StepFailed, StepInDoubt, decode
from tests.effects.colours import COLOURS, Colour, make_step
from tests.effects.stage import Stage

AT_ONCE = Retry(attempts=3, initial=0)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Classless(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("of no class")


def deep_group() -> Exception:
    error: Exception = ConnectionResetError("lost")
    for _ in range(5000):
        error = ExceptionGroup("g", [error])
    return error


def unprintable(exc: BaseException) -> str:
    raise Unprintable


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


RULES: dict[str, tuple[Callable[[BaseException], Any], str]] = {
    "a wait in words": (lambda exc: Fault("transient", "x", wait="0.1"), "wait='0.1'"),  # type: ignore[arg-type]
    "for ever": (lambda exc: Fault("throttled", "x", wait=math.inf), "wait=inf"),
    "no number": (lambda exc: Fault("transient", "x", wait=math.nan), "wait=nan"),
    "into the past": (lambda exc: Fault("throttled", "x", wait=-1), "wait=-1"),
    "a flag": (lambda exc: Fault("throttled", "x", wait=True), "wait=True"),
    "an unknown class": (lambda exc: Fault("banana", "x"), "banana"),  # type: ignore[arg-type]
    "no class": (lambda exc: Fault(["transient"], "x"), "cannot be looked at"),  # type: ignore[arg-type]
    "not for it to say": (lambda exc: Fault("unknown-outcome", "x"), "unknown-outcome"),
    "an error without words": (unprintable, "cannot be looked at"),
    "an object without words": (lambda exc: Unshowable(), "cannot be looked at"),
}


def outcome(stage: Stage, colour: Colour, body: Callable[[], None], **options: Any) -> list[Any]:
    """What a workflow gets from a step that raises, live and on replay, and the last event that
    tells of it."""

    def act() -> None:
        stage.log("act")
        body()

    step = make_step(colour, act, retry=AT_ONCE, breaker=False, **options)
    seen: list[tuple[str, str]] = []

    @outlast.workflow
    def flow() -> str:
        try:
            step()
        except Exception as problem:
            seen.append((type(problem).__name__, str(problem)))
            return str(problem)
        return "no error"

    @outlast.workflow
    async def flow_async() -> str:
        try:
            await step()
        except Exception as problem:
            seen.append((type(problem).__name__, str(problem)))
            return str(problem)
        return "no error"

    for _ in range(2):
        outlast.run(flow if colour == "sync" else flow_async, run_id="run", store=stage.url)
    events = [decode(e.kind, e.data) for e in stage.client().journal("run")]
    told = [event for event in events if isinstance(event, StepFailed | StepInDoubt)]
    assert stage.effects() == ["act"], "it was made once, whatever the rule may have meant"
    final = [event for event in told if isinstance(event, StepFailed) and event.final]
    assert len(told) == len(final) + (options["effect"] == "once")
    assert len(final) == 1
    assert seen, "the workflow got an error"
    return [seen[0], told[0]]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("rule", "reason"), RULES.values(), ids=list(RULES))
def test_a_rule_that_says_nonsense_is_a_bug_and_the_error_is_the_tools(
    stage: Stage, colour: Colour, rule: Callable[[BaseException], Any], reason: str
) -> None:
    def body() -> None:
        raise ConnectionResetError("lost")

    seen, told = outcome(stage, colour, body, effect="read", classify=rule)
    assert isinstance(told, StepFailed)
    assert (told.final, told.error.fault) == (True, "terminal")
    assert reason in told.error.reason
    assert seen == ("ConnectionResetError", "lost")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("rule", "reason"), RULES.values(), ids=list(RULES))
def test_under_a_rule_that_says_nonsense_a_once_step_is_in_doubt(
    stage: Stage, colour: Colour, rule: Callable[[BaseException], Any], reason: str
) -> None:
    def body() -> None:
        raise ConnectionResetError("lost")

    seen, told = outcome(stage, colour, body, effect="once", classify=rule, in_doubt="raise")
    assert isinstance(told, StepInDoubt)
    assert told.fault == "terminal"
    assert told.error is not None
    assert reason in told.error.reason
    assert seen[0] == "InDoubt"


ERRORS: dict[str, Callable[[], Exception]] = {
    "without words": Unprintable,
    "without a class": Classless,
    "deep": deep_group,
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("effect", ["read", "once"])
@pytest.mark.parametrize("make", ERRORS.values(), ids=list(ERRORS))
def test_an_error_of_any_shape_is_an_outcome(
    stage: Stage, colour: Colour, effect: Any, make: Callable[[], Exception]
) -> None:
    def body() -> None:
        raise make()

    options = {"in_doubt": "raise"} if effect == "once" else {}
    seen, told = outcome(stage, colour, body, effect=effect, **options)
    if effect == "once":
        assert isinstance(told, StepInDoubt)
        assert seen[0] == "InDoubt"
    else:
        assert isinstance(told, StepFailed)
        assert (told.final, told.error.fault) == (True, "terminal")
        assert told.error.reason
        assert seen[0] == "StepFailed", "the recorded form of an error that cannot be rebuilt"


@given(
    kind=some.sampled_from(["transient", "throttled", "terminal", "unknown-outcome", "banana", 7]),
    wait=some.none() | some.integers() | some.floats() | some.text() | some.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_rule_returns_the_verdict_can_be_acted_upon(kind: Any, wait: Any) -> None:
    said = Fault(kind, "x", wait=wait)
    spec = StepSpec(
        name="act",
        fn=deep_group,
        signature=inspect.signature(deep_group),
        is_async=False,
        classify=lambda exc: said,
    )
    fault, certain = judge(spec, ConnectionResetError(), 0.0)
    assert not certain
    assert fault.kind in ("transient", "throttled", "terminal")
    assert fault.wait is None or 0 <= fault.wait <= LONGEST_WAIT
    if fault.kind != kind:
        assert (fault.kind, fault.counts) == ("terminal", True)


# ---- who has the last word


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("error", "retry", "calls"),
    [
        (outlast.Terminal("no"), Retry(attempts=3, initial=0, on=[Exception]), 1),
        (outlast.Terminal("no"), Retry(attempts=3, initial=0, on=[outlast.Terminal]), 1),
        (outlast.Transient("busy"), Retry(attempts=3, initial=0, stop_on=[Exception]), 3),
    ],
    ids=["on everything", "on that class", "stop_on everything"],
)
def test_what_the_tool_says_wins_over_what_its_retries_say(
    stage: Stage, colour: Colour, error: Exception, retry: Retry, calls: int
) -> None:
    def act() -> None:
        stage.log("act")
        raise error

    step = make_step(colour, act, retry=retry, breaker=False)

    @outlast.workflow
    def flow() -> None:
        step()

    @outlast.workflow
    async def flow_async() -> None:
        await step()

    with pytest.raises(outlast.RunFailed):
        outlast.run(flow if colour == "sync" else flow_async, run_id="run", store=stage.url)
    assert len(stage.effects()) == calls


# ---- what is noticed where it is written


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"retry": 3}, "retry=3"),
        ({"retry": {"attempts": 3}}, "retry="),
        ({"timeout": "3"}, "timeout='3'"),
        ({"timeout": True}, "timeout=True"),
        ({"timeout": math.nan}, "timeout=nan"),
        ({"classify": "transient"}, "classify='transient'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("colour", COLOURS)
def test_an_option_of_the_wrong_kind_is_refused_at_the_step(
    colour: Colour, options: dict[str, Any], word: str
) -> None:
    with pytest.raises(outlast.UsageError, match=word.replace("{", r"\{")):
        make_step(colour, lambda n: n, **options)


def test_a_step_that_nobody_awaits_is_named_by_python(stage: Stage) -> None:
    @outlast.step
    async def look(n: int) -> int:
        stage.log("look")
        return n

    @outlast.workflow
    async def flow() -> str:
        await look(0)
        look(1)  # type: ignore[unused-coroutine]
        return "done"

    with pytest.warns(RuntimeWarning, match="step look#1.* was never awaited"):
        outlast.run(flow, run_id="run", store=stage.url)
    assert len(stage.effects()) == 1


# ---- what the loop guard cannot tell apart


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("options", [{"match": "name"}, {"secret": ["word"]}], ids=str)
def test_calls_whose_arguments_may_differ_are_no_row(
    stage: Stage, colour: Colour, options: dict[str, Any]
) -> None:
    @outlast.step(**options)
    def put(word: str) -> None:
        stage.log("put")

    @outlast.step(name="put", **options)
    async def put_async(word: str) -> None:
        stage.log("put")

    @outlast.workflow(max_repeats=3)
    def flow() -> None:
        for n in range(12):
            put("x" * 500 + str(n) + "y" * 500)

    @outlast.workflow(max_repeats=3)
    async def flow_async() -> None:
        for n in range(12):
            await put_async("x" * 500 + str(n) + "y" * 500)

    outlast.run(flow if colour == "sync" else flow_async, run_id="run", store=stage.url)
    assert len(stage.effects()) == 12


def test_the_same_secret_again_and_again_is_a_row(stage: Stage) -> None:
    @outlast.step(secret=["word"])
    def put(word: str) -> None:
        stage.log("put")

    @outlast.workflow(max_repeats=3)
    def flow() -> None:
        for _ in range(12):
            put("hush")

    with pytest.raises(outlast.RunHeld) as stopped:
        outlast.run(flow, run_id="run", store=stage.url)
    assert (stopped.value.reason, len(stage.effects())) == ("looping", 3)
    assert "hush" not in str(stopped.value)
