"""The command as a user runs it: real processes, a real store, a real SIGKILL."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import apsw
import pytest

from outlast.cli.main import main
from outlast.worker.ending import Adopted
from outlast.worker.order import Order
from outlast.worker.stores import get_store
from outlast.worker.supervisor import _Worker

DESK = """
import asyncio, os, pathlib, signal, sys
import outlast

HERE = pathlib.Path(__file__).parent

@outlast.step(effect="read")
def think(text: str) -> str:
    print("thinking about", text)
    os.write(1, b"written past Python\\n")
    return text.upper()

@outlast.step(effect="idempotent")
def pay(amount: int) -> int:
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return amount

@outlast.step(effect="once")
def mail(to: str) -> str:
    raise ConnectionResetError("the server hung up")

@outlast.step(effect="read")
def broken() -> None:
    raise ValueError("no such \\x1b[31m order")

@outlast.workflow()
def desk(text: str, amount: int = 1) -> dict[str, object]:
    return {"answer": think(text), "ünï": amount}

@outlast.workflow()
def deadly(text: str) -> list[object]:
    return [think(text), pay(3)]

@outlast.workflow()
def doubtful(to: str) -> str:
    think("first")
    return mail(to)

@outlast.workflow()
def failing() -> None:
    broken()

@outlast.step(effect="read")
async def watch() -> None:
    (HERE / "watching").touch()
    await asyncio.sleep(600)

@outlast.workflow()
async def patient() -> None:
    await watch()

@outlast.workflow()
def sleepy() -> None:
    outlast.sleep(600).result()

def helper() -> None:
    pass
