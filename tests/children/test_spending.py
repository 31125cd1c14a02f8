"""What is set aside in the account that a family of runs shares."""

import pytest

import outlast
from outlast.budgets import read_account
from outlast.worker.stores import get_store
from tests.effects.stage import Stage


@pytest.mark.parametrize("run_id", ["run", "r" * 190], ids=["short", "cut"])
def test_nothing_stays_set_aside_for_attempts_below_a_killed_child(
    stage: Stage, run_id: str
) -> None:
    """Ids of children that would be too long are cut, and do not begin with those of their
    parents."""

    @outlast.step(cost=0.5)
    def pay() -> None:
        (child,) = stage.client().run(run_id).children
        stage.client().kill(child.run_id)

    @outlast.workflow
    def kid() -> None:
        pay()

    @outlast.workflow
    def middle() -> None:
        kid()

    @outlast.workflow(budget=outlast.Budget(usd=10))
    def flow() -> str:
        try:
            middle()
        except outlast.ChildKilled:
            return "went on"
        return "not killed"

    quick = outlast.Settings(grace=0.2)
    assert outlast.run(flow, run_id=run_id, store=stage.url, settings=quick) == "went on"
    account = read_account(get_store(stage.url).store, run_id)
    assert account is not None
    assert not account.open
    assert str(account.spent_usd) == "0.5"
