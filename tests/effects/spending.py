"""The account of a run, a workflow of several calls, and what a hold for the budget says."""

from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast.budgets import read_account
from outlast.events import RunHeld, decode
from outlast.policy.budget import Account
from outlast.worker.stores import get_store
from tests.effects.colours import Colour
from tests.effects.stage import Stage


def account(stage: Stage) -> Account:
    found = read_account(get_store(stage.url).store, "run")
    assert found is not None
    return found


def workflow_of(colour: Colour, step: Any, calls: int, **options: Any) -> Any:
    """A workflow of so many calls, whose errors it returns by their names."""
    if colour == "sync":

        @outlast.workflow(**options)
        def flow() -> list[Any]:
            results: list[Any] = []
            for n in range(calls):
                try:
                    results.append(step(n))
                except Exception as problem:
                    results.append(type(problem).__name__)
            return results

        return flow

    @outlast.workflow(**options)
    async def flow_async() -> list[Any]:
        results: list[Any] = []
        for n in range(calls):
            try:
                results.append(await step(n))
            except Exception as problem:
                results.append(type(problem).__name__)
        return results

    return flow_async


def held(stage: Stage, flow: Callable[..., object], *words: str) -> RunHeld:
    """The run is held for its budget, and the words stand in what it says."""
    with pytest.raises(outlast.RunHeld) as stopped:
        outlast.run(flow, run_id="run", store=stage.url)
    assert stopped.value.reason == "over-budget", stopped.value
    for word in words:
        assert word in str(stopped.value)
    last = stage.client().journal("run")[-1]
    event = decode(last.kind, last.data)
    assert isinstance(event, RunHeld)
    return event
