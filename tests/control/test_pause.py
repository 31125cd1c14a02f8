"""Pause: the step under way may end, nothing more begins, until somebody lets the run go on."""

import json

import pytest

import outlast
from outlast.views import read_run
from outlast.worker.stores import get_store
from tests.checkers import check_all
from tests.control.stoppable import Stoppable
from tests.ownership.children import until

COLOURS = pytest.mark.parametrize("colour", ["async", "plain"])


@outlast.workflow(name="flow")
def flow() -> None:
    raise AssertionError("a paused run was executed")


def is_let_go(stoppable: Stoppable) -> bool:
    row = read_run(get_store(stoppable.url).store, "r")
    return row is not None and row.owner is None


@COLOURS
def test_the_step_under_way_ends_and_nothing_more_begins(stoppable: Stoppable, colour: str) -> None:
    child = stoppable.start_in_body("gate", colour=colour)
    view = stoppable.client.pause("r", reason="lunch", by="ann")
    assert (view.status, view.reason) == ("held", "paused")
    assert view.owner is not None
    assert str(child.pid) in view.owner
    assert [step.status for step in view.steps] == ["running"]
    stoppable.open_gate()
    said = child.end()
    assert (said["error"], said["reason"]) == ("RunHeld", "paused")
    assert "paused by ann: lunch" in str(said["text"])
    until(lambda: is_let_go(stoppable), "the process to let go")
    view = stoppable.client.run("r")
    assert (view.status, view.reason, view.owner) == ("held", "paused", None)
    assert [step.status for step in view.steps] == ["completed"]
    assert stoppable.executed == ["body"]
    check_all(stoppable.url, "r")


@COLOURS
def test_a_paused_run_is_taken_up_by_nobody_until_it_is_resumed(
    stoppable: Stoppable, colour: str
) -> None:
    child = stoppable.start_in_body("gate", colour=colour)
    stoppable.client.pause("r")
    stoppable.open_gate()
    child.end()
    assert stoppable.command("resume", "--all").returncode == 0
    with pytest.raises(outlast.RunHeld):
        outlast.run(flow, run_id="r", store=stoppable.url)
    assert stoppable.executed == ["body"]
    done = stoppable.command("resume", "r")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["gated", "end"]
    assert stoppable.executed == ["body", "last"]
    check_all(stoppable.url, "r")


@COLOURS
def test_a_run_that_is_resumed_before_its_step_has_ended_goes_on_where_it_is(
    stoppable: Stoppable, colour: str
) -> None:
    child = stoppable.start_in_body("gate", colour=colour)
    stoppable.client.pause("r")
    view = stoppable.client.resume("r", by="ann")
    assert view.status == "running"
    stoppable.open_gate()
    assert child.end()["result"] == ["gated", "end"]
    assert stoppable.executed == ["body", "last"]
    check_all(stoppable.url, "r")


def test_resume_lets_a_run_go_on_whose_process_still_lets_a_step_end(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("gate")
    stoppable.client.pause("r")
    done = stoppable.command("resume", "r")
    assert done.returncode == 6, done.stderr
    assert f"run r goes on in process {child.pid} on " in done.stderr
    stoppable.open_gate()
    assert child.end()["result"] == ["gated", "end"]


def test_a_run_that_is_resumed_with_queue_waits_for_whoever_takes_it_up(
    stoppable: Stoppable,
) -> None:
    child = stoppable.start_in_body("gate")
    stoppable.client.pause("r")
    stoppable.open_gate()
    child.end()
    done = stoppable.command("resume", "r", "--queue")
    assert (done.returncode, done.stdout) == (0, "run r is queued: a worker takes it up\n")
    assert stoppable.executed == ["body"]
    assert stoppable.command("resume", "--all").returncode == 0
    assert stoppable.executed == ["body", "last"]


@COLOURS
@pytest.mark.parametrize("where", ["timer", "retry"])
def test_a_wait_ends_at_once_and_is_kept(stoppable: Stoppable, where: str, colour: str) -> None:
    child = stoppable.start(where, colour=colour)
    kind = "timer.set" if where == "timer" else "step.failed"
    until(lambda: bool(stoppable.client.runs()) and kind in stoppable.kinds(), "the wait")
    stoppable.client.pause("r")
    assert child.end()["reason"] == "paused"
    assert stoppable.client.resume("r").status == "queued"
    again = stoppable.start(where, colour=colour, wait=False).end()
    assert again["error"] == "RunWaiting"
    assert stoppable.kinds().count(kind) == 1


def test_what_nobody_executes_is_held_too(stoppable: Stoppable) -> None:
    outlast.submit(flow, run_id="r", store=stoppable.url)
    client = stoppable.client
    assert client.pause("r", reason="first", by="ann").detail == "paused by ann: first"
    # A second pause changes nothing.
    assert client.pause("r", reason="second", by="bob").detail == "paused by ann: first"
    assert stoppable.kinds().count("run.held") == 1
    assert "outlast resume r" in stoppable.command("show", "r").stdout
    assert client.resume("r").status == "queued"
    assert client.resume("r").status == "queued"


def test_a_run_that_is_held_for_another_reason_stays_held_for_it(stoppable: Stoppable) -> None:
    assert stoppable.start("doubt").end()["reason"] == "in-doubt"
    view = stoppable.client.pause("r")
    assert (view.status, view.reason) == ("held", "in-doubt")
    said = stoppable.command("pause", "r")
    assert (said.returncode, said.stdout) == (
        0,
        "run r is held already (in-doubt), and stays so\n",
    )


def test_what_has_ended_is_not_paused_or_resumed(stoppable: Stoppable) -> None:
    outlast.submit(flow, run_id="r", store=stoppable.url)
    client = stoppable.client
    client.kill("r")
    with pytest.raises(outlast.UsageError, match="nothing left to pause"):
        client.pause("r")
    with pytest.raises(outlast.UsageError, match="--revive"):
        client.resume("r")
    with pytest.raises(outlast.UnknownRun):
        client.pause("nope")
