"""`outlast run` ends its worker from outside, with all that it has started, when its run was killed
or Ctrl-C is pressed twice; and what a dead worker's step has started ends before its repeat."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

import outlast
from outlast.control import Kill
from outlast.events import RunClaimed, RunReleased, RunStopped
from outlast.leases import _has_crashed
from outlast.processes import Ended, Found
from outlast.records import Identity
from outlast.views import read_run
from outlast.worker.ending import end_owner
from outlast.worker.order import COMPLETED, HELD, INTERRUPTED, KILLED, TERMINATED
from outlast.worker.stores import get_store
from outlast.world import World, start_ticks
from tests.checkers import check_all
from tests.ownership.children import PATIENCE, events, kinds, until

PROGRAM = Path(__file__).parent / "programs" / "hanging.py"

Popen = subprocess.Popen[str]
Start = Callable[..., Popen]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    """Start `outlast run`, or the workflow alone in a process of its own. What has noted its pid is
    gone when the test ends."""
    shutil.copy(PROGRAM, tmp_path / "hanging.py")
    started: list[Popen] = []

    def begin(workflow: str, *args: str, alone: bool = False) -> Popen:
        command = ["-m", "outlast", "--store", url, "run", f"hanging.py:{workflow}"]
        command += [json.dumps(args), "--id", "r"]
        process = subprocess.Popen(
            [sys.executable, *(["hanging.py", url, workflow, *args] if alone else command)],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()  # with which its worker dies
    for name in ("tool.pid", "worker.pid"):
        one = noted(tmp_path / name) if (tmp_path / name).exists() else None
        if one is not None and one.alive and ours(one, tmp_path):
            os.kill(one.pid, signal.SIGKILL)
    for process in started:
        process.communicate()  # the tool had the same ends of the pipes


def noted(file: Path) -> Found:
    """The process that has noted its pid; as one that never was, if it has ended."""
    pid = int(file.read_text())
    return Found(pid, start_ticks(pid) or 0)


def ours(process: Found, folder: Path) -> bool:
    """Whether a process was started by a program of this test: it works in the test's folder."""
    try:
        return psutil.Process(process.pid).cwd() == str(folder)
    except psutil.Error:
        return False


def noted_pids(
    start: Start, folder: Path, *args: str, alone: bool = False
) -> tuple[Popen, Found, Found]:
    """Start a run and wait until its worker hangs; its supervisor, itself and the tool beside."""
    process = start(*args, alone=alone)
    there = (folder / "worker.pid").exists
    until(lambda: there() or process.poll() is not None, "the worker to hang")
    assert there(), process.communicate()
    worker, tool = noted(folder / "worker.pid"), noted(folder / "tool.pid")
    assert worker.alive
    assert tool.alive
    assert ours(tool, folder)
    return process, worker, tool


def kill(url: str, grace: float) -> None:
    """Kill the run, as any other process would."""
    store, world = get_store(url).store, World()
    store.write(Kill("r", world.wall(), world, grace=grace), durable=True)


def owner(url: str) -> Identity | None:
    row = read_run(get_store(url).store, "r")
    assert row is not None
    return row.owner


def how_it_stopped(url: str) -> RunStopped:
    (stopped,) = events(outlast.Client(url).journal("r"), "run.stopped")
    assert isinstance(stopped, RunStopped)
    return stopped


# ---- a kill


@pytest.mark.parametrize(
    ("workflow", "kind"),
    [("hangs", "child"), ("hangs_async", "deaf"), ("hangs_async", "session"), ("hangs", "twice")],
)
def test_a_killed_run_whose_worker_hangs_in_c_code_is_ended_with_all_that_it_started(
    tmp_path: Path, url: str, start: Start, workflow: str, kind: str
) -> None:
    process, worker, tool = noted_pids(start, tmp_path, workflow, kind)
    kill(url, grace=0.1)
    assert process.wait(PATIENCE) == KILLED
    assert not worker.alive
    assert not tool.alive
    assert owner(url) is None
    stopped = how_it_stopped(url)
    assert (stopped.by, stopped.survivors) == ("supervisor", [])
    assert {int(words.split()[1]) for words in stopped.ended} >= {worker.pid, tool.pid}
    check_all(url, "r")


@pytest.mark.parametrize(
    ("workflow", "kind"), [("waits", "session"), ("waits_async", "child"), ("waits_async", "deaf")]
)
def test_a_worker_that_can_be_interrupted_ends_by_itself_what_its_steps_started(
    tmp_path: Path, url: str, start: Start, workflow: str, kind: str
) -> None:
    process, worker, tool = noted_pids(start, tmp_path, workflow, kind)
    kill(url, grace=1.0 if kind == "deaf" else PATIENCE)
    assert process.wait(PATIENCE) == KILLED
    assert not worker.alive
    assert not tool.alive
    assert owner(url) is None
    assert len(events(outlast.Client(url).journal("r"), "run.stopped")) == 1
    if kind != "deaf":  # which takes the whole grace, so that either may be quicker
        assert how_it_stopped(url).by == "owner"
    check_all(url, "r")


