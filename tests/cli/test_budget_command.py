"""Budgets on the command line: given to a run, used up, raised, told."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

import outlast
from outlast import Budget, Usage
from outlast.worker.stores import get_store
from tests.changes.programs import Workshop
from tests.cli.test_damaged import alter

SHOP = """
import outlast

@outlast.step(cost=0.5, effect="read")
def think(n: int) -> int:
    return n

@outlast.step(cost=lambda result: None, effect="read")
def guess() -> int:
    return 1

@outlast.workflow(budget=outlast.Budget(usd=1))
def guesses() -> int:
    return guess() + guess()

@outlast.workflow(budget=outlast.Budget(usd=1, calls=20))
def desk() -> int:
    return sum(think(n) for n in range(4))

@outlast.workflow
def free() -> int:
    return think(1)

@outlast.step
def ask() -> int:
    return 1

@outlast.workflow(budget=outlast.Budget(usd=1))
def asks() -> int:
    return ask()

@outlast.workflow(budget=outlast.Budget(usd=1), max_repeats=3)
def idle() -> int:
    return [ask() for _ in range(9)][0]
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.write(SHOP)
    return shop


def test_a_run_that_is_over_budget_is_topped_up_and_pays_for_nothing_twice(shop: Workshop) -> None:
    held = shop.command("run", "desk.py:desk", "--id", "r")
    assert held.code == 3
    assert "held (over-budget)" in held.stderr
    assert "  outlast resume r --add usd=AMOUNT" in held.stderr.splitlines()
    more = shop.command("resume", "r", "--add", "usd=1,calls=5")
    assert (more.code, more.stdout) == (0, "6\n"), more.stderr
    assert "1.00 of 2.00 USD left" in more.stderr
    view = json.loads(shop.command("show", "r", "--json").stdout)
    assert view["spending"]["settled"] == {"usd": "2.00", "tokens": 0}
    assert view["spending"]["limits"] == {"usd": "2.00", "calls": 25}
    assert view["spending"]["calls"] == 4
    assert view["budget"][0].startswith("0.00 of 2.00 USD left")
    assert [step["cost"] for step in view["steps"]] == [{"usd": "0.50", "tokens": 0}] * 4
    assert [step["attempts"] for step in view["steps"]] == [1] * 4
    shown = shop.command("show", "r").stdout
    assert "budget: 21 of 25 calls left" in shown
    assert shown.count("0.50 USD  ") == 4
    budgeted = [row for row in shop.command("journal", "r").stdout.splitlines() if "added:" in row]
    assert len(budgeted) == 1
    assert "added: usd=1, calls=5 by " in budgeted[0]


REFUSED = {
    "--add usd=0": "adds nothing",
    "--add usd=-1": "negative",
    "--add usd=unlimited": "not a number",
    "--add steps=3": "no limit of steps",
    "--add euro=3": "one of usd, tokens",
    "--add usd=1 --add usd=2": "twice",
    "--charge calls=3": "usd and tokens",
    "--charge usd=1": "no cost of the run is unknown",
}


