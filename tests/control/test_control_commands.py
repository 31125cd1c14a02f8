"""The commands kill and pause, as an operator types them."""

import json

import pytest

import outlast
from outlast.cli.main import main
from tests.control.stoppable import Stoppable
from tests.ownership.children import until


@outlast.workflow(name="flow")
def flow() -> None:
    raise AssertionError("nobody executes it")


@outlast.workflow(name="other")
def other() -> int:
    return 1


@pytest.fixture
def store(stoppable: Stoppable, monkeypatch: pytest.MonkeyPatch) -> Stoppable:
    """Runs `a` and `b` that are queued, and `done`."""
    for run_id in ("a", "b"):
        outlast.submit(flow, run_id=run_id, store=stoppable.url)
    outlast.run(other, run_id="done", store=stoppable.url)
    monkeypatch.setenv("OUTLAST_STORE", stoppable.url)
    monkeypatch.setenv("NO_COLOR", "1")
    return stoppable


def test_kill_tells_of_each_run_and_kills_the_rest_of_a_wrong_list(
    store: Stoppable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kill", "a", "nope", "b", "--reason", "enough"]) == 2
    said = capsys.readouterr()
    assert "there is no run 'nope'" in said.err
    assert [line.split(" by ")[0] for line in said.out.splitlines()[::2]] == [
        "run a killed",
        "run b killed",
    ]
    assert "enough" in said.out
    assert "nothing of it was being executed" in said.out
    assert store.status("a") == store.status("b") == "killed"


def test_a_kill_of_what_had_completed_says_so_and_ends_with_one(
    store: Stoppable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kill", "done", "a"]) == 1
    assert "run done has already completed; nothing was changed" in capsys.readouterr().out
    assert store.status("a") == "killed"
    assert store.status("done") == "completed"
    # Killed twice is killed once.
    assert main(["kill", "a", "--reason", "once more"]) == 0
    assert "run a was already killed" in capsys.readouterr().out


def test_kill_says_it_to_programs(store: Stoppable, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kill", "a", "done", "--reason", "enough", "--json"]) == 1
    a, done = json.loads(capsys.readouterr().out)
    assert (a["run_id"], a["outcome"], a["status"]) == ("a", "killed", "killed")
    assert (a["why"], a["stopped"], a["owner"], a["children"]) == ("enough", True, None, [])
    assert (done["outcome"], done["status"]) == ("already", "completed")


def test_kill_by_workflow_and_of_all(store: Stoppable, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kill", "--workflow", "nope"]) == 2
    assert "known: flow, other" in capsys.readouterr().err
    assert main(["kill", "--workflow", "other"]) == 0
    assert capsys.readouterr().out == "there is no run that has not ended\n"
    outlast.submit(other, run_id="c", store=store.url)
    assert main(["kill", "--workflow", "flow"]) == 0
    assert {store.status("a"), store.status("b")} == {"killed"}
    assert store.status("c") == "queued"
    assert main(["kill", "--all"]) == 0
    assert store.status("c") == "killed"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "--all"],
        ["--all", "--workflow", "flow"],
        ["a", "--workflow", "flow"],
        ["--all", "--tree"],
        ["a", "--grace", "-1"],
        ["a", "--grace", "nan"],
    ],
    ids=" ".join,
)
def test_wrong_use_kills_nothing(
    store: Stoppable, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["kill", *words]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert store.status("a") == "queued"


def test_kill_says_when_nothing_of_a_run_runs_any_more(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("await")
    done = stoppable.command("kill", "r", "--reason", "enough")
    assert done.returncode == 0, done.stderr
    assert "nothing of it runs any more (after " in done.stdout
    assert child.end()["error"] == "RunKilled"
    shown = stoppable.command("show", "r").stdout
    assert ": enough" in shown
    assert "nothing of it runs any more (after " in shown
    assert "outlast resume r --revive" in shown


def test_kill_names_the_process_that_has_not_let_go_and_how_to_end_it(
    stoppable: Stoppable,
) -> None:
    child = stoppable.start_in_body("deaf", colour="plain", grace=0.2)
    done = stoppable.command("kill", "r", "--grace", "0")
    assert done.returncode == 0, done.stderr
    assert "run r is killed: nothing more opens or is recorded" in done.stderr
    assert f"process {child.pid} on " in done.stdout
    assert done.stdout.splitlines()[-1].strip() == "outlast kill r --hard"
    assert "killed, still in a process" in stoppable.command("ls").stdout
    ended = stoppable.command("kill", "r", "--hard")
    assert ended.returncode == 0, ended.stderr
    assert child.process.wait(20) < 0
    assert f"ended from outside: process {child.pid}" in ended.stdout
    assert "still in a process" not in stoppable.command("ls").stdout


def test_commands_that_are_named_reach_the_store_that_was_chosen(
    store: Stoppable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OUTLAST_STORE")
    assert main(["--store", store.url, "kill", "a"]) == 0
    main(["--store", store.url, "show", "a"])
    assert f"outlast --store {store.url} resume a --revive" in capsys.readouterr().out
    main(["--store", store.url, "stop-all", "--reason", "fire"])
    assert f"outlast --store {store.url} allow" in capsys.readouterr().out
    assert main(["--store", store.url, "pause", "a"]) == 2
    assert main(["--store", store.url, "resume", "b", "--queue"]) == 0


def test_a_killed_run_is_resumed_only_if_its_kill_is_taken_back(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("gate", colour="plain")
    stoppable.client.kill("r", wait=20)
    child.end()
    refused = stoppable.command("resume", "r")
    assert refused.returncode == 4
    assert "outlast resume r --revive" in refused.stderr
    stoppable.open_gate()
    done = stoppable.command("resume", "r", "--revive")
    assert done.returncode == 0, done.stderr
    assert "the kill of run r was taken back" in done.stderr
    assert json.loads(done.stdout) == ["gated", "end"]
    assert stoppable.executed == ["body", "body", "last"]
    again = stoppable.command("resume", "r", "--revive")
    assert again.returncode == 2
    assert "only a killed run is revived" in again.stderr


def test_a_revived_run_may_be_left_to_whoever_takes_up_runs(store: Stoppable) -> None:
    store.client.kill("a")
    assert main(["resume", "a", "--revive", "--queue"]) == 0
    assert store.status("a") == "queued"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--all", "--revive"], "--revive belongs to one run"),
        (["--all", "--queue"], "--queue belongs to one run"),
        (["a", "--queue", "--accept-from", "x#0"], "--queue loads no code"),
    ],
    ids=str,
)
def test_wrong_use_of_resume(
    store: Stoppable, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["resume", *words]) == 2
    assert said in capsys.readouterr().err


def test_pause_says_what_still_runs(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("gate")
    said = stoppable.command("pause", "r", "--reason", "lunch").stdout
    assert said.startswith(f"pausing: act#0 still runs in process {child.pid} on ")
    assert "a step still runs" in stoppable.command("ls").stdout
    stoppable.open_gate()
    assert child.end()["reason"] == "paused"
    until(lambda: stoppable.client.run("r").owner is None, "the process to let go")
    view = json.loads(stoppable.command("pause", "r", "--json").stdout)
    assert (view["status"], view["reason"], view["owner"]) == ("held", "paused", None)
    assert ": lunch" in view["detail"]


def test_the_journal_has_words_for_what_operators_do(
    store: Stoppable, capsys: pytest.CaptureFixture[str]
) -> None:
    store.client.pause("a", reason="lunch", by="ann")
    store.client.resume("a", by="ann")
    store.client.kill("a", reason="enough", by="bob", grace=2)
    store.client.revive("a", by="eve")
    main(["journal", "a"])
    said = capsys.readouterr().out
    for words in (
        "to go on by ann",
        "killed by bob, 2 s of grace: enough",
        "the kill was taken back by eve",
    ):
        assert words in said
