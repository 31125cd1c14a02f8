"""`outlast replay`: all live runs against the code at hand, as a command before a deploy."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast.testing import replay
from tests.effects.stage import Stage, wait_for
from tests.engine.tools import copy_store
from tests.scenarios.commands import command

DESK = """
import os, pathlib, signal, time
import outlast

print("imported")
HERE = pathlib.Path(__file__).parent

@outlast.step
def look(n):
    with open(HERE / "ran", "a") as file:
        file.write(f"{n}\\n")
    return n

@outlast.workflow
def desk(n: int):
    print("noise of the workflow")
    os.write(1, b"noise past Python\\n")
    look(n)
    outlast.sleep(3600).result()

@outlast.workflow
def other():
    look(0)
    outlast.sleep(3600).result()

@outlast.workflow
def quick():
    look(5)

@outlast.step
def patient():
    (HERE / "waiting").touch()
    time.sleep(600)

@outlast.workflow
def owned():
    look(1)
    patient()

def begin():
    for run_id, flow, args in (("d-1", desk, [1]), ("d-2", desk, [2]), ("o-1", other, [])):
        try:
            outlast.run(flow, *args, run_id=run_id, wait=False)
        except outlast.RunWaiting:
            pass
    os.kill(os.getpid(), signal.SIGKILL)
