"""What a step says about its effect, and the key under which the outside knows it."""

import math
from typing import Any

import pytest

import outlast
from outlast import Retry
from tests.effects.stage import Stage

NO_WAIT = Retry(attempts=3, initial=0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"effect": "twice"}, "twice"),
        ({"effect": "once", "in_doubt": "ignore"}, "ignore"),
        ({"in_doubt": "raise"}, "once"),
        ({"effect": "read", "not_done": (ValueError,)}, "once"),
        ({"effect": "once", "not_done": ValueError}, "not_done"),
        ({"effect": "once", "not_done": ("ValueError",)}, "not_done"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"timeout": math.inf}, "timeout"),
        ({"secret": ["password"]}, "password"),
        ({"ignore": ["client"]}, "client"),
        ({"name": "a#b"}, "a#b"),
        ({"name": "now"}, "now"),
        ({"name": "sleep"}, "sleep"),
        ({"name": "turns"}, "turns"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_at_the_decorator(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(outlast.UsageError, match=named):

        @outlast.step(**options)
        def act(value: int) -> int:
            return value


def test_only_a_once_step_can_be_reconciled() -> None:
    @outlast.step(effect="idempotent")
    def act() -> None: ...

    with pytest.raises(outlast.UsageError, match="once"):

        @act.reconcile
        def _() -> outlast.NotDone: ...


def test_a_plain_step_needs_a_plain_reconcile() -> None:
    @outlast.step(effect="once")
    def act() -> None: ...

    with pytest.raises(outlast.UsageError, match="plain"):

        @act.reconcile
        async def _() -> outlast.NotDone: ...


@pytest.mark.parametrize("effect", ["read", "idempotent", "once", None])
def test_the_effect_is_shown(stage: Stage, effect: Any) -> None:
    @outlast.step(effect=effect)
    def act() -> int:
        return 1

    @outlast.workflow
    def flow() -> int:
        return act()

    outlast.run(flow, run_id="run", store=stage.url)
    assert stage.step("act#0").effect == (effect or "assumed")


def test_all_attempts_have_one_key_and_each_occurrence_has_its_own(stage: Stage) -> None:
    keys: list[str] = []

    @outlast.step(effect="idempotent", retry=NO_WAIT)
    def pay(amount: int) -> int:
        keys.append(outlast.idempotency_key())
        if len(keys) % 3:
            raise ConnectionResetError
        return amount

    @outlast.workflow
    def flow() -> list[int]:
        return [pay(7), pay(7)]

    assert outlast.run(flow, run_id="run", store=stage.url) == [7, 7]
    first, second = keys[0], keys[3]
    assert keys == [first] * 3 + [second] * 3
    assert first != second
    assert [s.idempotency_key for s in stage.client().run("run").steps] == [first, second]


def test_another_run_has_other_keys(stage: Stage) -> None:
    @outlast.step
    def key() -> str:
        return outlast.idempotency_key()

    @outlast.workflow
    def flow() -> str:
        return key()

    first = outlast.run(flow, run_id="one", store=stage.url)
    assert first != outlast.run(flow, run_id="two", store=stage.url)
    # The same id in another store is another run.
    other = Stage(stage.folder / "other")
    other.folder.mkdir()
    assert first != outlast.run(flow, run_id="one", store=other.url)


def test_the_key_exists_only_inside_a_step(stage: Stage) -> None:
    @outlast.workflow
    def flow() -> str:
        return outlast.idempotency_key()

    with pytest.raises(outlast.OutsideRun):
        outlast.idempotency_key()
    with pytest.raises(outlast.RunFailed, match="OutsideRun"):
        outlast.run(flow, store=stage.url)


def test_a_step_in_a_step_shares_the_key_of_the_outer_one(stage: Stage) -> None:
    @outlast.step
    def inner() -> str:
        return outlast.idempotency_key()

    @outlast.step
    def outer() -> list[str]:
        return [outlast.idempotency_key(), inner()]

    @outlast.workflow
    def flow() -> list[str]:
        return outer()

    first, second = outlast.run(flow, run_id="run", store=stage.url)
    assert first == second == stage.step("outer#0").idempotency_key


@pytest.mark.parametrize("effect", ["read", "idempotent", None])
def test_an_interrupted_attempt_is_repeated_under_its_key(stage: Stage, effect: Any) -> None:
    keys: list[str] = []

    @outlast.step(effect=effect)
    def act() -> str:
        keys.append(outlast.idempotency_key())
        if len(keys) == 1:
            raise KeyboardInterrupt
        return "done"

    @outlast.workflow
    def flow() -> str:
        return act()

    with pytest.raises(KeyboardInterrupt):
        outlast.run(flow, run_id="run", store=stage.url)
    assert outlast.run(flow, run_id="run", store=stage.url) == "done"
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert stage.step("act#0").attempts == 2
    # Nobody said that a repeat does no harm, so it is shown.
    assert stage.step("act#0").repeated == (effect is None)