"""


@pytest.fixture
def outlast(tmp_path, monkeypatch, capsys):
    """Carries out `outlast WORDS...` in a folder that holds desk.py.

    What executes user code does so in a process of its own; what only looks at the store need not.
    """
    (tmp_path / "desk.py").write_text(DESK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAST_STORE", "sqlite:///runs.db")
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*words):
        if words[0] not in ("run", "resume"):
            code = main(words)
            said = capsys.readouterr()
            return subprocess.CompletedProcess(words, code, said.out, said.err)
        return subprocess.run(
            [sys.executable, "-m", "outlast", *words],
            capture_output=True,
            encoding="utf-8",
            timeout=100,
            check=False,
        )

    return call


def shown(outlast, run_id):
    done = outlast("show", run_id, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


BOTH = pytest.mark.parametrize("how", [[], ["--in-process"]], ids=["worker", "in-process"])


@BOTH
def test_a_run_prints_its_result_and_ends_with_zero(outlast, how):
    done = outlast("run", "desk.py:desk", '["hi"]', "--id", "t-1", "--tag", "a=b", *how)
    assert done.returncode == 0, done.stderr
    assert '"answer": "HI"' in done.stdout
    assert "think#0 completed" in done.stderr
    assert shown(outlast, "t-1")["tags"] == {"a": "b"}


@BOTH
def test_json_stands_alone_on_stdout_whatever_the_workflow_prints(outlast, how):
    done = outlast("run", "desk.py:desk", '{"text": "hi"}', "--id", "t-1", "--json", *how)
    view = json.loads(done.stdout)
    assert view["result"] == {"answer": "HI", "ünï": 1}
    assert "thinking about hi" in done.stderr
    assert "written past Python" in done.stderr
    again = outlast("run", "desk.py:desk", '{"text": "hi"}', "--id", "t-1", "--json", *how)
    assert json.loads(again.stdout)["result"] == view["result"]
    assert "thinking" not in again.stderr


def test_the_json_of_a_run_has_the_fields_that_programs_rely_on(outlast):
    outlast("run", "desk.py:desk", '["hi"]', "--id", "t-1")
    view = shown(outlast, "t-1")
    fields = {"run_id", "workflow", "status", "reason", "interrupted", "result", "error", "steps"}
    assert fields <= view.keys()
    assert view["run_id"] == "t-1"
    assert view["status"] == "completed"
    assert view["interrupted"] is False
    (step,) = view["steps"]
    assert {"key", "name", "status", "attempts", "effect"} <= step.keys()
    assert (step["name"], step["status"], step["attempts"]) == ("think", "completed", 1)
    (listed,) = json.loads(outlast("ls", "--json").stdout)
    assert listed == view


def test_a_killed_run_is_interrupted_and_resume_goes_on_where_it_was(outlast):
    died = outlast("run", "desk.py:deadly", '["hi"]', "--id", "t-1", "--in-process")
    assert died.returncode == -signal.SIGKILL
    view = shown(outlast, "t-1")
    assert view["interrupted"] is True
    assert "outlast resume t-1" in outlast("show", "t-1").stdout
    assert "interrupted" in outlast("ls").stdout
    for word, found in (("interrupted", 1), ("completed", 0)):
        assert len(json.loads(outlast("ls", "--status", word, "--json").stdout)) == found

    done = outlast("resume", "t-1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["HI", 3]
    assert "resuming t-1: 1 step replayed, continuing at pay#1" in done.stderr
    think, pay = shown(outlast, "t-1")["steps"]
    assert (think["attempts"], pay["attempts"]) == (1, 2)


def test_resume_all_takes_up_what_needs_only_a_process(outlast):
    outlast("run", "desk.py:deadly", '["hi"]', "--id", "t-1", "--in-process")
    outlast("run", "desk.py:doubtful", '["ann"]', "--id", "t-2")
    done = outlast("resume", "--all", "--json")
    assert done.returncode == 0, done.stderr
    assert [view["run_id"] for view in json.loads(done.stdout)] == ["t-1"]
    assert shown(outlast, "t-2")["status"] == "held"


def test_a_failed_run_says_why_and_ends_with_one(outlast):
    done = outlast("run", "desk.py:failing", "--id", "t-1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "run t-1 failed: " in done.stderr
    assert "no such" in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("no such") == 2  # told of the step, and of the run
    line = 1 + DESK.splitlines().index('    raise ValueError("no such \\x1b[31m order")')
    assert f"desk.py:{line})" in done.stderr
    view = shown(outlast, "t-1")
    assert view["traceback"].startswith("Traceback")
    assert "in failing" in outlast("show", "t-1").stdout


def test_no_wait_leaves_a_run_that_sleeps(outlast):
    done = outlast("run", "desk.py:sleepy", "--id", "t-1", "--no-wait")
    assert done.returncode == 5, done.stderr
    assert "It sleeps until" in done.stderr


def test_a_run_in_doubt_is_held_until_it_is_settled_with_the_line_it_printed(outlast):
    held = outlast("run", "desk.py:doubtful", '["ann@example.org"]', "--id", "t-1")
    assert held.returncode == 3
    for fact in ("ann@example.org", "the server hung up", "--not-done"):
        assert fact in held.stderr
    key = shown(outlast, "t-1")["steps"][-1]["key"]
    assert f"settle t-1 '{key}' --done '\"TEXT\"'" in held.stderr

    settled = outlast("settle", "t-1", key, "--done", '"sent"')
    assert settled.returncode == 0, settled.stderr
    step = shown(outlast, "t-1")["steps"][-1]
    assert step["reconciled"].startswith("settled done by ")
    listed, at_hand = outlast("ls").stdout, outlast("show", "t-1").stdout
    assert listed.splitlines()[1].split()[-2] == "2"
    assert "2 steps" in at_hand
    assert "completed (settled)" in at_hand
    done = outlast("resume", "t-1")
    assert (done.returncode, done.stdout) == (0, "sent\n"), done.stderr
    assert "completed (settled)" in outlast("show", "t-1").stdout


def test_a_step_settled_as_failed_raises_in_the_workflow(outlast):
    outlast("run", "desk.py:doubtful", '["ann"]', "--id", "t-1")
    key = shown(outlast, "t-1")["steps"][-1]["key"]
    assert outlast("settle", "t-1", key, "--failed", "never sent").returncode == 0
    done = outlast("resume", "t-1")
    assert done.returncode == 1
    assert "never sent" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py:desk"], "nowhere.py"),
        (["no_such_module_here:desk"], "no_such_module_here"),
        (["desk.py:missing"], "missing"),
        (["desk.py:helper"], "helper"),
        (["desk.py:desk", '{"txt": "hi"}'], "text: str, amount: int = 1"),
        (["desk.py:desk"], "text: str, amount: int = 1"),
        (["desk.py:desk", "3"], "text: str, amount: int = 1"),
        (["syntax.py:desk"], "syntax.py"),
        (["exits.py:desk"], "exits.py"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_cannot_be_run_is_refused_in_one_line(outlast, tmp_path, words, said):
    (tmp_path / "syntax.py").write_text("def (:\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(0)\n")
    done = outlast("run", *words, "--in-process")
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.startswith("outlast: ")
    assert done.stderr.count("\n") == 1, done.stderr


def test_what_the_worker_process_refuses_is_said_once(outlast):
    done = outlast("run", "desk.py:missing")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_an_id_that_is_taken_by_other_arguments_is_refused(outlast):
    outlast("run", "desk.py:desk", '["hi"]', "--id", "t-1")
    done = outlast("run", "desk.py:desk", '["ho"]', "--id", "t-1")
    assert done.returncode == 2
    assert done.stderr.startswith("outlast: ")
    assert done.stderr.count("\n") == 1, done.stderr


def test_the_journal_and_its_verification(outlast):
    outlast("run", "desk.py:desk", '["hi"]', "--id", "t-1")
    rows = json.loads(outlast("journal", "t-1", "--json").stdout)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[0]["kind"] == "run.created"
    only = json.loads(outlast("journal", "t-1", "--kind", "step", "--json").stdout)
    assert [row["kind"] for row in only] == ["step.started", "step.completed"]
    assert len(outlast("journal", "t-1").stdout.splitlines()) == len(rows) + 1

    head = rows[-1]["hash"]
    intact = outlast("verify", "t-1", "--head", head)
    assert (intact.returncode, head in intact.stdout) == (0, True)
    assert outlast("verify", "--json").returncode == 0
    other = outlast("verify", "t-1", "--head", "00" * 32)
    assert (other.returncode, "ALTERED" in other.stdout) == (1, True)


def test_verify_names_the_record_that_was_altered(outlast, tmp_path):
    outlast("run", "desk.py:desk", '["hi"]', "--id", "t-1", "--in-process")
    with closing(apsw.Connection(str(tmp_path / "runs.db"))) as db:
        for (trigger,) in list(db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")):
            db.execute(f'DROP TRIGGER "{trigger}"')
        db.execute("UPDATE events SET data = x'7b7d' WHERE seq = 3")
    altered = outlast("verify")
    assert altered.returncode == 1
    assert "t-1" in altered.stdout
    assert "ALTERED at record 3" in altered.stdout
    (verdict,) = json.loads(outlast("verify", "t-1", "--json").stdout)
    assert (verdict["ok"], verdict["seq"]) == (False, 3)


@contextmanager
def started(tmp_path, *words, **how):
    """A command that is under way in a process of its own."""
    with subprocess.Popen([sys.executable, "-m", "outlast", *words], **how) as process:
        try:
            while not (tmp_path / "watching").exists():
                assert process.poll() is None
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def test_a_run_has_one_owner_and_ctrl_c_gives_it_back(outlast, tmp_path):
    words = ("run", "desk.py:patient", "--id", "t-1")
    with started(tmp_path, *words, stderr=subprocess.PIPE) as process:
        second = outlast("resume", "t-1")
        assert second.returncode == 6
        owner = shown(outlast, "t-1")["owner"]
        assert owner.startswith("process ")
        assert second.stderr.splitlines() == [
            "outlast: run t-1 is being executed already",
            f"{owner} goes on with it. To wait for its end:",
            "  outlast resume t-1 --wait",
        ]

        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    first, *_ = said.splitlines()
    assert first == (b"outlast: finishing what is open (at most 5 s); Ctrl-C again cuts it off")
    assert b"outlast resume t-1" in said
    assert b"Traceback" not in said
    view = shown(outlast, "t-1")
    assert (view["status"], view["interrupted"], view["owner"]) == ("queued", False, None)
    assert "released: Ctrl-C" in outlast("ls").stdout


def test_ctrl_c_before_the_worker_has_begun_ends_it_without_a_traceback(tmp_path, capfd):
    order = Order(store=f"sqlite:///{tmp_path}/runs.db", run_id="t-1", target="desk.py:desk")
    worker = _Worker(order, get_store(order.store).store, Adopted())
    popen = subprocess.Popen

    def interrupted(*words, **how):
        process = popen(*words, **how)
        process.send_signal(signal.SIGINT)
        return process

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", interrupted)
        assert worker.run() == 130
    assert capfd.readouterr().err == ""


def test_on_a_terminal_what_the_workflow_prints_stands_on_lines_of_its_own(outlast):
    master, slave = os.openpty()
    words = ("run", "desk.py:desk", '["hi"]', "--id", "t-1")
    with subprocess.Popen(
        [sys.executable, "-m", "outlast", *words], stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        written = b""
        while chunk := _read(master):
            written += chunk
    os.close(master)
    assert process.returncode == 0
    lines = re.split("[\r\n]+", re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", written.decode()))
    for line in ("thinking about hi", "written past Python", '  "answer": "HI",'):
        assert line in lines
    assert any(line.startswith("think#0 completed") for line in lines)


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has the other side open any more
        return b""


def test_a_reader_that_goes_away_is_no_error(outlast):
    outlast("run", "desk.py:desk", '["hi"]', "--id", "t-1", "--in-process")
    for words in (["ls"], ["ls", "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        with subprocess.Popen(
            [sys.executable, "-m", "outlast", "--store", "runs.db", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(writing)
            _, said = process.communicate(timeout=60)
        assert said == b""
        assert process.returncode == 141