"""

OTHER_ARGUMENT = ("look(n)\n    outlast", "look(n + 7)\n    outlast")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Three live runs, whose process was killed; its last commits stand in the log file."""
    made = Stage(tmp_path)
    (tmp_path / "desk.py").write_text(DESK)
    begun = subprocess.run(
        [sys.executable, "-c", "import desk; desk.begin()"],
        cwd=tmp_path,
        env={**os.environ, "OUTLAST_STORE": made.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert begun.returncode == -signal.SIGKILL, begun.stderr
    assert _ran(made) == 3
    return made


def _ran(stage: Stage) -> int:
    return len((stage.folder / "ran").read_text().splitlines())


def _edit(stage: Stage, old: str, new: str, file: str = "desk.py") -> None:
    path = stage.folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _bytes(stage: Stage) -> list[bytes]:
    return [(stage.folder / f"store.db{end}").read_bytes() for end in ("", "-wal")]


def test_runs_that_fit_are_counted_and_nothing_is_written_or_executed(stage: Stage) -> None:
    before = _bytes(stage)
    done = command(stage, "replay")
    assert (done.returncode, done.stdout) == (0, "3 runs fit\n"), done.stderr
    assert done.stderr.count("imported") == 1
    assert done.stderr.count("noise of the workflow") == 2
    assert done.stderr.count("noise past Python") == 2
    assert _bytes(stage) == before
    assert _ran(stage) == 3


def test_misfits_are_listed_with_both_sides(stage: Stage) -> None:
    _edit(stage, *OTHER_ARGUMENT)
    done = command(stage, "replay")
    assert done.returncode == 1
    first, second, summary = done.stdout.splitlines()
    for line, run_id, new in ((first, "d-1", "8"), (second, "d-2", "9")):
        assert line.startswith(f"{run_id}  desk  diverged  ")
        assert "look#0" in line
        assert f"n={new}" in line
        assert "desk.py:" in line
    assert summary == "1 run fits, 2 do not"
    assert "outlast resume" in done.stderr
    only = command(stage, "replay", "--workflow", "other")
    assert (only.returncode, only.stdout) == (0, "1 run fits\n")
    assert _ran(stage) == 3


def test_programs_get_json(stage: Stage) -> None:
    _edit(stage, *OTHER_ARGUMENT)
    done = command(stage, "replay", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["fit"] == [{"run_id": "o-1", "workflow": "other", "calls": 2, "recorded": 2}]
    assert [m["run_id"] for m in told["misfits"]] == ["d-1", "d-2"]
    assert set(told["misfits"][0]) == {"run_id", "workflow", "reason", "detail", "fix"}


def test_the_code_may_be_in_another_place_than_the_runs_remember(stage: Stage) -> None:
    (stage.folder / "checkout").mkdir()
    shutil.copy(stage.folder / "desk.py", stage.folder / "checkout" / "desk.py")
    there = command(stage, "replay", "checkout/desk.py:desk")
    assert (there.returncode, there.stdout) == (0, "2 runs fit\n"), there.stderr
    _edit(stage, *OTHER_ARGUMENT, "checkout/desk.py")
    changed = command(stage, "replay", "checkout/desk.py:desk")
    assert (changed.returncode, changed.stdout.splitlines()[-1]) == (1, "0 runs fit, 2 do not")
    assert command(stage, "replay").returncode == 0
    for words in (["checkout/desk.py:nobody"], ["desk.py:desk", "--workflow", "other"]):
        wrong = command(stage, "replay", *words)
        assert wrong.returncode == 2
        assert wrong.stdout == ""


@pytest.mark.parametrize("how", ["gone", "broken", "without the workflow", "renamed"])
def test_code_that_is_missing_is_told_of_once(stage: Stage, how: str) -> None:
    path = stage.folder / "desk.py"
    if how == "gone":
        path.unlink()
    elif how == "broken":
        path.write_text("print('imported')\nraise RuntimeError('no such setting')\n")
    elif how == "renamed":
        _edit(stage, "workflow\ndef desk", 'workflow(name="bureau")\ndef desk')
    else:
        _edit(stage, "def desk(", "def bureau(")
    done = command(stage, "replay")
    assert done.returncode == 1
    first, *others, summary = done.stdout.splitlines()
    if how == "broken":
        assert first.startswith("d-1, d-2, o-1  desk, other  missing  ")
        assert "RuntimeError: no such setting" in first
    else:
        assert first.startswith("d-1, d-2  desk  missing  ")
    assert [line.split()[0] for line in others] == (["o-1"] if how == "gone" else [])
    everything = how in ("gone", "broken")
    assert summary == ("0 runs fit, 3 do not" if everything else "1 run fits, 2 do not")
    assert "outlast replay FILE_OR_MODULE:WORKFLOW" in done.stderr


def test_without_a_live_run_there_is_nothing_to_misfit(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.client()
    assert command(stage, "replay").stdout == "no live runs\n"
    assert command(stage, "replay", "--workflow", "x").stdout == "no live runs of x\n"
    assert json.loads(command(stage, "replay", "--json").stdout) == {"fit": [], "misfits": []}


@pytest.mark.parametrize("words", [[], ["--json"], ["--workflow", "x"], ["desk.py:desk"]])
def test_a_store_that_does_not_exist_is_an_error(words: list[str], tmp_path: Path) -> None:
    """A deploy must not pass since it looked at the wrong place."""
    done = command(Stage(tmp_path), "replay", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no store {tmp_path / 'store.db'}" in done.stderr
    assert not (tmp_path / "store.db").exists()


def test_a_workflow_of_which_there_are_no_runs_is_an_error(stage: Stage) -> None:
    done = command(stage, "replay", "--workflow", "dsek")
    assert (done.returncode, done.stdout) == (2, "")
    assert "of workflow 'dsek'; there are runs of: desk, other" in done.stderr
    assert command(stage, "run", "desk.py:quick", "--in-process").returncode == 0
    ended = command(stage, "replay", "--workflow", "quick")
    assert (ended.returncode, ended.stdout) == (0, "no live runs of quick\n"), ended.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "86401", "1e400", "x"])
def test_a_timeout_is_a_number_of_seconds_up_to_a_day(seconds: str, stage: Stage) -> None:
    done = command(stage, "replay", f"--timeout={seconds}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "timeout" in done.stderr


@contextmanager
def _started(stage: Stage, *words: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-m", "outlast", *words],
        cwd=stage.folder,
        env={**os.environ, "OUTLAST_STORE": stage.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_run_that_a_living_process_executes_is_replayed_beside_it(stage: Stage) -> None:
    with _started(stage, "run", "desk.py:owned", "--id", "live", "--in-process") as child:
        wait_for((stage.folder / "waiting").exists, "the step to begin")
        before = stage.kinds(run_id="live")
        done = command(stage, "replay", "--workflow", "owned")
        assert (done.returncode, done.stdout) == (0, "1 run fits\n"), done.stderr
        _edit(stage, "    look(1)\n", "    look(2)\n")
        assert command(stage, "replay", "--workflow", "owned").returncode == 1
        assert stage.kinds(run_id="live") == before
        assert stage.client().run("live").owner is not None
        assert child.poll() is None


LOOP = "    print('begun', flush=True)\n    while True:\n        pass\n"


def test_code_that_never_ends_is_given_up_and_keeps_nobody_waiting(stage: Stage) -> None:
    _edit(stage, "    look(n)\n", LOOP)
    done = command(stage, "replay", "--workflow", "desk", "--timeout", "0.3")
    assert done.returncode == 1
    assert re.match(r"d-1  desk  undecided  .* after 0\.3 s", done.stdout)


def test_it_can_be_interrupted(stage: Stage) -> None:
    _edit(stage, "    look(n)\n", LOOP)
    with _started(stage, "replay", "--workflow", "desk") as child:
        assert child.stderr is not None
        while "begun" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate()
    assert (child.returncode, said) == (130, "")


def test_a_copy_of_the_store_and_a_journal_in_a_file_will_do(stage: Stage) -> None:
    url = copy_store(stage.url, stage.folder / "copy" / "store.db")
    assert command(stage, "--store", url, "replay").stdout == "3 runs fit\n"
    kept = command(stage, "journal", "o-1", "--json")
    (stage.folder / "o-1.json").write_text(kept.stdout, encoding="utf-8")
    assert replay(journal=stage.folder / "o-1.json").calls == 2
