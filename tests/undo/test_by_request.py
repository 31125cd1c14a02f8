"""Undoing a run from outside: what it may be, what it is afterwards, and what cannot follow."""

import threading
from typing import Any

import pytest

import outlast
from outlast import Done, RunFailed, RunHeld, RunKilled, RunWaiting, UsageError, step, workflow
from outlast.testing import replay
from tests.effects.stage import Stage
from tests.undo import trip
from tests.undo.trip import FLOWS, TROUBLE, Colour, happened

COLOURS = pytest.mark.parametrize("colour", ["plain", "async"])


def start(stage: Stage, colour: Colour, end: str = "", **options: Any) -> Any:
    return outlast.run(FLOWS["trip", colour], end, run_id="run", store=stage.url, **options)


def go_on(stage: Stage, colour: Colour) -> None:
    """Execute what is queued, as a worker does."""
    stage.resume(FLOWS["trip", colour])


def cancelled() -> list[str]:
    return [line for line in happened if line.startswith("cancel")]


ALL = ["cancel hotel", "cancel flight"]


@COLOURS
def test_a_completed_run_is_undone_and_not_shown_as_completed_any_more(
    stage: Stage, colour: Colour
) -> None:
    start(stage, colour)
    view = stage.client().undo("run", by="ann")
    assert (view.status, view.reason) == ("queued", "undoing")

    with pytest.raises(RunFailed, match="undone by ann"):
        go_on(stage, colour)

    view = stage.client().run("run")
    assert (view.status, view.reason) == ("failed", "undone")
    assert (view.undone, view.left) == (["book#3", "book#0"], ["mail#2"])
    assert cancelled() == ALL
    with pytest.raises(RunFailed, match="undone by ann"):  # its result does not stand
        start(stage, colour)


@COLOURS
def test_a_failed_run_fails_as_before_once_it_is_undone(stage: Stage, colour: Colour) -> None:
    with pytest.raises(RunFailed):
        start(stage, colour, "fails")
    stage.client().undo("run")
    with pytest.raises(RunFailed, match="no car left"):
        go_on(stage, colour)
    view = stage.client().run("run")
    assert (view.status, view.reason, cancelled()) == ("failed", "ValueError", ALL)


@COLOURS
def test_a_killed_run_is_killed_again_once_it_is_undone(stage: Stage, colour: Colour) -> None:
    with pytest.raises(RunWaiting):
        start(stage, colour, "waits", wait=False)
    stage.client().kill("run", reason="wrong city")
    stage.client().undo("run")
    with pytest.raises(RunKilled, match="wrong city"):
        go_on(stage, colour)
    assert stage.client().run("run").status == "killed"
    assert cancelled() == ALL


@COLOURS
def test_a_paused_run_is_undone_and_cannot_go_on(stage: Stage, colour: Colour) -> None:
    with pytest.raises(RunWaiting):
        start(stage, colour, "waits", wait=False)
    stage.client().pause("run")
    stage.client().undo("run")
    with pytest.raises(RunFailed, match="undone"):
        go_on(stage, colour)
    assert cancelled() == ALL


def test_a_run_that_would_go_on_is_not_undone(stage: Stage) -> None:
    with pytest.raises(RunWaiting):
        start(stage, "plain", "waits", wait=False)
    with pytest.raises(UsageError, match="outlast pause run, or outlast kill run"):
        stage.client().undo("run")
    stage.client().kill("run")
    stage.client().undo("run")
    with pytest.raises(UsageError, match="undone already"):
        stage.client().undo("run")
    with pytest.raises(RunKilled):
        go_on(stage, "plain")


