"""What people met when a run was resumed: half pictures, shuffled results, changed programs, runs
that kill every process that takes them up, and steps that were run again."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outlast
from tests.effects.stage import Stage
from tests.scenarios.programs.race import make_flow

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


# ---- a step's result and the state that it leads to

STEP_B = "step.completed:note#0.t1.0:1"
TURN_B = "turn.saved:turns#0:2"
CUTS = [
    *(f"{when}-{STEP_B}" for when in ("before", "after", "committed", "synced")),
    *(f"{when}-{TURN_B}" for when in ("before", "after", "committed")),
]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_anywhere_around_a_checkpoint_shows_one_of_two_pictures(
    stage: Stage, cut: str
) -> None:
    stage.kill_at(cut)
    assert stage.play(PROGRAMS / "notes.py").killed
    is_done = cut in (f"committed-{STEP_B}", f"synced-{STEP_B}") or TURN_B in cut
    view = stage.client().run("run")
    assert stage.client().verify("run")[0].ok
    assert view.seq == len(stage.client().journal("run"))
    assert stage.step("note#0.t1.0").status == ("completed" if is_done else "interrupted")
    assert view.turn == (2 if cut == f"committed-{TURN_B}" else 1)
    assert stage.play(PROGRAMS / "notes.py").result == ["A", "B", "C"]
    assert stage.effects() == (["a", "b", "c"] if is_done else ["a", "b", "b", "c"])


# ---- steps that were started together


def test_which_came_first_stays_so_however_a_resume_is_timed(stage: Stage) -> None:
    delays = {"a": 0.02, "b": 0.0, "c": 0.0}
    assert stage.play(PROGRAMS / "race.py", json.dumps(delays), "c").killed
    assert stage.effects() == ["b", "a"]
    dice = random.Random(1)
    for copy in range(50):
        other = Stage(stage.folder / str(copy))
        other.folder.mkdir()
        for file in stage.folder.glob("store.db*"):
            shutil.copy(file, other.folder)
        shuffled = {name: dice.choice([0.0, 0.001, 0.004]) for name in "abc"}
        flow = make_flow(other, shuffled)
        result = outlast.run(flow, run_id="run", store=other.url)
        assert result == [["A", "B", "C"], ["b", "a", "c"], "b was first"]
        assert other.effects() == ["c", "decided b"]


# ---- a program that was changed meanwhile


@pytest.mark.parametrize(
    ("variant", "recorded", "requested"),
    [
        ("insert", "a#0", "x"),
        ("rename", "b#1", "x"),
        ("swap", "a#0", "b"),
        ("delete", "b#1", "c"),
        ("arguments", "b#1", "other arguments"),
    ],
)
def test_a_changed_program_is_noticed_before_the_misfit_runs(
    stage: Stage, variant: str, recorded: str, requested: str
) -> None:
    program = PROGRAMS / "changed.py"
    stage.kill_at("in-c")
    assert stage.play(program, "original").killed
    before = stage.effects()
    for _ in range(2):  # a further start does not lift it
        played = stage.play(program, variant)
        assert played.stopped == ("RunHeld", "diverged")
        assert recorded in str(played.outcome["text"])
        assert requested in str(played.outcome["text"])
    assert stage.effects() == before
    assert stage.play(program, "original").result == ["a1", "b1", "c1"]
    assert stage.effects() == [*before, "c 1"]


# ---- a step that kills its process


@pytest.mark.parametrize("way", ["exit", "signal"])
def test_a_step_that_kills_its_process_is_parked_after_three_deaths(stage: Stage, way: str) -> None:
    program = PROGRAMS / "deadly.py"
    for attempt in range(1, 4):
        with stage.start(program, way) as child:
            assert child.wait(30) in (137, -9)
        assert stage.step("b#1").attempts == attempt  # counted before its body began
    for _ in range(2):  # later starts do not touch it
        assert stage.play(program, way).stopped == ("RunHeld", "crash-loop")
    assert stage.effects() == ["a", "b 1", "b 2", "b 3"]
    view = stage.client().run("run")
    assert (view.status, view.reason) == ("held", "crash-loop")
    assert "3 times" in (view.detail or "")
    assert stage.play(program, "harmless").result == "A"


# ---- a join


def test_a_join_runs_once_after_a_fault_in_one_of_its_inputs(stage: Stage) -> None:
    program = PROGRAMS / "join.py"
    assert stage.play(program, "fault").stopped[0] == "RunWaiting"
    stage.later(3600)
    assert stage.play(program, "fault", "wait").result == 12
    assert sorted(stage.effects()) == ["fast", "join 3 4", "slow 1", "slow 2"]


def test_a_join_runs_once_after_a_death_in_one_of_its_inputs(stage: Stage) -> None:
    program = PROGRAMS / "join.py"
    assert stage.play(program, "death", "wait").killed
    assert stage.play(program, "death", "wait").result == 12
    assert stage.play(program, "death", "wait").result == 12
    assert sorted(stage.effects()) == ["fast", "join 3 4", "slow 1", "slow 2"]


# ---- an interrupted tool call


@pytest.mark.parametrize("effect", ["idempotent", "once"])
@pytest.mark.parametrize(
    "cut",
    [
        "before-step.completed:model#0.t0.0:1",
        "after-step.completed:model#0.t0.0:1",
        "committed-step.completed:model#0.t0.0:1",
        "committed-step.started:tool#0.t0.1:1",
        "in-tool",
        "before-step.completed:tool#0.t0.1:1",
        "after-step.completed:tool#0.t0.1:1",
        "committed-step.completed:tool#0.t0.1:1",
    ],
)
def test_every_started_call_ends_in_one_outcome_and_the_chat_is_balanced(
    stage: Stage, effect: str, cut: str
) -> None:
    program = PROGRAMS / "agent.py"
    stage.kill_at(cut)
    assert stage.play(program, effect).killed
    chat: Any = stage.play(program, effect).result
    assert stage.play(program, effect).result == chat
    calls = [
        message["call"] for message in chat if message["role"] == "assistant" and "call" in message
    ]
    results = [message["call"] for message in chat if message["role"] == "tool"]
    assert calls == results == ["call-1"]
    in_flight = "tool" in cut and not cut.startswith("committed-step.completed")
    doubtful = in_flight and effect == "once"
    assert chat[2]["result"] == ("in doubt" if doubtful else "result of call-1")
    sends = stage.effects().count("tool call-1")
    begun = cut != "committed-step.started:tool#0.t0.1:1"
    assert sends == ((1 if begun else 0) if doubtful else 2 if in_flight and begun else 1)
    statuses = {s.key: s.status for s in stage.client().run("run").steps}
    assert statuses == {
        "model#0.t0.0": "completed",
        "tool#0.t0.1": "failed" if doubtful else "completed",
        "model#0.t1.0": "completed",
    }
