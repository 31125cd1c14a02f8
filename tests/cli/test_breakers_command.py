"""`outlast breakers`, and the journal of the store as a whole, as a user runs them."""

import json
from pathlib import Path

import pytest

import outlast
from outlast.policy.breaker import Breaker
from outlast.worker.stores import get_store
from tests.changes.programs import Workshop
from tests.cli.test_damaged import alter

SHOP = """
import outlast

@outlast.step(
    effect="read",
    breaker=outlast.Breaker("pay ments", failures=2, window=900, cooldown=600),
    retry=outlast.Retry(attempts=2, initial=0.001, jitter="none"),
)
def pay() -> int:
    raise ConnectionRefusedError("no bank today")

@outlast.workflow
def desk() -> int:
    return pay()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A store in which the breaker of a tool is open."""
    shop = Workshop(tmp_path)
    shop.write(SHOP)
    assert shop.run().code == 1
    return shop


def listed(shop: Workshop) -> dict[str, dict[str, object]]:
    return {view["name"]: view for view in json.loads(shop.command("breakers", "--json").stdout)}


def test_a_breaker_is_listed_with_its_state_its_last_fault_and_its_next_probe(
    shop: Workshop,
) -> None:
    heading, line = shop.command("breakers").stdout.splitlines()
    assert heading.split()[:3] == ["BREAKER", "STATE", "FAILURES"]
    assert line.startswith("pay ments  open   2 of 2 in 900 s  1  ")
    assert "(in " in line
    assert "ConnectionRefusedError" in line
    assert line.endswith(" ago")
    (view,) = json.loads(shop.command("breakers", "--json").stdout)
    assert (view["name"], view["state"], view["failures"]) == ("pay ments", "open", 2)
    assert (view["trips"], view["probes"], view["declared_by"]) == (1, [], ["desk.pay"])
    assert view["until"] > view["last_fault_at"]
    assert view["settings"]["cooldown"] == 600


def test_an_operator_closes_and_opens_a_breaker_and_the_journal_says_who(shop: Workshop) -> None:
    closed = shop.command("breakers", "reset", "pay ments")
    assert (closed.code, closed.stdout) == (0, "breaker pay ments is closed\n"), closed.stderr
    assert listed(shop)["pay ments"]["state"] == "closed"
    opened = shop.command("breakers", "trip", "pay ments", "--for", "90", "--json")
    assert opened.code == 0, opened.stderr
    assert json.loads(opened.stdout)["state"] == "open"
    assert shop.command("run", "desk.py:desk", "--id", "s", "--in-process").code == 1
    assert "breaker pay ments is open" in (shop.view("s").steps[0].error or "")

    words = shop.command("journal", "@store").stdout
    kinds = [row.split()[4] for row in words.splitlines()[1:]]
    assert kinds == ["breaker.declared", "breaker.opened", "breaker.reset", "breaker.tripped"]
    assert "trip 1, after pay#0 of run r: ConnectionRefusedError" in words
    rows = json.loads(shop.command("journal", "@store", "--kind", "breaker", "--json").stdout)
    assert [row["kind"] for row in rows] == kinds
    assert all(row["data"]["by"] for row in rows[2:])


def test_a_name_that_no_breaker_has_is_refused_with_those_that_there_are(shop: Workshop) -> None:
    refused = shop.command("breakers", "reset", "payments")
    assert (refused.code, refused.stdout) == (2, "")
    assert "'payments'" in refused.stderr
    assert "known: pay ments" in refused.stderr
    assert refused.stderr.count("\n") == 1
    tripped = shop.command("breakers", "trip", "payments")
    assert tripped.code == 0
    assert "payments was not known before" in tripped.stderr
    assert "known: pay ments" in tripped.stderr


