"""The story that is told while a run is under way."""

import pytest

from outlast.cli.progress import Story, look, now_doing
from tests.cli.made import DOUBT, plain, run, step

DONE = [step("think#0"), step("search#1")]


def told(before, *looks):
    story = Story(before)
    return [line for look in looks for line in plain(story.news(look))]


def test_a_new_run_tells_each_step_once_as_it_ends():
    lines = told(
        None,
        run(status="running", steps=[step("think#0", status="running", ended=None)]),
        run(status="running", steps=DONE[:1]),
        run(status="running", steps=DONE),
        run(status="completed", steps=DONE),
    )
    assert lines == ["think#0 completed after 1.00 s", "search#1 completed after 1.00 s"]


def test_a_resumed_run_tells_how_many_steps_replay_and_where_it_goes_on():
    lines = told(
        run(status="running", interrupted=True, steps=DONE),
        run(status="running", interrupted=True, steps=DONE),
        run(status="running", epoch=2, steps=DONE),
        run(
            status="running",
            epoch=2,
            steps=[*DONE, step("think#2", status="running", ended=None)],
        ),
    )
    assert lines == ["resuming ticket-81: 2 steps replayed, continuing at think#2"]


def test_it_goes_on_at_the_step_that_the_crash_interrupted():
    before = run(status="running", interrupted=True, steps=[*DONE, step("pay#2", status="running")])
    again = step("pay#2", attempts=2, ended=None, status="running")
    lines = told(before, run(status="running", epoch=2, steps=[*DONE, again]))
    assert lines == ["resuming ticket-81: 2 steps replayed, continuing at pay#2"]


def test_a_step_that_was_settled_meanwhile_is_told():
    doubt = step("mail#2", status="in-doubt", ended=None)
    lines = told(
        run(status="held", reason="in-doubt", steps=[*DONE, doubt]),
        run(status="running", epoch=2, steps=[*DONE, step("mail#2")]),
    )
    assert lines == [
        "resuming ticket-81: 2 steps replayed, continuing at mail#2",
        "mail#2 completed after 1.00 s",
    ]


def test_a_resume_without_further_steps_says_so_at_its_end():
    story = Story(run(status="running", interrupted=True, steps=DONE))
    assert plain(story.end(run(epoch=2, steps=DONE))) == [
        "resuming ticket-81: 2 steps replayed, no further step"
    ]


def test_a_run_that_a_live_process_keeps_is_not_called_resumed():
    before = run(status="running", steps=DONE)
    going_on = run(status="running", steps=[*DONE, step("think#2", status="running", ended=None)])
    assert told(before, going_on) == []
    assert plain(Story(before).end(going_on)) == []


def test_asking_again_for_a_completed_run_tells_nothing():
    before = run(steps=DONE)
    assert plain(Story(before).end(before)) == []


class _Client:
    def run(self, run_id):
        return run(run_id="ticket-81")


def test_a_new_id_is_not_taken_for_the_run_whose_id_it_begins():
    assert look(_Client(), "ticket-81") is not None
    assert look(_Client(), "ticket-8") is None


def test_a_failed_step_is_told_with_its_attempts_and_its_error():
    bad = step("search#0", status="failed", attempts=3, error="Timeout: slow\nand more")
    (line,) = told(None, run(status="running", steps=[bad]))
    assert line == "search#0 failed after 1.00 s, 3 tries: Timeout: slow\\nand more"


def test_the_moving_line_names_current_steps_and_counts():
    steps = [*DONE, step("think#2", status="running", attempts=2), step("b#3", status="running")]
    line = now_doing(run(status="running", steps=steps, turn=5))
    assert line == "ticket-81 · think#2 try 2, b#3 · 2 done · turn t5"


@pytest.mark.parametrize(
    ("after", "where"),
    [
        (
            {"status": "held", "reason": "in-doubt", "steps": [*DONE, DOUBT.steps[-1]]},
            "stopped at send_reply#3",
        ),
        ({"status": "held", "reason": "diverged", "steps": DONE}, "held before any further step"),
    ],
    ids=["in doubt", "diverged"],
)
def test_a_resume_that_comes_to_a_hold_says_where(after, where):
    story = Story(run(status="running", interrupted=True, steps=after["steps"]))
    (line,) = plain(story.end(run(epoch=2, **after)))
    assert line == f"resuming ticket-81: 2 steps replayed, {where}"
