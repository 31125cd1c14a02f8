"""One run that cannot be shown in full hides neither itself nor the others."""

import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from outlast import Client
from outlast.worker.stores import get_store
from tests.changes.programs import Workshop

DESK = """
import os, signal
import outlast

@outlast.step
def think(n):
    return n

@outlast.step
def stop():
    if os.path.exists("die"):
        os.kill(os.getpid(), signal.SIGKILL)

@outlast.workflow
def desk():
    for turn in outlast.turns(n=0):
        turn.n += think(1)
        if turn.n == 2:
            break
    stop()
    return "fine"

@outlast.workflow
def large():
    return {"value": 10**5000, "less": -(10**4400), "small": 10**30}
"""


@pytest.fixture
def store(tmp_path: Path) -> Workshop:
    """A completed run `fine`, and `bad`, which was killed, and of which steps were dropped."""
    shop = Workshop(tmp_path)
    shop.write(DESK)
    assert shop.run(run_id="fine").code == 0
    (tmp_path / "die").touch()
    assert shop.run(run_id="bad").killed
    Client(shop.url).accept_from("bad", "stop#1")
    get_store(shop.url).store.close()
    return shop


def alter(shop: Workshop, statement: str) -> None:
    with closing(apsw.Connection(str(shop.folder / "store.db"))) as database:
        for (trigger,) in list(
            database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ):
            database.execute(f'DROP TRIGGER "{trigger}"')
        database.execute("PRAGMA ignore_check_constraints = 1")
        database.execute(statement)


BROKEN = {
    "a step": "UPDATE events SET data = x'7b' WHERE run_id = 'bad' AND kind = 'step.completed'",
    "a turn": "UPDATE events SET data = x'7b' WHERE run_id = 'bad' AND kind = 'turn.saved'",
    "an unknown kind": "UPDATE events SET kind = 'step.new' WHERE run_id = 'bad' AND seq = 3",
    "tags": "UPDATE runs SET tags = '{' WHERE run_id = 'bad'",
    "the owner": "UPDATE runs SET owner = 'x' WHERE run_id = 'bad'",
}


@pytest.mark.parametrize("statement", BROKEN.values(), ids=list(BROKEN))
def test_a_list_shows_what_is_known_of_a_damaged_run(store: Workshop, statement: str) -> None:
    alter(store, statement)
    listed = store.command("ls")
    assert listed.code == 0, listed
    (bad,) = [line for line in listed.stdout.splitlines() if line.startswith("bad ")]
    assert "queued (accepted), damaged" in bad
    assert any(line.startswith("fine ") for line in listed.stdout.splitlines())
    assert "run bad cannot be read" in listed.stderr
    assert "outlast verify" in listed.stderr
    views = {v["run_id"]: v for v in json.loads(store.command("ls", "--json").stdout)}
    assert (views["fine"]["result"], views["fine"]["damaged"]) == ("fine", None)
    assert len(views["fine"]["steps"]) == 3
    assert views["bad"]["status"] == "queued"
    assert "cannot be read" in views["bad"]["damaged"]


def test_the_result_of_a_completed_run_may_be_damaged(store: Workshop) -> None:
    alter(store, "UPDATE events SET data = x'7b' WHERE kind = 'run.completed'")
    listed = store.command("ls")
    assert listed.code == 0, listed
    assert "completed, damaged" in listed.stdout


@pytest.mark.parametrize("how", [(), ("--in-process",)], ids=["worker", "in-process"])
def test_a_number_that_is_too_long_to_show_is_shown_shortened(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    shop = Workshop(tmp_path)
    shop.write(DESK)
    shown = {
        "value": "a number of 5,001 digits",
        "less": "a number of 4,401 digits",
        "small": "1" + "0" * 30,
    }
    assert shop.command("run", "desk.py:large", "--id", "r", *how).result == shown
    assert '"a number of 5,001 digits"' in shop.command("show", "r").stdout
    assert shop.command("ls").code == 0
    assert json.loads(shop.command("show", "r", "--json").stdout)["result"] == shown