def test_what_cannot_be_added_is_refused_in_one_line_and_nothing_is_resumed(shop: Workshop) -> None:
    assert shop.run().code == 3
    before = outlast.Client(shop.url).run("r")
    for words, said in REFUSED.items():
        refused = shop.command("resume", "r", *words.split())
        assert (refused.code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused
        assert said in refused.stderr
    after = outlast.Client(shop.url).run("r")
    assert (after.seq, after.spending) == (before.seq, before.spending)


def test_nothing_is_added_to_a_run_that_is_over_nor_to_all_runs(shop: Workshop) -> None:
    assert shop.command("run", "desk.py:desk", "--id", "r", "--budget", "usd=9").code == 0
    over = shop.command("resume", "r", "--add", "usd=1")
    assert (over.code, over.stderr.count("\n")) == (2, 1)
    assert "run r is completed" in over.stderr
    every = shop.command("resume", "--all", "--add", "usd=1")
    assert every.code == 2
    assert "outlast resume RUN --add" in every.stderr


def test_what_was_added_stays_added_once_if_the_resume_fails(shop: Workshop) -> None:
    assert shop.run().code == 3
    shop.write("import nothing_of_that_name\n")
    failed = shop.command("resume", "r", "--add", "usd=1")
    assert failed.code == 2
    assert "stays added" in failed.stderr
    assert "outlast resume r" in failed.stderr.splitlines()[-1]
    shop.write(SHOP)
    assert shop.command("resume", "r").code == 0
    spending = shop.view().spending
    assert spending is not None
    assert spending.limits["usd"] == Decimal(2)


def test_an_unknown_cost_is_told_and_somebody_says_what_it_came_to(shop: Workshop) -> None:
    held = shop.command("run", "desk.py:guesses", "--id", "r", "--in-process")
    assert held.code == 3
    assert "  outlast resume r --charge usd=AMOUNT" in held.stderr.splitlines()
    shown = shop.command("show", "r").stdout
    assert "USD unknown, tokens unknown" in shown
    assert "budget: guess#0, attempt 1: cost unknown (" in shown
    view = json.loads(shop.command("show", "r", "--json").stdout)
    assert view["steps"][0]["cost"] == {"usd": None, "tokens": None}
    assert view["spending"]["unknown_usd"] == 1
    assert view["spending"]["unknown"][0].startswith("guess#0, attempt 1: ")
    charged = shop.command("resume", "r", "--charge", "usd=0.30", "--in-process")
    assert charged.code == 0, charged
    spending = shop.view().spending
    assert spending is not None
    assert spending.settled.usd == Decimal("0.30")
    assert "charged for what was unknown: usd=0.30 by " in shop.command("journal", "r").stdout


def test_a_run_gets_a_budget_of_its_own(shop: Workshop) -> None:
    held = shop.command("run", "desk.py:free", "--id", "f")
    assert held.code == 3
    assert "no money budget" in held.stderr
    assert shop.command("run", "desk.py:free", "--id", "f", "--budget", "usd=unlimited").code == 0
    assert "any amount of USD (0.50 settled" in shop.command("show", "f").stdout
    view = json.loads(shop.command("show", "f", "--json").stdout)
    assert view["spending"]["limits"] == {"usd": "unlimited"}

    words = ("run", "desk.py:desk", "--id", "r", "--budget")
    held = shop.command(*words, "usd=5", "--budget", "calls=2")
    assert held.code == 3
    assert "  outlast resume r --add calls=AMOUNT" in held.stderr.splitlines()
    assert shop.command(*words, "usd=1.50").code == 3
    spending = shop.view().spending
    assert spending is not None
    assert spending.limits == {"usd": Decimal("1.50")}


def test_a_budget_that_is_none_is_refused_before_anything_is_written(shop: Workshop) -> None:
    for budget in ("usd=x", "usd=unlimited,usd=1", "usd=unlimited,usd=unlimited"):
        refused = shop.command("run", "desk.py:desk", "--budget", budget)
        assert (refused.code, refused.stderr.count("\n")) == (2, 1)
        assert budget.split(",")[0] in refused.stderr
    assert not (shop.folder / "store.db").exists()


def test_a_warning_is_one_line_without_a_place_in_the_library(shop: Workshop) -> None:
    for how in ((), ("--in-process",)):
        done = shop.command("run", "desk.py:asks", "--id", f"i{len(how)}", *how)
        (line,) = [line for line in done.stderr.splitlines() if "warning" in line.lower()]
        assert line.startswith(f"outlast: warning: run i{len(how)} has a money budget")
        assert ".py" not in line


def test_a_loop_is_held_with_the_commands_that_help(shop: Workshop) -> None:
    held = shop.command("run", "desk.py:idle", "--id", "r")
    assert held.code == 3
    lines = held.stderr.splitlines()
    assert "  outlast journal r" in lines
    assert "  outlast resume r" in lines
    assert "held (looping)" in shop.command("ls").stdout


def test_an_altered_account_is_one_clear_error(shop: Workshop) -> None:
    assert shop.run().code == 3
    get_store(shop.url).store.close()
    for account in ("{", '{"declared": {"usd": "NaN"}}', '{"declared": {"calls": "many"}}'):
        alter(shop, f"UPDATE budgets SET account = '{account}'")
        for words in (["show", "r"], ["show", "r", "--json"], ["resume", "r", "--add", "usd=1"]):
            broken = shop.command(*words)
            assert broken.code == 7, (words, account, broken)
            assert (broken.stdout, broken.stderr.count("\n")) == ("", 1)
            assert "the budget of run r" in broken.stderr
        assert "held (over-budget)" in shop.command("ls").stdout


def test_a_program_raises_a_budget(shop: Workshop) -> None:
    assert shop.run().code == 3
    client = outlast.Client(shop.url)
    view = client.add_budget("r", Budget(usd="0.25"), by="ann")
    assert (view.status, view.reason) == ("held", "over-budget")
    assert view.spending is not None
    assert view.spending.left["usd"] == Decimal("0.25")
    with pytest.raises(outlast.UsageError, match="no cost of the run is unknown"):
        client.add_budget("r", charged=Usage(usd=Decimal(1)))
    with pytest.raises(outlast.UsageError, match="nothing is added"):
        client.add_budget("r")
    with pytest.raises(outlast.UsageError, match=r"outlast\.Budget is expected"):
        client.add_budget("r", {"usd": 1})  # type: ignore[arg-type]
