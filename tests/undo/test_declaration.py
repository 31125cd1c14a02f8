"""What `@step.undo` takes and refuses."""

from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import RunFailed, Terminal, UsageError, step, workflow
from outlast.events import StepStarted, decode
from tests.effects.stage import Stage


@step(effect="idempotent")
def plain(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> int:
    return a


def test_the_function_itself_is_returned_unchanged() -> None:
    @step
    def act(n: int) -> None:
        pass

    def back(n: int) -> None:
        pass

    assert act.undo(back) is back
    assert act.undo(retry=outlast.Retry(attempts=9))(back) is back


async def asynchronous(a: int) -> None:
    pass


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (lambda d: None, "wants 'd', which is not recorded"),
    (lambda a, /: None, "gets its arguments by name, not a"),
    (lambda *a: None, "gets its arguments by name, not a"),
    (asynchronous, "so its undo must be too"),
]


@pytest.mark.parametrize(("compensate", "why"), REFUSED)
def test_what_cannot_be_called_with_what_is_recorded_is_refused(
    compensate: Callable[..., Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        plain.undo(compensate)


def test_steps_that_cannot_be_undone_are_told_why() -> None:
    @step(effect="read")
    def look() -> None:
        pass

    @step
    def named(result: int) -> None:
        pass

    class Bank:
        @step
        def pay(self, amount: int) -> None:
            pass

    with pytest.raises(UsageError, match="only reads"):
        look.undo(lambda: None)
    with pytest.raises(UsageError, match="has a parameter 'result'"):
        named.undo(lambda: None)
    with pytest.raises(UsageError, match="is a method"):
        Bank.pay.undo(lambda amount: None)
    with pytest.raises(UsageError, match="'idempotent' or 'once'"):
        plain.undo(effect="read")(lambda: None)
    with pytest.raises(UsageError, match=r"outlast\.Retry is expected"):
        plain.undo(retry=3)(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="on_failure='panic'"):
        workflow(on_failure="panic")  # type: ignore[call-overload]


def given_to(stage: Stage, act: Any, *args: Any, **kwargs: Any) -> None:
    """Call a step in a workflow that fails."""

    @workflow(on_failure="undo")
    def flow() -> None:
        act(*args, **kwargs)
        raise ValueError

    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)


def test_it_gets_the_arguments_that_it_names_and_the_result(stage: Stage) -> None:
    got: list[Any] = []

    @step(effect="idempotent")
    def act(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> str:
        return "done"

    act.undo(lambda c, result, rest, a: got.append((a, rest, c, result)))
    given_to(stage, act, 1, 5, 6, 7, d=8)
    assert got == [(1, (6, 7), 3, "done")]


def test_one_that_takes_anything_gets_everything(stage: Stage) -> None:
    got: list[Any] = []

    @step(effect="idempotent")
    def act(a: int, b: int = 2) -> str:
        return "done"

    act.undo(lambda **all_: got.append(all_))
    given_to(stage, act, 1)
    assert got == [{"a": 1, "b": 2, "result": "done"}]


def test_what_is_ignored_or_secret_is_not_stored_for_it(stage: Stage) -> None:
    @step(effect="idempotent", ignore=["client"], secret=["token"])
    def act(name: str, client: object, token: str) -> None:
        pass

    for unknown in ("client", "token"):
        with pytest.raises(UsageError, match=f"wants '{unknown}'"):
            act.undo(eval(f"lambda {unknown}: None"))
    act.undo(lambda name: None)
    given_to(stage, act, "ann", object(), "hunter2")
    assert not any(b"hunter2" in event.data for event in stage.client().journal("run"))


def test_arguments_are_stored_only_for_a_step_with_an_undo(stage: Stage) -> None:
    @step(effect="idempotent")
    def act(name: str) -> None:
        pass

    given_to(stage, act, "ann")
    (started,) = (
        decode(e.kind, e.data) for e in stage.client().journal("run") if e.kind == StepStarted.kind
    )
    assert isinstance(started, StepStarted)
    assert bytes(started.args) == b""
    assert started.undo == ""


def test_arguments_that_cannot_be_stored_are_refused_before_the_step_runs(stage: Stage) -> None:
    ran: list[int] = []

    @step(effect="idempotent", match="name")
    def act(client: object) -> None:
        ran.append(1)

    act.undo(lambda: None)

    @workflow
    def flow() -> None:
        act(object())

    with pytest.raises(RunFailed, match="NotStorable"):
        outlast.run(flow, run_id="run", store=stage.url)
    assert ran == []


def test_its_own_retry_and_effect_count(stage: Stage) -> None:
    tried: list[int] = []

    @step(effect="idempotent", retry=outlast.Retry(attempts=5, initial=0))
    def act() -> None:
        pass

    @act.undo(retry=outlast.Retry(attempts=2, initial=0), effect="once")
    def _() -> None:
        tried.append(1)
        raise ConnectionRefusedError

    @workflow(on_failure="undo")
    def flow() -> None:
        act()
        raise ValueError

    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "undo-failed"
    assert len(tried) == 2
    assert stage.step("act.undo#u.0").effect == "once"


def test_a_compensation_in_doubt_is_settled_as_any_step(stage: Stage) -> None:
    tried: list[int] = []

    @step(effect="idempotent")
    def act() -> None:
        pass

    @act.undo(effect="once")
    def _() -> None:
        tried.append(1)
        raise ConnectionResetError

    @workflow(on_failure="undo")
    def flow() -> None:
        act()
        raise Terminal

    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="run", store=stage.url)
    assert held.value.reason == "in-doubt"
    stage.client().settle("run", "act.undo#u.0", outlast.Done(None))
    with pytest.raises(RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert len(tried) == 1
    assert stage.client().run("run").undone == ["act#0"]
