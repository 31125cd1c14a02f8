"""Undoing a run undoes the runs that it has started, each in its turn among its steps."""

from typing import Any

import pytest

import outlast
from outlast import Done, RunFailed, RunHeld, RunKilled, RunWaiting, Terminal
from tests.effects.stage import Stage
from tests.undo import trip
from tests.undo.journey import UNKNOWN, flow
from tests.undo.trip import ANSWERS, TROUBLE, Colour, happened

COLOURS = pytest.mark.parametrize("colour", ["plain", "async"])

ALL = [
    f"cancel {what}"
    for what in ("room Bari", "train Bari", "car", "room Rome", "train Rome", "flight")
]
LEFT = ["leg#1/mail#1", "leg#3/mail#1"]


def start(stage: Stage, name: str, colour: Colour, *args: Any, **options: Any) -> Any:
    return outlast.run(flow(name, colour), *args, run_id="run", store=stage.url, **options)


def go_on(stage: Stage, name: str, colour: Colour) -> None:
    """Execute what is queued, as a worker does."""
    stage.resume(flow(name, colour))


def cancelled() -> list[str]:
    return [line for line in happened if line.startswith("cancel")]


@COLOURS
def test_a_workflow_that_raises_takes_back_what_its_children_did(
    stage: Stage, colour: Colour
) -> None:
    with pytest.raises(RunFailed, match="no car left"):
        start(stage, "failing_tour", colour)

    assert cancelled() == ALL
    view = stage.client().run("run")
    assert view.undone == ["leg#3", "book#2", "leg#1", "book#0"]
    assert view.left == LEFT
    rome = stage.client().run("run/leg#1")
    assert (rome.status, rome.reason) == ("failed", "undone")  # its result does not stand
    assert (rome.undone, rome.left) == (["stay#2", "book#0"], ["mail#1"])
    assert stage.client().run("run/leg#3").reason == "ValueError"


@COLOURS
def test_a_completed_run_is_undone_with_its_children(stage: Stage, colour: Colour) -> None:
    start(stage, "tour", colour)
    stage.client().undo("run", by="ann")
    with pytest.raises(RunFailed, match="undone by ann"):
        go_on(stage, "tour", colour)
    assert cancelled() == ALL
    assert stage.client().run("run").left == LEFT
    assert "by ann" in (stage.client().run("run/leg#1/stay#2").detail or "")

    stage.client().undo("run")  # repeats nothing
    with pytest.raises(RunFailed):
        go_on(stage, "tour", colour)
    assert cancelled() == ALL
    assert stage.client().run("run").left == LEFT


@COLOURS
def test_the_parent_records_the_undoing_of_each_child(stage: Stage, colour: Colour) -> None:
    with pytest.raises(RunFailed):
        start(stage, "failing_tour", colour)
    for key in ("leg.undo#u.1", "leg.undo#u.3"):
        assert stage.kinds(key) == ["child.started", "child.ended"]


@COLOURS
def test_a_child_that_has_undone_itself_is_not_undone_again(stage: Stage, colour: Colour) -> None:
    with pytest.raises(RunFailed, match="no seat left"):
        start(stage, "careful_tour", colour)
    assert cancelled() == ["cancel train Rome", "cancel flight"]
    view = stage.client().run("run")
    assert (view.undone, view.left) == (["leg#1", "book#0"], [])
    assert stage.kinds(run_id="run/leg#1").count("run.undone") == 1


@COLOURS
def test_a_child_that_was_undone_alone_is_not_undone_again(stage: Stage, colour: Colour) -> None:
    start(stage, "tour", colour)
    stage.client().undo("run/leg#1")
    with pytest.raises(RunFailed):
        stage.resume(flow("leg", colour), "run/leg#1")
    assert cancelled() == ["cancel room Rome", "cancel train Rome"]
    assert stage.client().run("run").status == "completed"

    stage.client().undo("run")
    with pytest.raises(RunFailed):
        go_on(stage, "tour", colour)
    assert sorted(cancelled()) == sorted(ALL)


@COLOURS
def test_down_to_a_child_only_it_and_what_ended_after_it_is_undone(
    stage: Stage, colour: Colour
) -> None:
    start(stage, "tour", colour)
    stage.client().undo("run", "leg#1")
    with pytest.raises(RunFailed):
        go_on(stage, "tour", colour)
    assert cancelled() == ALL[:-1]
    assert stage.client().run("run").left == ["book#0", *LEFT]

    stage.client().undo("run", "book#0")
    with pytest.raises(RunFailed):
        go_on(stage, "tour", colour)
    assert cancelled() == ALL


