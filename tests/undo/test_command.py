"""`outlast undo` as a user runs it, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effects.stage import ROOT, Stage

SHOP = """
import os, pathlib, signal
import outlast

HERE = pathlib.Path(__file__).parent

def log(*words):
    with (HERE / "effects.log").open("a") as file:
        print(*words, file=file)

@outlast.step(effect="idempotent")
def order(what: str) -> dict[str, str]:
    log("order", what)
    return {"what": what}

@order.undo
def _(what: str, result: dict[str, str]) -> None:
    if (HERE / "die").exists():
        (HERE / "die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (HERE / "broken").exists():
        raise outlast.Terminal("the shop is closed")
    log("cancel", result["what"])

@outlast.step(effect="idempotent")
def mail(text: str) -> None:
    log("mail", text)

@outlast.workflow
def stall() -> str:
    order("lamp")
    outlast.sleep(3600).result()
    return "done"

@outlast.workflow
def shop() -> str:
    order("lamp")
    mail("thanks")
    order("bulb")
    return "done"
"""


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)

    def __call__(self, *words: str) -> "subprocess.CompletedProcess[str]":
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
        env["OUTLAST_STORE"] = "sqlite:///store.db"
        return subprocess.run(
            [sys.executable, "-m", "outlast", *words],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def cancelled(self) -> list[str]:
        lines = (self.folder / "effects.log").read_text().splitlines()
        return [line for line in lines if line.startswith("cancel")]


@pytest.fixture
def shop(stage: Stage) -> Shop:
    shop = Shop(stage.folder)
    assert shop("run", "shop.py:shop", "--id", "run").returncode == 0
    return shop


def test_it_undoes_in_the_foreground_and_says_what_is_left(shop: Shop) -> None:
    done = shop("undo", "run")
    assert done.returncode == 0, done.stderr
    assert "run run is undone, and failed" in done.stderr
    assert "undone: order#2, order#0" in done.stderr
    assert "left as it is: mail#1" in done.stderr
    assert shop.cancelled() == ["cancel bulb", "cancel lamp"]

    shown = shop("show", "run").stdout
    assert "failed (undone)" in shown
    assert "left as it is: mail#1" in shown
    assert "It was undone" in shown
    assert "to be undone by" in shop("journal", "run").stdout
    assert shop("verify", "run").returncode == 0


def test_it_prints_json_and_takes_a_step(shop: Shop) -> None:
    done = shop("undo", "run", "--to", "order#2", "--json")
    view = json.loads(done.stdout)
    assert (view["status"], view["undone"]) == ("failed", ["order#2"])
    assert view["left"] == ["order#0", "mail#1"]
    assert shop("undo", "run", "--to", "nothing#1").returncode == 2


def test_it_goes_on_when_its_worker_dies_in_a_compensation(shop: Shop) -> None:
    (shop.folder / "die").touch()
    done = shop("undo", "run")
    assert done.returncode == 0, done.stderr
    assert not (shop.folder / "die").exists()
    assert shop.cancelled() == ["cancel bulb", "cancel lamp"]


def test_a_compensation_that_fails_is_held_with_the_commands_that_help(shop: Shop) -> None:
    (shop.folder / "broken").touch()
    done = shop("undo", "run")
    assert done.returncode == 3
    assert "the shop is closed" in done.stderr
    assert "outlast settle run 'order.undo#u.2' --done null" in done.stderr

    (shop.folder / "broken").unlink()
    assert shop("settle", "run", "order.undo#u.2", "--failed", "they keep it").returncode == 0
    assert shop("resume", "run").returncode == 1
    assert shop.cancelled() == ["cancel lamp"]
    assert "left as it is: mail#1, order#2" in shop("show", "run").stdout


def test_a_run_that_there_is_not_is_refused(shop: Shop) -> None:
    done = shop("undo", "no-such-run")
    assert done.returncode == 2
    assert "there is no run" in done.stderr


def test_a_kill_can_undo_what_the_run_has_done(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop("run", "shop.py:stall", "--id", "s-1", "--no-wait").returncode == 5
    killed = shop("kill", "s-1", "--reason", "too slow", "--undo")
    assert killed.returncode == 0, killed.stderr
    assert shop.cancelled() == ["cancel lamp"]
    view = json.loads(shop("show", "s-1", "--json").stdout)
    assert view["status"] == "killed"
    assert shop("kill", "s-1", "--undo").returncode == 0
    assert shop.cancelled() == ["cancel lamp"]


def test_undo_belongs_to_a_kill_of_one_run(tmp_path: Path) -> None:
    said = Shop(tmp_path)("kill", "--all", "--undo")
    assert said.returncode == 2
    assert "--undo belongs to one run" in said.stderr
