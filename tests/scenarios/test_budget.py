"""What people met with budgets: parallel calls that all pass one check, resumes with a full purse,
unknown prices, failures that were free, loops over the weekend.

Two runs cannot share an account yet. So calls compete here as tasks of one run; how two processes
compete for one account is tested on the store, in tests/store/test_budgets.py.
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from outlast import Budget, Usage
from outlast.breakers import read_breakers
from outlast.budgets import read_account
from outlast.policy.budget import Account
from outlast.worker.stores import get_store
from tests.checkers import check_all
from tests.effects.stage import Played, Stage, wait_for

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


def account(stage: Stage) -> Account:
    found = read_account(get_store(stage.url).store, "run")
    assert found is not None
    return found


def is_over_budget(played: Played, *words: str) -> bool:
    text = str(played.outcome["text"])
    assert played.stopped == ("RunHeld", "over-budget"), text
    assert all(word in text for word in words), text
    return True


# ---- parallel calls


def test_of_ten_calls_at_once_three_can_be_paid_for(stage: Stage) -> None:
    program = PROGRAMS / "purse.py"
    with stage.start(program, "dear", "1.00") as child:
        wait_for(lambda: len(stage.effects()) == 3, "three calls")
        assert account(stage).reserved.usd == Decimal("0.90")
        stage.set("pay")
        played = stage.ended(child)
    assert is_over_budget(played, "asked 0.30 USD", "0.10 of 1.00 USD left", "--add usd=")
    assert len(stage.effects()) == 3
    assert account(stage).spent_usd == Decimal("0.90")
    check_all(stage.url, "run", estimates_hold=True)


def test_what_a_dead_process_had_reserved_stays_charged(stage: Stage) -> None:
    program = PROGRAMS / "purse.py"
    stage.kill_at("three")
    assert stage.play(program, "dear", "1.00").killed
    assert account(stage).reserved.usd == Decimal("0.90")
    stage.set("pay")
    for _ in range(2):
        assert is_over_budget(stage.play(program, "dear", "1.00"), "0.90 settled")
    assert len(stage.effects()) == 3  # nobody was let in for the same money
    stage.client().add_budget("run", Budget(usd=3))
    assert stage.play(program, "dear", "1.00").result == list(range(10))
    assert account(stage).spent_usd == Decimal("3.90")  # ten calls, and three that died
    check_all(stage.url, "run", estimates_hold=True)


def test_of_a_batch_of_eight_the_first_six_are_made(stage: Stage) -> None:
    program = PROGRAMS / "purse.py"
    stage.set("pay")
    assert is_over_budget(stage.play(program, "batch", "6"), "6 of 6 calls used")
    assert sorted(stage.effects()) == [f"start {n}" for n in range(6)]
    assert stage.play(program, "batch", "8").result == list(range(8))
    assert sorted(stage.effects()) == [f"start {n}" for n in range(8)]


# ---- counts go on


@pytest.mark.parametrize("name", ["calls", "usd", "tokens"])
def test_counts_go_on_over_resumes_and_only_a_higher_limit_helps(stage: Stage, name: str) -> None:
    program = PROGRAMS / "counted.py"
    done = [f"work {n}" for n in range(12)]
    for count in (6, 8):
        stage.kill_at(f"after-{count}")
        assert stage.play(program, name, "10").killed
        assert stage.effects() == done[:count]
    # Two are left: the limit, another start, and a lower one.
    for limit in ("10", "10", "8"):
        played = stage.play(program, name, limit)
        assert is_over_budget(played, "work#10 was not called", f"--add {name}=AMOUNT")
        assert stage.effects() == done[:10]
    assert stage.play(program, name, "12").result == list(range(12))
    assert stage.effects() == done  # what was finished is not made again
    kept = account(stage)
    spent = {"calls": kept.calls, "usd": kept.spent_usd, "tokens": kept.spent_tokens}
    assert spent[name] == 12
    assert kept.calls == kept.steps == 12


# ---- unknown prices


@pytest.mark.parametrize("told", ["None", "NaN", "negative", "text", "tokens", "cut"])
def test_an_unknown_price_stops_the_run_before_it_spends_more(stage: Stage, told: str) -> None:
    program = PROGRAMS / "prices.py"
    stage.kill_at("committed-step.completed:act#0:1")
    assert stage.play(program, told, "hold").killed
    played = stage.play(program, told, "hold")
    assert is_over_budget(played, "act#1 was not called", "act#0", "--charge usd=AMOUNT")
    assert stage.effects() == ["act 0"]
    assert stage.step("act#0").status == "completed"  # its result is kept
    stage.client().add_budget("run", charged=Usage(Decimal("0.25"), 0))
    assert "result" in stage.play(program, told, "hold").outcome
    assert stage.effects() == ["act 0", "act 1"]
    assert account(stage).spent_usd == Decimal("0.25")


@pytest.mark.parametrize(("told", "spent"), [("NaN", "0.4"), ("None", "0.4"), ("free", "0")])
def test_by_setting_a_bound_is_charged_for_an_unknown_price(
    stage: Stage, told: str, spent: str
) -> None:
    assert "result" in stage.play(PROGRAMS / "prices.py", told, "0.4").outcome
    assert account(stage).spent_usd == Decimal(spent)


# ---- failed attempts


@pytest.mark.parametrize("limits", ["any", "tokens"])
def test_each_billed_attempt_is_booked_once(stage: Stage, limits: str) -> None:
    program = PROGRAMS / "billed.py"
    stage.kill_at("billed")
    assert stage.play(program, limits).killed
    assert (account(stage).spent_tokens, account(stage).calls) == (400, 4)
    assert stage.play(program, limits).result == ["flaky", "steady"]
    for _ in range(2):  # the replay of what is finished adds nothing
        assert (account(stage).spent_tokens, account(stage).calls) == (500, 5)
        assert stage.play(program, limits).result == ["flaky", "steady"]
    assert stage.effects() == ["flaky 1", "flaky 2", "flaky 3", "steady", "steady"]
    check_all(stage.url, "run", attempts={"flaky": 3})


# ---- the weekend loop


@pytest.mark.parametrize("way", ["broken", "missing"])
def test_a_loop_that_nobody_ends_is_ended_by_its_budget(stage: Stage, way: str) -> None:
    program = PROGRAMS / "weekend.py"
    for turn in (2, 4, 7):
        stage.kill_at(f"turn-{turn}")
        assert stage.play(program, way).killed
    for _ in range(3):
        assert is_over_budget(stage.play(program, way), "20 of 20 calls used")
    view = stage.client().run("run")
    assert (view.status, view.reason) == ("held", "over-budget")
    kept = account(stage)
    asked, tried = stage.effects().count("model"), stage.effects().count("tool")
    assert kept.spent_usd == Decimal("0.01") * asked
    breakers = {b.name: b.state for b in read_breakers(get_store(stage.url).store)}
    if way == "broken":
        assert breakers == {"weekend.tool": "open"}
        assert (asked, tried) == (10, 5)  # five calls were refused, and counted all the same
    else:
        assert (breakers, asked, tried) == ({}, 20, 0)