def test_a_killed_child_that_hangs_is_ended_and_the_runs_above_it_go_on(
    tmp_path: Path, url: str, start: Start
) -> None:
    process, worker, tool = noted_pids(start, tmp_path, "above", "session")
    client = outlast.Client(url)
    client.kill("r/hangs#0", grace=0.1)
    assert process.wait(PATIENCE) == COMPLETED
    assert not worker.alive
    assert not tool.alive
    assert outlast.Handle("r", url).result().result() == "went on without it"
    claims = events(client.journal("r"), "run.claimed")
    assert [claim.crash for claim in claims if isinstance(claim, RunClaimed)] == [False, False]
    assert kinds(client.journal("r/hangs#0"))[-2:] == ["run.killed", "run.stopped"]
    for run_id in ("r", "r/hangs#0"):
        check_all(url, run_id)


def test_a_supervisor_goes_on_when_nobody_reads_what_it_says(
    tmp_path: Path, url: str, start: Start
) -> None:
    process, worker, _ = noted_pids(start, tmp_path, "hangs", "session")
    assert process.stderr is not None
    process.stderr.close()
    (tmp_path / "worker.pid").unlink()
    os.kill(worker.pid, signal.SIGKILL)
    until((tmp_path / "worker.pid").exists, "another worker to take its place")
    kill(url, grace=0.1)
    process.wait(PATIENCE)
    assert owner(url) is None


# ---- Ctrl-C and the end of the terminal


def test_the_end_of_the_terminal_counts_as_no_crash(url: str, tmp_path: Path, start: Start) -> None:
    process, _, tool = noted_pids(start, tmp_path, "waits_async", "session")
    process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE) == TERMINATED
    run = outlast.Client(url).run("r")
    assert (run.status, run.interrupted) == ("queued", False)
    assert not tool.alive
    check_all(url, "r")


@pytest.mark.parametrize("workflow", ["hangs", "hangs_async"])
def test_the_second_ctrl_c_ends_a_worker_that_hangs_in_c_code_and_lets_go_of_its_run(
    tmp_path: Path, url: str, start: Start, workflow: str
) -> None:
    process, worker, tool = noted_pids(start, tmp_path, workflow, "session")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "Ctrl-C again" in process.stderr.readline()
    assert worker.alive
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == INTERRUPTED
    assert not worker.alive
    assert not tool.alive
    assert outlast.Client(url).run("r").status == "queued"
    (released,) = events(outlast.Client(url).journal("r"), "run.released")
    assert released == RunReleased("SIGINT")
    check_all(url, "r")
    opened = get_store(url)
    row = read_run(opened.store, "r")
    assert row is not None
    with opened.heart.claiming() as claim:
        assert not _has_crashed(row, claim)


# ---- before a repeat


@pytest.mark.parametrize(
    ("workflow", "kind", "supervised"),
    [("dies", "session", True), ("dies", "deaf", False), ("dies_async", "session", False)],
)
def test_what_a_dead_workers_step_has_started_is_gone_before_it_runs_again(
    tmp_path: Path, url: str, start: Start, workflow: str, kind: str, supervised: bool
) -> None:
    if supervised:
        out, err = start(workflow, kind).communicate(timeout=PATIENCE)
    else:
        assert start(workflow, kind, alone=True).wait(PATIENCE) == -signal.SIGKILL
        assert noted(tmp_path / "tool.pid").alive, "nobody is there yet who could end it"
        out, err = start(workflow, kind, alone=True).communicate(timeout=PATIENCE)
    assert "the tool is gone" in out, err
    claims = events(outlast.Client(url).journal("r"), "run.claimed")
    assert [c.crash for c in claims if isinstance(c, RunClaimed)] == [False, True]


def test_what_a_step_that_has_ended_left_running_outlives_the_death_of_its_worker(
    tmp_path: Path, url: str, start: Start
) -> None:
    process = start("served")
    assert process.wait(PATIENCE) == 0, process.communicate()
    assert noted(tmp_path / "tool.pid").alive
    assert "step.interrupted" in kinds(outlast.Client(url).journal("r"))


# ---- after a time-out


@pytest.mark.parametrize(
    ("workflow", "kind"),
    [("times_out", "deaf"), ("times_out", "child"), ("times_out_async", "session")],
)
def test_what_an_attempt_has_started_ends_with_its_timeout(
    start: Start, workflow: str, kind: str
) -> None:
    out, err = start(workflow, kind, alone=True).communicate(timeout=PATIENCE)
    assert "the tool is gone" in out, err


def test_what_a_body_makes_of_the_end_of_its_tool_is_no_late_result(url: str, start: Start) -> None:
    assert start("pays", "child").wait(PATIENCE) == HELD
    run = outlast.Client(url).run("r")
    assert run.reason == "in-doubt"
    assert "step.completed" not in kinds(outlast.Client(url).journal("r"))


# ---- the process behind a claim


def test_the_process_behind_a_claim_is_ended_only_if_it_is_still_that_one(
    tmp_path: Path, url: str, start: Start
) -> None:
    process, worker, tool = noted_pids(start, tmp_path, "hangs", "deaf", alone=True)
    who = owner(url)
    assert who is not None
    assert who.pid == worker.pid == process.pid
    assert end_owner(replace(who, started=who.started - 1), 0.0) == Ended()
    assert end_owner(replace(who, boot="another"), 0.0) == Ended()
    (elsewhere,) = end_owner(replace(who, host="elsewhere"), 0.0).survivors
    assert "only from there" in elsewhere
    assert process.poll() is None
    ended = end_owner(who, 0.0)
    assert {int(words.split()[1]) for words in ended.ended} == {worker.pid, tool.pid}
    assert process.wait() == -signal.SIGKILL
