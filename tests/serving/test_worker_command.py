"""`outlast worker`: a supervisor and its worker processes, on one store."""

import signal

import pytest

import outlast
from outlast.events import RunClaimed, StepInterrupted
from tests.ownership.children import events, lines, until
from tests.serving.programs import desk
from tests.serving.stage import Stage


def claims(stage: Stage, run_id: str) -> list[RunClaimed]:
    found = events(stage.stored(run_id), "run.claimed")
    return [event for event in found if isinstance(event, RunClaimed)]


def test_a_step_that_ends_within_the_grace_of_a_sigterm_is_recorded(stage: Stage) -> None:
    crew = stage.crew("--grace", "20")
    outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
    outlast.submit(desk.plainly_gated, "p", run_id="p", store=stage.url)
    pids = {stage.at_gate("a"), stage.at_gate("p")}
    assert len(pids) == 1
    crew.send(signal.SIGTERM)
    until(lambda: "finishing" in "".join(lines(crew.said)), "the workers to be told")
    outlast.submit(desk.quick, "late", run_id="late", store=stage.url)
    stage.open("a")
    stage.open("p")
    assert crew.end() == 143
    for run_id in ("a", "p"):
        gates = [s for s in stage.client.run(run_id).steps if "gate" in s.name]
        assert [(s.status, s.attempts) for s in gates] == [("completed", 1)]
        assert stage.client.run(run_id).status in ("queued", "completed")
        assert stage.owner(run_id) is None
        assert "step.interrupted" not in stage.kinds(run_id)
    assert stage.kinds("late") == ["run.created"], "nothing more is taken up"


@pytest.mark.parametrize("workflow", ["gated", "plainly_gated"])
def test_a_step_that_outlasts_the_grace_leaves_the_run_to_be_resumed(
    stage: Stage, workflow: str
) -> None:
    crew = stage.crew("--grace", "0.2")
    outlast.submit(getattr(desk, workflow), "a", run_id="a", store=stage.url)
    stage.at_gate("a")
    crew.send(signal.SIGTERM)
    assert crew.end() == 143
    view = stage.client.run("a")
    assert (view.status, view.interrupted) == ("queued", False)

    stage.open("a")
    with outlast.serving(getattr(desk, workflow), store=stage.url):
        outlast.Handle("a", stage.url).result(timeout=30).result()
    assert [claim.crash for claim in claims(stage, "a")] == [False, False]
    (cut,) = events(stage.stored("a"), "step.interrupted")
    assert isinstance(cut, StepInterrupted)
    assert not cut.crash


def test_a_second_ctrl_c_does_not_wait_for_the_grace(stage: Stage) -> None:
    crew = stage.crew("--grace", "3600")
    outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
    stage.at_gate("a")
    crew.send(signal.SIGINT)
    until(lambda: "finishing" in "".join(lines(crew.said)), "the word about the first")
    crew.send(signal.SIGINT)
    assert crew.end() == 130
    view = stage.client.run("a")
    assert (view.status, view.interrupted) == ("queued", False)


def test_the_runs_of_a_worker_that_is_killed_go_on_in_another(stage: Stage) -> None:
    crew = stage.crew("--processes", "2")
    crew.await_workers(2)
    outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
    first = stage.at_gate("a")
    crew.worker(first).kill()
    until(lambda: stage.at_gate("a") != first, "the run to go on elsewhere")
    stage.open("a")
    assert outlast.Handle("a", stage.url).result(timeout=30).result() != f"a by {first}"
    assert [claim.crash for claim in claims(stage, "a")] == [False, True]
    notes = [who for what, who, _ in stage.log if what == "note"]
    assert notes == ["a-before", "a-after"], "what was completed is not repeated"
    until(lambda: len(crew.workers()) == 2, "another worker in place of the dead one")
    crew.send(signal.SIGTERM)
    assert crew.end() == 143


def test_other_runs_of_a_worker_that_hangs_lose_nothing_when_the_hung_one_is_killed(
    stage: Stage,
) -> None:
    crew = stage.crew()
    outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
    stage.at_gate("a")
    outlast.submit(desk.hung, "h", run_id="h", store=stage.url)
    pid = stage.at_gate("h")
    stage.client.kill("h", grace=0.2)
    until(lambda: "run.stopped" in stage.kinds("h"), "the end of the hung run")
    until(lambda: stage.at_gate("a") != pid, "the other run to go on")
    stage.open("a")
    outlast.Handle("a", stage.url).result(timeout=30).result()
    assert [claim.crash for claim in claims(stage, "a")] == [False, False]
    assert stage.kinds("h")[-2:] == ["run.killed", "run.stopped"]
    assert stage.client.run("h").status == "killed"
    assert stage.owner("h") is None
    assert crew.workers()[0].pid != pid


def test_a_module_that_cannot_be_imported_is_told_of_once(stage: Stage) -> None:
    crew = stage.crew("--processes", "3", places=("no_such_module",))
    assert crew.end() == 2
    assert lines(crew.said) == [
        "outlast: 'no_such_module': there is no module no_such_module; expected "
        "FILE.py:WORKFLOW or package.module:WORKFLOW"
    ]


def test_a_sigterm_to_all_processes_at_once_leaves_the_grace(stage: Stage) -> None:
    """As a service manager sends it; the supervisor passes its own on."""
    crew = stage.crew("--grace", "3600")
    outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
    pid = stage.at_gate("a")
    crew.worker(pid).terminate()
    crew.send(signal.SIGTERM)
    until(lambda: "finishing" in "".join(lines(crew.said)), "the workers to be told")
    crew.worker(pid).terminate()
    stage.open("a")
    assert crew.end() == 143
    (gate,) = [step for step in stage.client.run("a").steps if "gate" in step.name]
    assert (gate.status, gate.attempts) == ("completed", 1)


def test_workers_end_once_their_store_is_lost(stage: Stage) -> None:
    crew = stage.crew(patience=0.1)
    outlast.submit(desk.quick, "a", run_id="a", store=stage.url).result(timeout=30).result()
    for file in stage.folder.glob("store.db*"):
        file.unlink()
    assert crew.end() == 7
    assert "the workers end" in "".join(lines(crew.said))