def test_a_cool_down_that_is_none_is_refused_and_changes_nothing(shop: Workshop) -> None:
    for seconds in ("0", "-1", "nan", "inf"):
        refused = shop.command("breakers", "trip", "other", "--for", seconds)
        assert (refused.code, refused.stderr.count("\n")) == (2, 1)
    assert [*listed(shop)] == ["pay ments"]


def test_a_breaker_may_have_any_name(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    get_store(shop.url).store.close()
    names = sorted(["reset", "-x", "a\tb\x1b[2J", "漢字 ✓", "'; DROP TABLE runs"])
    for name in names:
        assert shop.command("breakers", "trip", "--", name).code == 0
        assert shop.command("breakers", "reset", "--", name).code == 0
    assert [*listed(shop)] == names
    shown = shop.command("breakers").stdout
    assert shown.count("\n") == 1 + len(names)
    assert "\x1b" not in shown


def test_a_store_without_breakers_says_so(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    none = shop.command("breakers")
    assert none.code == 0
    assert "no store" in none.stdout
    assert not (tmp_path / "store.db").exists()
    assert shop.command("breakers", "--json").stdout == "[]\n"
    shop.write("import outlast\n\n@outlast.workflow\ndef desk():\n    return 1\n")
    assert shop.run().code == 0
    assert shop.command("breakers").stdout.startswith("no breakers: ")
    assert json.loads(shop.command("journal", "@store", "--json").stdout) == []
    assert "@store" not in shop.command("verify").stdout


def test_the_journal_of_the_store_is_verified_with_the_others_and_alone(shop: Workshop) -> None:
    client = outlast.Client(shop.url)
    head = client.journal("@store")[-1].hash.hex()
    client.trip_breaker("x", 5, by="ann")
    both = shop.command("verify", "--json")
    assert both.code == 0, both
    assert [v["run_id"] for v in json.loads(both.stdout)] == ["r", "@store"]
    kept = shop.command("verify", "@store", "--head", head)
    assert (kept.code, "intact" in kept.stdout) == (0, True)
    other = shop.command("verify", "@store", "--head", "00" * 32)
    assert (other.code, "head hash is not in this journal" in other.stdout) == (1, True)

    get_store(shop.url).store.close()
    alter(shop, "UPDATE events SET key = 'other' WHERE run_id = '@store' AND seq = 2")
    altered = shop.command("verify")
    assert altered.code == 1
    assert "@store  ALTERED at record 2" in altered.stdout
    alter(shop, "DELETE FROM events WHERE run_id = '@store' AND seq > 1")
    assert shop.command("verify", "@store", "--head", head).code == 1


def test_a_row_that_was_altered_is_one_clear_error_and_can_be_started_anew(shop: Workshop) -> None:
    alter(shop, 'UPDATE breakers SET state = \'{"t": "x"}\'')
    for words in ((), ("--json",), ("trip", "pay ments")):
        broken = shop.command("breakers", *words)
        assert broken.code == 7, (words, broken)
        assert "the row of breaker pay ments cannot be read" in broken.stderr
        assert broken.stderr.count("\n") == 1
        assert broken.stdout == ""
    assert shop.command("breakers", "trip", "other").code == 0
    assert shop.command("breakers", "reset", "pay ments").code == 0
    assert listed(shop)["pay ments"]["state"] == "closed"


def test_a_program_looks_at_breakers_and_decides_about_them(shop: Workshop) -> None:
    client = outlast.Client(shop.url)
    (view,) = client.breakers()
    assert isinstance(view, outlast.BreakerView)
    assert (view.state, view.settings.failures) == ("open", 2)
    assert client.reset_breaker("pay ments", by="ann").state == "closed"
    assert client.trip_breaker("pay ments", seconds=30, by="ann").settings == Breaker("pay ments")
    assert client.breakers()[0].last_fault == "tripped by ann"
    for name in ("never heard of", "half a \ud800 letter"):
        with pytest.raises(outlast.UsageError, match="no breaker"):
            client.reset_breaker(name)
