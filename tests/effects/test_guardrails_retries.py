"""How a step says which of its faults are repeated, when and for how long."""

import functools
from pathlib import Path
from typing import Any

import pytest
import tenacity

import outlast
from outlast import Fault, Retry
from outlast.events import StepFailed, decode
from outlast.store.open import open_store
from tests.checkers import check_all
from tests.effects.colours import COLOURS, Colour, make_step, make_workflow
from tests.effects.stage import Stage
from tests.ownership.children import SimulatedWorld

PROGRAMS = Path(__file__).parent / "programs"
AT_ONCE = Retry(attempts=3, initial=0)


@pytest.fixture
def world(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> SimulatedWorld:
    """Waits take no time."""
    world = SimulatedWorld()
    opening = functools.partial(open_store, world=world)
    monkeypatch.setattr("outlast.worker.stores.open_store", opening)
    return world


def failures(stage: Stage) -> list[StepFailed]:
    journal = [decode(e.kind, e.data) for e in stage.client().journal("run")]
    return [event for event in journal if isinstance(event, StepFailed)]


def fail_with(stage: Stage, exc: Exception, colour: Colour = "sync", **options: Any) -> StepFailed:
    """Run a step that always raises this to its end; its last failure."""

    def act() -> None:
        stage.log("act")
        raise exc

    flow = make_workflow(colour, make_step(colour, act, breaker=False, **options))
    with pytest.raises(outlast.RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert len(stage.effects()) == len(failures(stage)) == stage.step("act#0").attempts
    check_all(stage.url, "run", attempts={"act": options.get("retry", Retry()).attempts})
    return failures(stage)[-1]


# ---- which ones


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("retry", "exc", "attempts"),
    [
        (Retry(attempts=3, initial=0, on=[ValueError]), ValueError(), 3),
        (Retry(attempts=3, initial=0, on=[LookupError]), KeyError(), 3),
        (Retry(attempts=3, initial=0, on=[KeyError]), ValueError(), 1),
        (Retry(attempts=3, initial=0, stop_on=[OSError]), ConnectionResetError(), 1),
        (
            Retry(attempts=3, initial=0, on=[OSError], stop_on=[ConnectionError]),
            ConnectionResetError(),
            1,
        ),
        (
            Retry(attempts=3, initial=0, stop_on=[KeyError]),
            ExceptionGroup("g", [ConnectionResetError(), KeyError()]),
            1,
        ),
    ],
    ids=["on", "a base class", "another class", "stop_on", "stop_on wins", "in a group"],
)
def test_on_and_stop_on_decide(
    stage: Stage, colour: Colour, retry: Retry, exc: Exception, attempts: int
) -> None:
    last = fail_with(stage, exc, colour, retry=retry)
    assert last.attempt == attempts


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("said", "attempts", "fault"),
    [
        ("transient", 3, "transient"),
        ("throttled", 3, "throttled"),
        ("terminal", 1, "terminal"),
        (None, 1, "terminal"),
        (Fault("transient", "it is known to pass"), 3, "transient"),
    ],
    ids=str,
)
def test_classify_decides_or_leaves_it_to_the_table(
    stage: Stage, colour: Colour, said: Any, attempts: int, fault: str
) -> None:
    last = fail_with(stage, ValueError("odd"), colour, retry=AT_ONCE, classify=lambda exc: said)
    assert (last.attempt, last.error.fault, last.final) == (attempts, fault, True)
    if isinstance(said, Fault):
        assert last.error.reason == said.reason


def broken(exc: BaseException) -> str:
    raise RuntimeError("a bug in classify")


@pytest.mark.parametrize(
    ("classify", "reason"),
    [
        (broken, "a bug in classify"),
        (lambda exc: "temporary", "'temporary'"),
        (lambda exc: True, "True"),
        (lambda exc: ["transient"], "['transient']"),
        (lambda exc: "unknown-outcome", "unknown-outcome"),
    ],
    ids=["raises", "another word", "a flag", "a list", "not for it to say"],
)
def test_a_broken_classify_is_a_bug_and_no_reason_to_call_again(
    stage: Stage, classify: Any, reason: str
) -> None:
    last = fail_with(stage, ConnectionResetError("lost"), retry=AT_ONCE, classify=classify)
    assert (last.attempt, last.error.fault) == (1, "terminal")
    assert reason in last.error.reason
    assert last.error.message == "lost"  # the tool's own error is what the workflow gets


