"""Families across SIGKILL: one result, steps run once, one budget."""

from pathlib import Path

import pytest

import outlast
from outlast import events
from tests.checkers import check_all
from tests.effects.colours import COLOURS, Colour
from tests.effects.stage import Stage

PROGRAM = Path(__file__).parent / "programs" / "family.py"

RESULTS = {
    "calls": [30, 110],
    "starts": [10, 20],
    "maps": [10, 20, 30],
    "maps-kids": [10, 20, 30],
}
STEPS = {"calls": 4, "starts": 2, "maps": 3, "maps-kids": 3}


@pytest.mark.parametrize("which", RESULTS)
@pytest.mark.parametrize("colour", COLOURS)
def test_a_family_that_is_killed_again_and_again_comes_to_its_one_result(
    stage: Stage, colour: Colour, which: str
) -> None:
    for point in ("first", "second", "died"):
        stage.kill_at(point)
        assert stage.play(PROGRAM, colour, which).killed, point
    played = stage.play(PROGRAM, colour, which)
    assert played.result == RESULTS[which]
    effects = stage.effects()
    assert len(set(effects)) == STEPS[which]
    # What was under way at a kill is made again, and nothing else.
    under_way = 2 if which == "starts" else 1
    assert len(effects) <= STEPS[which] + 2 * under_way
    check_all(stage.url, "run")


@pytest.mark.parametrize("colour", COLOURS)
def test_the_budget_of_a_family_outlasts_crashes(stage: Stage, colour: Colour) -> None:
    """One purse for both children: neither a full one for each nor one that a crash empties."""
    stage.kill_at("first")
    assert stage.play(PROGRAM, colour, "calls", "tight").killed
    stopped = stage.play(PROGRAM, colour, "calls", "tight")
    assert stopped.stopped == ("RunHeld", "over-budget")
    spending = stage.client().run("run").spending
    assert spending is not None
    assert (str(spending.settled.usd), spending.calls) == ("0.9", 3)  # the dead one counts
    assert spending.reserved.usd in (None, 0)
    assert stage.client().run("run/kid#1").spending == spending
    check_all(stage.url, "run", estimates_hold=True)
    stage.client().add_budget("run", outlast.Budget(usd=1))
    assert stage.play(PROGRAM, colour, "calls", "tight").result == RESULTS["calls"]
    spending = stage.client().run("run").spending
    assert spending is not None
    assert (str(spending.settled.usd), spending.calls) == ("1.5", 6)


@pytest.mark.parametrize("which", ["maps", "maps-kids"])
@pytest.mark.parametrize("colour", COLOURS)
def test_results_of_a_fan_out_survive_a_reordered_and_longer_list(
    stage: Stage, colour: Colour, which: str
) -> None:
    stage.kill_at("second")
    assert stage.play(PROGRAM, colour, which).killed
    stage.set("changed")
    assert stage.play(PROGRAM, colour, which).result == [40, 30, 20, 10]
    # The second item was under way at the kill.
    assert sorted(stage.effects()) == ["act 1", "act 2", "act 2", "act 3", "act 4"]


def test_a_crash_in_a_child_counts_as_one_of_the_child_alone(stage: Stage) -> None:
    """A child that comes on, however often the process dies, is no crash loop of its parent."""
    for point in ("first", "second", "first", "second"):
        (stage.folder / "effects.log").unlink(missing_ok=True)
        stage.kill_at(point)
        assert stage.play(PROGRAM, "sync", "calls").killed
    played = stage.play(PROGRAM, "sync", "calls")
    assert played.result == RESULTS["calls"]


def test_a_child_in_which_the_process_dies_again_and_again_holds_both(stage: Stage) -> None:
    for _ in range(3):
        (stage.folder / "effects.log").unlink(missing_ok=True)
        stage.kill_at("first")
        assert stage.play(PROGRAM, "sync", "calls").killed
    played = stage.play(PROGRAM, "sync", "calls")
    assert played.stopped == ("RunHeld", "crash-loop")
    assert "child run run/kid#0 is held (crash-loop)" in str(played.outcome["text"])
    claims = [e for e in stage.client().journal("run") if e.kind == events.RunClaimed.kind]
    assert len(claims) == 4