@COLOURS
def test_down_to_a_step_only_what_ended_after_it_is_undone_and_it(
    stage: Stage, colour: Colour
) -> None:
    start(stage, colour)
    stage.client().undo("run", "mail#2")
    with pytest.raises(RunFailed):
        go_on(stage, colour)
    view = stage.client().run("run")
    assert cancelled() == ["cancel hotel"]
    assert (view.undone, view.left) == (["book#3"], ["book#0", "mail#2"])

    stage.client().undo("run")  # the rest
    with pytest.raises(RunFailed):
        go_on(stage, colour)
    stage.client().undo("run", "book#3")  # nothing is left of that
    with pytest.raises(RunFailed):
        go_on(stage, colour)
    view = stage.client().run("run")
    assert cancelled() == ALL
    assert (view.undone, view.left) == (["book#3", "book#0"], ["mail#2"])


def test_a_step_that_there_is_not_is_refused_with_those_that_there_are(stage: Stage) -> None:
    start(stage, "plain")
    with pytest.raises(UsageError, match=r"no step 'book#7'; the nearest are: .*book#3"):
        stage.client().undo("run", "book#7")
    assert stage.client().run("run").status == "completed"


def test_a_second_undo_repeats_nothing(stage: Stage) -> None:
    start(stage, "plain")
    for _ in range(2):
        stage.client().undo("run")
        with pytest.raises(RunFailed, match="undone"):
            go_on(stage, "plain")
    assert cancelled() == ALL
    assert stage.client().run("run").undone == ["book#3", "book#0"]


@COLOURS
def test_a_compensation_that_fails_holds_the_run_until_it_is_resumed(
    stage: Stage, colour: Colour
) -> None:
    TROUBLE["hotel"] = [outlast.Terminal("closed")]
    start(stage, colour)
    stage.client().undo("run")
    with pytest.raises(RunHeld) as held:
        go_on(stage, colour)
    assert held.value.reason == "undo-failed"
    with pytest.raises(RunHeld):  # a plain new start does not lift it
        start(stage, colour)
    with pytest.raises(RunFailed):
        go_on(stage, colour)
    assert cancelled() == ALL


@COLOURS
def test_a_doubt_of_a_killed_run_is_resolved_before_it_is_undone(
    stage: Stage, colour: Colour
) -> None:
    flow = FLOWS["paying", colour]
    with pytest.raises(RunHeld):
        outlast.run(flow, run_id="run", store=stage.url)
    stage.client().kill("run")
    stage.client().undo("run")
    with pytest.raises(RunHeld) as held:
        stage.resume(flow)
    assert held.value.reason == "in-doubt"
    trip.ANSWERS.append(Done(trip.Receipt("hotel", 7)))
    with pytest.raises(RunKilled):
        stage.resume(flow)
    assert happened == ["book flight", "pay hotel", "repay hotel 7", "cancel flight"]


@pytest.mark.parametrize("during", ["hotel", "flight"])
@COLOURS
def test_a_pause_stops_the_undoing_behind_the_step_under_way(
    stage: Stage, colour: Colour, during: str
) -> None:
    start(stage, colour)
    stage.client().undo("run")

    class Pausing(list[BaseException]):
        def __bool__(self) -> bool:  # asked when it is cancelled
            stage.client().pause("run")
            return False

    TROUBLE[during] = Pausing()
    with pytest.raises(RunHeld) as held:
        go_on(stage, colour)
    assert held.value.reason == "paused"
    assert cancelled() == (ALL if during == "flight" else ["cancel hotel"])
    TROUBLE.clear()
    with pytest.raises(RunFailed):
        go_on(stage, colour)
    assert cancelled() == ALL


@COLOURS
def test_a_replay_of_a_run_that_was_undone_judges_its_code_alone(
    stage: Stage, colour: Colour
) -> None:
    start(stage, colour)
    stage.client().undo("run")
    assert replay("run", FLOWS["trip", colour], store=stage.url).recorded == 4
    with pytest.raises(RunFailed):
        go_on(stage, colour)
    assert replay("run", FLOWS["trip", colour], store=stage.url).recorded == 4


def test_steps_of_all_turns_are_undone_by_request(stage: Stage) -> None:
    for colour in ("plain", "async"):
        trip.reset()
        flow = FLOWS["looping", colour]  # type: ignore[index]
        TROUBLE["night 2"] = [outlast.Terminal("closed")]
        with pytest.raises(RunHeld):
            outlast.run(flow, 3, run_id=colour, store=stage.url)
        stage.client().kill(colour)
        stage.client().undo(colour)
        with pytest.raises(RunKilled):
            stage.resume(flow, colour)
        assert cancelled() == [f"cancel night {n}" for n in (2, 1, 0)]