@COLOURS
def test_a_compensation_that_fails_in_a_child_holds_both_with_the_reason(
    stage: Stage, colour: Colour
) -> None:
    TROUBLE["train Rome"] = [Terminal("closed")]
    with pytest.raises(RunHeld) as held:
        start(stage, "failing_tour", colour)

    assert held.value.reason == "undo-failed"
    assert "run/leg#1" in str(held.value)
    assert "closed" in str(held.value)
    child = stage.client().run("run/leg#1")
    assert (child.status, child.reason) == ("held", "undo-failed")
    assert cancelled() == ALL[:-2]  # nothing before it

    with pytest.raises(RunFailed, match="no car left"):
        go_on(stage, "failing_tour", colour)
    assert cancelled() == ALL
    assert len(trip.KEYS["book.undo#u.0"]) == 5  # one in each of five runs


@pytest.mark.parametrize("left", [True, False], ids=["left", "done by hand"])
@COLOURS
def test_an_operator_decides_about_a_compensation_of_a_child(
    stage: Stage, colour: Colour, left: bool
) -> None:
    TROUBLE["train Rome"] = [Terminal("closed")]
    with pytest.raises(RunHeld):
        start(stage, "failing_tour", colour)
    decision = outlast.Failed("they keep the money") if left else Done(None)
    stage.client().settle("run/leg#1", "book.undo#u.0", decision)
    with pytest.raises(RunFailed, match="no car left"):
        go_on(stage, "failing_tour", colour)

    assert cancelled() == [*ALL[:-2], ALL[-1]]
    more = ["leg#1/book#0"] if left else []
    assert stage.client().run("run").left == [*more, *LEFT]


@COLOURS
def test_what_is_in_doubt_in_a_child_is_found_out_before_anything_is_undone(
    stage: Stage, colour: Colour
) -> None:
    ANSWERS[:] = [UNKNOWN]
    start(stage, "paid_tour", colour)
    stage.client().undo("run")
    with pytest.raises(RunHeld) as held:
        go_on(stage, "paid_tour", colour)
    assert held.value.reason == "in-doubt"
    assert "run/paid_leg#0" in str(held.value)
    assert cancelled() == []

    stage.client().settle("run/paid_leg#0", "pay#1", Done({"what": "Rome", "number": 7}))
    with pytest.raises(RunFailed):
        go_on(stage, "paid_tour", colour)
    assert happened[-3:] == ["cancel car", "repay Rome 7", "cancel train Rome"]
    assert stage.client().run("run").left == []


@COLOURS
def test_a_killed_run_is_undone_with_the_children_that_were_killed_with_it(
    stage: Stage, colour: Colour
) -> None:
    with pytest.raises(RunWaiting):
        start(stage, "sleepy_tour", colour, wait=False)
    stage.client().kill("run", reason="wrong city")
    stage.client().undo("run")
    with pytest.raises(RunKilled, match="wrong city"):
        go_on(stage, "sleepy_tour", colour)
    assert cancelled() == ["cancel train Rome", "cancel flight"]
    assert stage.client().run("run/sleepy_leg#1").status == "killed"
    assert stage.client().run("run").undone == ["sleepy_leg#1", "book#0"]


@COLOURS
def test_a_child_that_has_not_ended_ends_before_it_is_undone(stage: Stage, colour: Colour) -> None:
    with pytest.raises(RunWaiting):
        start(stage, "sleepy_tour", colour, wait=False)
    stage.client().pause("run")
    stage.client().undo("run")
    with pytest.raises(RunFailed, match="undone"):
        go_on(stage, "sleepy_tour", colour)
    assert cancelled() == ["cancel train Rome", "cancel flight"]
    assert stage.client().run("run/sleepy_leg#1").status == "killed"


@COLOURS
def test_a_kill_in_the_middle_is_no_end_of_what_is_to_be_undone(
    stage: Stage, colour: Colour
) -> None:
    TROUBLE["train Rome"] = [Terminal("closed")]
    with pytest.raises(RunHeld):
        start(stage, "failing_tour", colour)
    stage.client().kill("run")
    stage.client().undo("run")
    with pytest.raises(RunKilled):
        go_on(stage, "failing_tour", colour)
    assert cancelled() == ALL


@COLOURS
def test_a_copy_begins_at_the_first_child_that_was_undone_or_before(
    stage: Stage, colour: Colour
) -> None:
    start(stage, "tour", colour)
    stage.client().undo("run", "leg#1")
    with pytest.raises(RunFailed):
        go_on(stage, "tour", colour)
    with pytest.raises(outlast.UsageError, match="leg#1 of run run was undone"):
        stage.client().fork("run", "leg#3", new_id="copy")
