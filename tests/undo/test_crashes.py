"""Undoing goes on where it was when its process died. Real processes, real SIGKILL."""

from collections import Counter
from pathlib import Path

import pytest

from tests.effects.stage import Stage

PROGRAM = Path(__file__).parent / "programs" / "booking.py"
COLOURS = pytest.mark.parametrize("colour", ["plain", "async"])
POINTS = [f"{where} {n}" for n in (2, 1, 0) for where in ("before", "inside")]


def cancelled(stage: Stage) -> list[str]:
    return [line.split()[1] for line in stage.effects() if line.startswith("cancel")]


def check_end(stage: Stage, point: str) -> None:
    """Each was cancelled in its turn; only the compensation that died inside is made again."""
    twice = point.split()[1] if point.startswith("inside") else ""
    expected = [n for n in "210" for _ in range(1 + (n == twice))]
    assert cancelled(stage) == expected
    keys = {tuple(line.split()[1:]) for line in stage.effects() if line.startswith("cancel")}
    assert len(keys) == 3  # a repeat has the idempotency key that it had
    assert Counter(stage.effects())["book 0"] == 1
    for n in range(3):
        assert stage.kinds(f"book.undo#u.{n}").count("step.completed") == 1
    view = stage.client().run("run")
    assert (view.undone, view.left) == (["book#2", "book#1", "book#0"], [])


@pytest.mark.parametrize("point", POINTS)
@COLOURS
def test_a_failing_run_that_dies_while_it_undoes_goes_on_there(
    stage: Stage, colour: str, point: str
) -> None:
    stage.kill_at(point)
    assert stage.play(PROGRAM, colour, "fails").killed
    assert len(cancelled(stage)) < 4

    played = stage.play(PROGRAM, colour, "fails")

    assert played.stopped == ("RunFailed", None)
    assert "ValueError: no" in str(played.outcome["text"])
    check_end(stage, point)


@pytest.mark.parametrize("point", POINTS)
@COLOURS
def test_a_run_that_is_undone_by_request_and_dies_meanwhile_goes_on_there(
    stage: Stage, colour: str, point: str
) -> None:
    assert stage.play(PROGRAM, colour, "returns").result is None
    stage.client().undo("run", by="ann")
    stage.kill_at(point)
    assert stage.play(PROGRAM, colour, "returns").killed

    played = stage.play(PROGRAM, colour, "returns")

    assert played.stopped == ("RunFailed", None)
    assert "undone by ann" in str(played.outcome["text"])
    assert Counter(stage.effects())["end"] == 1  # the workflow itself is not executed
    check_end(stage, point)


@COLOURS
def test_it_may_die_in_every_compensation_and_undoes_each_in_its_turn(
    stage: Stage, colour: str
) -> None:
    for n in (2, 1, 0):
        stage.kill_at(f"before {n}")
        assert stage.play(PROGRAM, colour, "fails").killed
    assert stage.play(PROGRAM, colour, "fails").stopped == ("RunFailed", None)
    check_end(stage, "before 0")


# ---- with children

FAMILY = PROGRAM.with_name("family.py")
RUNS = {0: "run", 1: "run/child#1", 2: "run/child#1/grandchild#1", 3: "run/child#1", 4: "run"}
"""The run that has booked each thing."""


def check_family(stage: Stage, twice: str = "") -> None:
    """As `check_end`, in all three runs."""
    assert cancelled(stage) == [n for n in "43210" for _ in range(1 + (n == twice))]
    keys = {tuple(line.split()[1:]) for line in stage.effects() if line.startswith("cancel")}
    assert len(keys) == 5
    for run_id in set(RUNS.values()):
        undone = [kind for kind in stage.kinds(run_id=run_id) if kind.startswith("run.und")]
        assert undone.count("run.undone") == 1
        assert undone.count("run.undoing") == ("run.undoing" in undone)
        view = stage.client().run(run_id)
        assert (view.status, view.left) == ("failed", [])
    assert stage.kinds("child.undo#u.1") == ["child.started", "child.ended"]


@pytest.mark.parametrize("end", ["fails", "returns"])
@pytest.mark.parametrize("point", [f"{at} {n}" for n in (3, 2, 1) for at in ("before", "inside")])
@COLOURS
def test_undoing_goes_on_in_a_child_where_its_process_died(
    stage: Stage, colour: str, point: str, end: str
) -> None:
    if end == "returns":
        assert stage.play(FAMILY, colour, end).result is None
        stage.client().undo("run")
    stage.kill_at(point)
    assert stage.play(FAMILY, colour, end).killed

    assert stage.play(FAMILY, colour, end).stopped == ("RunFailed", None)
    where, n = point.split()
    check_family(stage, n if where == "inside" else "")


@COLOURS
def test_it_may_die_in_every_compensation_of_a_family(stage: Stage, colour: str) -> None:
    for n in (4, 3, 2, 1, 0):
        stage.kill_at(f"before {n}")
        assert stage.play(FAMILY, colour, "fails").killed
    assert stage.play(FAMILY, colour, "fails").stopped == ("RunFailed", None)
    check_family(stage)


@COLOURS
def test_a_child_that_died_with_its_parent_is_undone_by_another_process(
    stage: Stage, colour: str
) -> None:
    stage.kill_at("booked 3")
    assert stage.play(FAMILY, colour, "returns").killed
    stage.client().kill("run")
    stage.client().undo("run")

    assert stage.play(FAMILY, colour, "returns").stopped == ("RunKilled", None)
    # Whether the last one was booked is not known, and nobody goes on to find out.
    assert cancelled(stage) == ["2", "1", "0"]
    assert stage.client().run("run").left == ["child#1/book#2"]
