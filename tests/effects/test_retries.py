"""P5 and P6: which faults are retried, how often in all, and waits that outlive a process."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Retry
from outlast.events import StepFailed, decode
from outlast.world import World
from tests.effects.colours import COLOURS, Colour, make_step, make_workflow
from tests.effects.stage import Stage

PROGRAMS = Path(__file__).parent / "programs"
NO_WAIT = Retry(attempts=3, initial=0)


class Http(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def failures(stage: Stage, key: str = "act#0") -> list[tuple[int, str, bool]]:
    events = (decode(e.kind, e.data) for e in stage.client().journal("run") if e.key == key)
    return [(e.attempt, e.error.fault, e.final) for e in events if isinstance(e, StepFailed)]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("exc", "fault"),
    [
        (ConnectionResetError(), "transient"),
        (TimeoutError(), "transient"),
        (Http(503), "transient"),
        (Http(429), "throttled"),
    ],
    ids=repr,
)
def test_a_passing_fault_is_retried_up_to_the_limit(
    stage: Stage, colour: Colour, exc: Exception, fault: str
) -> None:
    called: list[int] = []

    def act() -> None:
        called.append(1)
        raise exc

    flow = make_workflow(colour, make_step(colour, act, retry=NO_WAIT))
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(flow, run_id="run", store=stage.url)
    assert type(failed.value.__cause__) is type(exc)
    assert len(called) == 3
    assert failures(stage) == [(1, fault, False), (2, fault, False), (3, fault, True)]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("exc", [ValueError("a bug"), Http(400), Http(404)], ids=repr)
def test_a_terminal_fault_is_not_retried(stage: Stage, colour: Colour, exc: Exception) -> None:
    called: list[int] = []

    def act() -> None:
        called.append(1)
        raise exc

    flow = make_workflow(colour, make_step(colour, act, retry=NO_WAIT))
    with pytest.raises(outlast.RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert len(called) == 1
    assert failures(stage) == [(1, "terminal", True)]


def test_without_a_word_there_are_three_attempts(stage: Stage) -> None:
    assert Retry().attempts == 3


def test_each_occurrence_has_its_own_attempts(stage: Stage) -> None:
    called: list[int] = []

    def act() -> int:
        called.append(1)
        if len(called) % 3:
            raise ConnectionResetError
        return len(called)

    step = make_step("sync", act, retry=NO_WAIT, breaker=False)

    @outlast.workflow
    def flow() -> list[int]:
        return [step(), step(), step()]

    assert outlast.run(flow, store=stage.url) == [3, 6, 9]


def test_attempts_that_fail_count_over_crashes(stage: Stage) -> None:
    """Two attempts fail in two lives of the run, the third and last in another one."""
    program = PROGRAMS / "flaky.py"
    for _ in range(2):
        stage.kill_at("workflow-waits")
        assert stage.play(program).killed
        stage.later(3600)
    played = stage.play(program)
    assert played.stopped[0] == "RunFailed"
    assert [line.split()[1] for line in stage.effects()] == ["1", "2", "3"]
    # A finished run stays as it is.
    assert stage.play(program).stopped[0] == "RunFailed"
    assert len(stage.effects()) == 3


def test_a_wait_before_a_retry_survives_a_crash(stage: Stage) -> None:
    """Only the rest is waited for: the next attempt comes at the time that was recorded first."""
    program = PROGRAMS / "flaky.py"
    stage.kill_at("workflow-waits")
    assert stage.play(program).killed
    view = stage.client().run("run")
    assert view.status == "waiting"
    due = view.due_at
    assert due is not None
    stage.set("works")
    stage.later(3600)
    # A wait that started anew would take ten minutes.
    assert stage.play(program).result == "done"
    first, second = stage.effects()
    assert float(second.split()[2]) >= due
    assert first.split()[3] == second.split()[3]  # one idempotency key


def test_a_run_that_waits_needs_no_process(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []

    def act() -> str:
        called.append(1)
        if len(called) == 1:
            raise ConnectionResetError
        return "done"

    slow = Retry(initial=600, maximum=600, jitter="none")
    flow = make_workflow("sync", make_step("sync", act, retry=slow))
    with pytest.raises(outlast.RunWaiting) as waiting:
        outlast.run(flow, run_id="run", store=stage.url, wait=False)
    view = stage.client().run("run")
    assert (view.status, view.due_at) == ("waiting", waiting.value.due)
    assert not view.interrupted
    monkeypatch.setattr(World, "wall", lambda world: time.time() + 3600)
    assert outlast.run(flow, run_id="run", store=stage.url) == "done"
    assert len(called) == 2


def test_a_number_of_attempts_is_shown(stage: Stage) -> None:
    calls: list[int] = []

    def act() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionResetError
        return 1

    flow = make_workflow("sync", make_step("sync", act, retry=NO_WAIT))
    outlast.run(flow, run_id="run", store=stage.url)
    step = stage.step("act#0")
    assert (step.attempts, step.status, step.error) == (3, "completed", None)


def test_what_an_attempt_sees_is_its_number(stage: Stage) -> None:
    def act() -> list[Any]:
        now = outlast.current()
        if (now.attempt or 0) < 3:
            raise ConnectionResetError
        return [now.step, now.attempt]

    flow = make_workflow("sync", make_step("sync", act, retry=NO_WAIT))
    assert json.dumps(outlast.run(flow, store=stage.url)) == '["act#0", 3]'
