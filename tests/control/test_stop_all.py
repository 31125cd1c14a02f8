"""The emergency stop of a store: one row that everything asks before it begins, until `allow`."""

import json

import pytest

import outlast
from tests.checkers import check_all
from tests.control.stoppable import Stoppable
from tests.ownership.children import until

COLOURS = pytest.mark.parametrize("colour", ["async", "plain"])
STOP = "EMERGENCY STOP"


@outlast.workflow(name="flow")
def flow() -> None:
    raise AssertionError("a run was executed while everything was stopped")


@pytest.fixture
def stopped(stoppable: Stoppable) -> Stoppable:
    """A store with a run `r` that is queued, under an emergency stop."""
    outlast.submit(flow, run_id="r", store=stoppable.url)
    stoppable.client.stop_all("fire", by="ann")
    return stoppable


@COLOURS
def test_a_step_under_way_ends_and_no_other_opens(stoppable: Stoppable, colour: str) -> None:
    child = stoppable.start_in_body("gate", colour=colour)
    stoppable.client.stop_all("fire", by="ann")
    stoppable.open_gate()
    said = child.end()
    assert said["error"] == "StoreStopped"
    assert "ann: fire" in str(said["text"])
    view = stoppable.client.run("r")
    assert (view.status, view.owner) == ("queued", None)
    assert [step.status for step in view.steps] == ["completed"]
    assert stoppable.executed == ["body"]
    # It goes on where it was, and the stop counts as no crash.
    stoppable.client.allow()
    assert stoppable.start("gate", colour=colour).end()["result"] == ["gated", "end"]
    assert stoppable.executed == ["body", "last"]
    check_all(stoppable.url, "r")


@COLOURS
@pytest.mark.parametrize("where", ["timer", "retry"])
def test_a_wait_ends_at_once(stoppable: Stoppable, where: str, colour: str) -> None:
    child = stoppable.start(where, colour=colour)
    kind = "timer.set" if where == "timer" else "step.failed"
    until(lambda: bool(stoppable.client.runs()) and kind in stoppable.kinds(), "the wait")
    stoppable.client.stop_all("fire")
    assert child.end()["error"] == "StoreStopped"
    assert stoppable.client.run("r").owner is None
    check_all(stoppable.url, "r")


def test_nothing_is_claimed_or_created_in_whatever_process(stopped: Stoppable) -> None:
    for run_id in ("r", "new"):
        with pytest.raises(outlast.OutlastError, match="outlast allow") as refused:
            outlast.run(flow, run_id=run_id, store=stopped.url)
        assert type(refused.value).__name__ == "StoreStopped"
    assert [view.run_id for view in stopped.client.runs()] == ["r"]
    done = stopped.command("resume", "r")
    assert done.returncode == 3
    assert "everything in this store is stopped by ann: fire" in done.stderr
    assert stopped.client.run("r").status == "queued"
    assert stopped.client.allow(by="bob")
    with pytest.raises(outlast.RunFailed):
        outlast.run(flow, run_id="r", store=stopped.url)


def test_resume_all_says_so_in_one_line(stopped: Stoppable) -> None:
    for options in ([], ["--no-wait"]):
        done = stopped.command("resume", "--all", *options)
        assert (done.returncode, done.stdout) == (3, "")
        (line,) = done.stderr.splitlines()
        assert STOP in line
        assert "outlast allow" in line
    done = stopped.command("resume", "--all", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (3, [])


@pytest.mark.parametrize("words", [["ls"], ["show", "r"], ["breakers"]], ids=lambda words: words[0])
def test_what_only_looks_shows_it(stopped: Stoppable, words: list[str]) -> None:
    shown = stopped.command(*words)
    assert (shown.returncode, shown.stderr) == (0, "")
    first = shown.stdout.splitlines()[0]
    assert first.startswith(STOP)
    assert "by ann: fire" in first
    data = stopped.command(*words, "--json")
    if words[0] == "show":
        assert json.loads(data.stdout)["stopped"]["why"] == "fire"
    else:
        json.loads(data.stdout)
        assert STOP in data.stderr
    stopped.client.allow()
    assert STOP not in stopped.command(*words).stdout


def test_the_journal_of_the_store_tells_who_and_why(stopped: Stoppable) -> None:
    stopped.client.allow(by="bob")
    said = stopped.command("journal", "@store").stdout
    assert "emergency stop by ann: fire" in said
    assert "the emergency stop was ended by bob" in said
    assert all(verdict.ok for verdict in stopped.client.verify())


def test_the_commands_put_it_in_force_and_end_it(stopped: Stoppable) -> None:
    stopped.client.allow()
    done = stopped.command("stop-all", "--reason", "flood")
    assert done.returncode == 0, done.stderr
    assert STOP in done.stdout
    assert "no process executes a run any more" in done.stdout
    stop = stopped.client.stopped()
    assert stop is not None
    assert stop.why == "flood"
    # Asked again, the newer reason counts.
    again = json.loads(stopped.command("stop-all", "--reason", "storm", "--json").stdout)
    assert (again["stopped"]["why"], again["executed"]) == ("storm", [])
    assert stopped.command("allow").stdout.startswith("allowed")
    assert stopped.client.stopped() is None
    assert stopped.command("allow").stdout == "nothing is stopped\n"
    assert stopped.command("stop-all").returncode == 2


def test_what_is_still_under_way_is_named(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("deaf", colour="plain")
    done = stoppable.command("stop-all", "--reason", "fire", "--grace", "0")
    assert done.returncode == 0, done.stderr
    assert f"r in process {child.pid} on " in done.stdout
    assert "outlast kill --all" in done.stdout
    stoppable.open_gate()
    assert child.end()["error"] == "StoreStopped"


def test_with_kill_every_run_that_has_not_ended_is_killed(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("await")
    for number in range(3):
        outlast.submit(flow, run_id=f"q{number}", store=stoppable.url)
    done = stoppable.command("stop-all", "--reason", "fire", "--kill", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["stopped"]["why"] == "fire"
    assert {one["run_id"]: one["outcome"] for one in said["killed"]} == dict.fromkeys(
        ["r", "q0", "q1", "q2"], "killed"
    )
    assert all(one["stopped"] for one in said["killed"])
    assert child.end()["error"] == "RunKilled"
    assert {view.status for view in stoppable.client.runs()} == {"killed"}
    assert stoppable.client.stopped() is not None
