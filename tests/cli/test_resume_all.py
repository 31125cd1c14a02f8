"""`outlast resume --all`: runs take turns, and none that waits keeps another from its end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.worker.stores import get_store
from tests.changes.programs import HEAD, Workshop
from tests.cli.test_damaged import alter

DESK = (
    HEAD
    + """
@outlast.step
def do(what: str) -> str:
    did(what)
    return what

@outlast.workflow
def desk(seconds: float, what: str) -> str:
    do(f"{what} begins")
    if seconds:
        outlast.sleep(seconds).result()
    return do(f"{what} ends")

@outlast.workflow
def broken() -> None:
    raise ValueError("no such order")
"""
)

SUBMIT = """
import sys
import outlast
from desk import broken, desk

for run_id, seconds in zip(sys.argv[1::2], sys.argv[2::2]):
    outlast.submit(desk, float(seconds), run_id, run_id=run_id)
"""

FAST = """
import sys, time
from outlast.cli.main import main
from outlast.world import World

ahead = 0.0
waits = World.pause

def pause(world, seconds, wake=None):
    # What nobody can cut short is a wait for what is due: the time for that passes at once.
    global ahead
    assert seconds <= 1
    if wake is None:
        ahead += 60
    else:
        waits(world, seconds, wake)

World.pause = pause
World.wall = lambda world: time.time() + ahead
sys.exit(main(["resume", "--all", "--in-process", "--json"]))
"""
"""The command in a world in which waiting takes no time."""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.write(DESK)
    shop.write(SUBMIT, "submit.py")
    shop.write(FAST, "fast.py")
    return shop


def _environment(shop: Workshop) -> dict[str, str]:
    return {**os.environ, "OUTLAST_STORE": shop.url, "PYTHONDONTWRITEBYTECODE": "1"}


def submit(shop: Workshop, **runs: float) -> None:
    words = [word for run_id, seconds in runs.items() for word in (run_id, str(seconds))]
    done = subprocess.run(
        [sys.executable, "submit.py", *words],
        cwd=shop.folder,
        env=_environment(shop),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_runs_that_wait_are_come_back_to_the_soonest_first(shop: Workshop) -> None:
    submit(shop, long=600, short=300, ready=0)
    done = shop.python("fast.py")
    assert done.code == 0, done.stderr
    assert shop.effects() == [
        *("long begins", "short begins", "ready begins", "ready ends"),
        *("short ends", "long ends"),
    ]
    views = json.loads(done.stdout)
    assert [(v["run_id"], v["status"], v["result"]) for v in views] == [
        ("long", "completed", "long ends"),
        ("short", "completed", "short ends"),
        ("ready", "completed", "ready ends"),
    ]
    assert "2 runs wait for a time; short goes on at " in done.stderr
    assert "1 run waits for a time; long goes on at " in done.stderr
    shop.close()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_a_signal_ends_the_wait_and_new_runs_do_not_have_to_wait_for_that(
    shop: Workshop, number: signal.Signals, code: int
) -> None:
    submit(shop, sleepy=600, ready=0)
    with subprocess.Popen(
        [sys.executable, "-m", "outlast", "resume", "--all", "--json"],
        cwd=shop.folder,
        env=_environment(shop),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _until(process, "1 run waits for a time; sleepy goes on at ")
            assert shop.view("ready").status == "completed"
            submit(shop, late=0)
            _until(process, "run late completed")
            _until(process, "1 run waits for a time; sleepy goes on at ")
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code, stderr
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert {v["run_id"]: v["status"] for v in json.loads(stdout)} == {
        "sleepy": "waiting",
        "ready": "completed",
        "late": "completed",
    }
    assert (shop.view("sleepy").status, shop.view("sleepy").owner) == ("waiting", None)


def _until(process: "subprocess.Popen[str]", said: str) -> None:
    assert process.stderr is not None
    read: list[str] = []
    while said not in (line := process.stderr.readline()):
        assert line, read
        read.append(line)


def test_without_waiting_each_run_that_can_go_on_has_one_turn(shop: Workshop) -> None:
    submit(shop, sleepy=600, ready=0)
    first = shop.command("resume", "--all", "--no-wait")
    assert first.code == 5, first
    assert shop.effects() == ["sleepy begins", "ready begins", "ready ends"]
    again = shop.command("resume", "--all", "--no-wait")
    assert (again.code, again.stderr) == (0, "no run waits for a process\n")


def test_a_run_that_cannot_be_read_does_not_hold_the_others_up(shop: Workshop) -> None:
    submit(shop, bad=0, ready=0)
    get_store(shop.url).store.close()
    alter(shop, "UPDATE events SET kind = 'run.new' WHERE run_id = 'bad' AND seq = 1")
    done = shop.command("resume", "--all", "--in-process")
    assert done.code == 7, done
    assert "run bad cannot be read" in done.stderr
    assert shop.effects() == ["ready begins", "ready ends"]


def test_a_run_that_fails_is_not_tried_again(shop: Workshop) -> None:
    submit(shop, ready=0, other=0)
    shop.write("import nothing_of_that_name\n")
    done = shop.command("resume", "--all", "--in-process")
    assert done.code == 2
    assert done.stderr.count("nothing_of_that_name") == 2