def test_an_undone_run_is_not_revived_and_no_copy_goes_on_as_if_it_stood(stage: Stage) -> None:
    with pytest.raises(RunWaiting):
        start(stage, "plain", "waits", wait=False)
    stage.client().kill("run")
    stage.client().undo("run")
    with pytest.raises(RunKilled):
        go_on(stage, "plain")

    with pytest.raises(UsageError, match="was undone"):
        stage.client().revive("run")
    with pytest.raises(UsageError, match="step book#0 of run run was undone"):
        stage.client().fork("run", "@end", new_id="copy")
    with pytest.raises(UsageError, match="was undone"):
        stage.client().fork("run", "book#3", new_id="copy")
    stage.client().fork("run", "book#0", new_id="copy", repeat_effects=True)
    assert stage.client().run("copy").steps == []


def test_a_run_in_the_middle_of_its_undoing_drops_nothing_for_other_code(stage: Stage) -> None:
    TROUBLE["flight"] = [outlast.Terminal("closed")]
    with pytest.raises(RunHeld):
        outlast.run(FLOWS["failing", "plain"], run_id="run", store=stage.url)
    with pytest.raises(UsageError, match="is being undone"):
        stage.client().accept_from("run", "mail#2")


def test_what_a_body_that_was_killed_tells_late_is_undone_too(stage: Stage) -> None:
    begun, killed = threading.Event(), threading.Event()

    def killing() -> None:
        begun.wait()
        stage.client().kill("run")
        killed.set()

    LATE.update(begun=begun, killed=killed)
    thread = threading.Thread(target=killing)
    thread.start()
    with pytest.raises(RunKilled):
        outlast.run(late, run_id="run", store=stage.url)
    thread.join()
    stage.client().undo("run")
    with pytest.raises(RunKilled):
        stage.resume(late)
    assert happened == ["slow 1", "undo 1"]
    assert stage.client().run("run").undone == ["slow#0"]


LATE: dict[str, threading.Event] = {}


@step(effect="idempotent")
def slow(n: int) -> int:
    LATE["begun"].set()
    for _ in range(600):
        try:
            LATE["killed"].wait(10)
            break
        except BaseException:  # what a kill throws into it
            continue
    happened.append(f"slow {n}")
    return n


@slow.undo
def _(result: int) -> None:
    happened.append(f"undo {result}")


@workflow
def late() -> None:
    slow(1)


def test_code_that_lost_its_undo_holds_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(stage, "plain")
    stage.client().undo("run")
    with monkeypatch.context() as patch:
        patch.delattr(trip, "book")
        with pytest.raises(RunHeld) as held:
            go_on(stage, "plain")
    assert held.value.reason == "diverged"
    assert "there is none at tests.undo.trip:book" in str(held.value)
    with pytest.raises(RunFailed):
        go_on(stage, "plain")
    assert cancelled() == ALL


def test_a_step_under_another_name_in_the_workflows_module_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(stage, "plain")
    stage.client().undo("run")
    monkeypatch.setattr(trip, "reserve", trip.book, raising=False)
    monkeypatch.delattr(trip, "book")
    with pytest.raises(RunFailed):
        go_on(stage, "plain")
    assert cancelled() == ALL


def test_a_step_that_only_its_own_process_could_find_is_left(stage: Stage) -> None:
    @step(effect="idempotent")
    def act() -> None:
        pass

    @act.undo
    def _() -> None:
        raise AssertionError

    @workflow
    def flow() -> None:
        act()

    outlast.run(flow, run_id="run", store=stage.url)
    stage.client().undo("run")
    with pytest.raises(RunFailed, match="undone"):
        stage.resume(flow)
    assert stage.client().run("run").left == ["act#0"]
