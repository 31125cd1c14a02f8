"""Rows that guardrails rest on and that somebody has removed or altered: no run goes on as if
nothing had been spent, and `verify` says so."""

import json
from pathlib import Path

import pytest

from outlast.worker.stores import get_store
from tests.changes.programs import Workshop
from tests.cli.test_damaged import alter

SHOP = """
import outlast

@outlast.step(cost=0.5, breaker=outlast.Breaker("bank", failures=1, cooldown=600))
def pay(n: int) -> int:
    with open("effects.log", "a") as log:
        log.write(f"pay {n}\\n")
    return n

@outlast.workflow(budget=outlast.Budget(usd=1, tokens=100))
def desk() -> int:
    return sum(pay(n) for n in range(3))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A run that is held at the limit of its budget."""
    shop = Workshop(tmp_path)
    shop.write(SHOP)
    held = shop.run()
    assert (held.code, shop.effects()) == (3, ["pay 0", "pay 1"]), held.stderr
    get_store(shop.url).store.close()
    return shop


GONE = "DELETE FROM budgets"
LESS = "UPDATE budgets SET account = json_set(account, '$.settled.usd', '0.25')"
NONE = "UPDATE budgets SET account = json_remove(account, '$.settled')"
MORE = "UPDATE budgets SET account = json_set(account, '$.settled.tokens', 40)"
BROKEN = "UPDATE budgets SET account = '{'"


def test_a_run_whose_budget_was_removed_is_not_gone_on_with(shop: Workshop) -> None:
    alter(shop, GONE)
    for words in (
        ("run", "desk.py:desk", "--id", "r", "--in-process"),
        ("resume", "r", "--in-process"),
        ("resume", "r", "--add", "usd=5", "--in-process"),
    ):
        refused = shop.command(*words)
        assert refused.code == 7, refused
        assert "the budget of run r is gone from the store" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert shop.effects() == ["pay 0", "pay 1"]
    assert shop.command("run", "desk.py:desk", "--id", "new", "--in-process").code == 3


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (GONE, "its budget is gone from the store"),
        (LESS, "0.25 USD and 0 tokens are spent, the journal says 1.00 USD"),
        (NONE, "the journal says 1.00 USD"),
        (MORE, "40 tokens are spent, the journal says 1.00 USD and 0 tokens"),
        (BROKEN, "the budget of run r cannot be read"),
    ],
    ids=["gone", "less", "nothing", "more", "broken"],
)
@pytest.mark.parametrize("which", [(), ("r",)], ids=["all", "that run"])
def test_verify_finds_a_budget_that_was_removed_or_altered(
    shop: Workshop, statement: str, words: str, which: tuple[str, ...]
) -> None:
    whole = shop.command("verify", *which)
    assert whole.code == 0, whole
    alter(shop, statement)
    found = shop.command("verify", *which)
    assert found.code not in (0, 2), found
    assert words in found.stdout + found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("lost", [1, 2, 4], ids=["the last", "two", "all"])
def test_verify_finds_a_cut_end_of_the_stores_own_journal(shop: Workshop, lost: int) -> None:
    for words in (("trip", "bank"), ("reset", "bank"), ("trip", "other")):
        assert shop.command("breakers", *words).code == 0
    rows = json.loads(shop.command("journal", "@store", "--json").stdout)
    assert len(rows) == 4
    assert shop.command("verify").code == 0
    alter(shop, f"DELETE FROM events WHERE run_id = '@store' AND seq > {4 - lost}")
    found = shop.command("verify")
    assert found.code not in (0, 2), found
    assert "its end was cut off: event 4 was the last one" in found.stdout + found.stderr


# ---- what the command shows of breakers that nobody has set

MAIL = """
import os, outlast

@outlast.step(retry=outlast.Retry(attempts=8, initial=0))
def ask() -> str:
    fails = int(os.path.exists("fails")) and int(open("fails").read())
    if fails > outlast.current().attempt - 1:
        raise ConnectionResetError
    return "worked"

@outlast.workflow
def desk() -> str:
    return ask()

if __name__ == "__main__":
    print(outlast.run(desk, run_id=__file__))
"""


@pytest.mark.parametrize("fails", [3, 8])
def test_the_failures_of_a_breaker_are_told_out_of_as_many_as_open_it(
    tmp_path: Path, fails: int
) -> None:
    shop = Workshop(tmp_path)
    shop.write(MAIL)
    (tmp_path / "fails").write_text(str(fails))
    assert shop.run().code == (1 if fails == 8 else 0)
    shown = shop.command("breakers").stdout
    assert f"{fails} of 8 in 60 s" in shown
    (view,) = json.loads(shop.command("breakers", "--json").stdout)
    assert (view["name"], view["failures"], view["settings"]["failures"]) == ("desk.ask", fails, 8)


@pytest.mark.parametrize("how", ["command", "program"])
def test_programs_with_a_function_of_one_name_have_a_breaker_each(tmp_path: Path, how: str) -> None:
    shop = Workshop(tmp_path)
    for file in ("mail.py", "chat.py"):
        shop.write(MAIL, file)

    def start(file: str, run_id: str) -> int:
        return (shop.run(f"{file}:desk", run_id) if how == "command" else shop.python(file)).code

    (tmp_path / "fails").write_text("8")
    assert start("mail.py", "one") == 1
    (tmp_path / "fails").unlink()
    assert start("chat.py", "two") == 0, "it is another tool"
    if how == "command":
        assert start("mail.py", "three") == 1
    (view,) = json.loads(shop.command("breakers", "--json").stdout)
    assert (view["name"], view["state"]) == ("mail.ask", "open")


def budget_lines(shop: Workshop) -> list[str]:
    shown = shop.command("show", "r").stdout.splitlines()
    return [line for line in shown if line.startswith("budget: ")]


def test_show_says_no_more_that_a_cost_is_unknown_once_an_upper_bound_is_charged(
    tmp_path: Path,
) -> None:
    shop = Workshop(tmp_path)
    text = SHOP.replace("cost=0.5", "cost=lambda result: None").replace(", tokens=100", "")
    shop.write(text)
    assert shop.run().code == 3
    assert [line for line in budget_lines(shop) if "cost unknown" in line]
    shop.write(text.replace("usd=1", "usd=1, on_unknown=0.25"))
    assert shop.run().code == 0
    assert budget_lines(shop) == ["budget: 0.25 of 1.00 USD left (0.75 settled, 0.00 reserved)"]
    rows = json.loads(shop.command("journal", "r", "--kind", "run.budgeted", "--json").stdout)
    assert [row["data"].get("charged") for row in rows] == [None, {"usd": "0.25", "tokens": 0}]
    assert shop.command("verify").code == 0