def test_classify_gets_what_the_body_raised_and_wins_over_on(stage: Stage) -> None:
    exc, seen = ValueError("odd"), list[BaseException]()

    def classify(exc: BaseException) -> str:
        seen.append(exc)
        return "terminal"

    retry = Retry(attempts=3, initial=0, on=[ValueError])
    last = fail_with(stage, exc, retry=retry, classify=classify)
    assert seen == [exc]
    assert last.attempt == 1


# ---- when


def waited_in_full(stage: Stage) -> None:
    """No attempt began before its time."""
    due = 0.0
    for stored in stage.client().journal("run"):
        event = decode(stored.kind, stored.data)
        if isinstance(event, StepFailed):
            due = event.retry_at or 0.0
        elif stored.kind == "step.started":
            assert stored.at >= due


def test_without_jitter_waits_are_as_they_were_set(stage: Stage, world: SimulatedWorld) -> None:
    retry = Retry(attempts=5, initial=2, multiplier=3, maximum=30, jitter="none")
    fail_with(stage, ConnectionResetError(), retry=retry)
    assert [event.wait for event in failures(stage)] == [2, 6, 18, 30, None]
    waited_in_full(stage)


def test_with_jitter_waits_lie_below_their_bound(stage: Stage, world: SimulatedWorld) -> None:
    retry = Retry(attempts=5, initial=2, multiplier=3, maximum=30)
    fail_with(stage, ConnectionResetError(), retry=retry)
    waits = [event.wait for event in failures(stage)]
    for wait, bound in zip(waits[:-1], [2, 6, 18, 30], strict=True):
        assert wait is not None
        assert 0 <= wait < bound


@pytest.mark.parametrize(("asked", "wait"), [(0, 2.0), (1, 2.0), (7, 7.0), (90, 90.0)])
def test_what_a_tool_asks_for_is_waited_for_at_least(
    stage: Stage, world: SimulatedWorld, asked: float, wait: float
) -> None:
    retry = Retry(attempts=2, initial=2, maximum=60, jitter="none")
    fail_with(stage, outlast.Transient("busy", retry_after=asked), retry=retry)
    assert [event.wait for event in failures(stage)] == [wait, None]
    assert failures(stage)[0].error.fault == "throttled"
    waited_in_full(stage)


def test_a_longer_wait_than_allowed_may_fail_at_once(stage: Stage) -> None:
    retry = Retry(attempts=3, maximum=60, long_wait="fail")
    last = fail_with(stage, outlast.Transient("busy", retry_after=61), retry=retry)
    assert (last.attempt, last.error.fault, last.final) == (1, "throttled", True)


def test_no_attempt_begins_after_the_time_that_was_set_for_them(
    stage: Stage, world: SimulatedWorld
) -> None:
    retry = Retry(
        attempts=9, initial=1000, multiplier=1, maximum=1000, jitter="none", budget_seconds=2500
    )
    assert fail_with(stage, ConnectionResetError(), retry=retry).attempt == 3


def test_that_time_goes_on_over_crashes(stage: Stage) -> None:
    program = PROGRAMS / "persistent.py"
    for _ in range(2):
        stage.kill_at("waits")
        assert stage.play(program).killed
        stage.later(601)
    assert stage.play(program).stopped[0] == "RunFailed"
    assert stage.effects() == ["act 1", "act 2", "act 3"]


# ---- layers


@pytest.mark.parametrize("colour", COLOURS)
def test_a_client_that_tries_again_by_itself_is_noticed(stage: Stage, colour: Colour) -> None:
    @tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)
    def client() -> None:
        stage.log("request")
        raise ConnectionResetError

    step = make_step(colour, client, retry=Retry(attempts=2, initial=0))
    with (
        pytest.warns(outlast.OutlastWarning, match=r"step act: tenacity \(2 retries of its own\)"),
        pytest.raises(outlast.RunFailed),
    ):
        outlast.run(make_workflow(colour, step), run_id="run", store=stage.url)
    assert len(stage.effects()) == 6
    assert stage.step("act#0").attempts == 2
    assert [event.inner for event in failures(stage)] == 2 * ["tenacity (2 retries of its own)"]
