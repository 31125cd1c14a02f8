"""What the command line shows, from records made by hand."""

import io
import os
import shlex
from pathlib import Path

import pytest
from rich.text import Text

import outlast
from outlast.api.client import Verdict
from outlast.cli.output import Terminal, columns, printable, short
from outlast.cli.render import (
    BAR,
    bar,
    journal_lines,
    pretty,
    run_details,
    run_list,
    timeline,
    verdict_lines,
)
from outlast.cli.tracebacks import last_user_frame
from outlast.cli.wording import COLOURS, Caller, advice, duration
from outlast.events import RunAccepted
from outlast.records import FINAL, HoldReason, Status
from tests.cli.made import DOUBT, STARTED, event, plain, run, step

NOW = STARTED + 60
LONG = "a-run-id-as-long-as-a-path-" * 8


def shown(view, store=None):
    return plain(run_details(view, Caller(store), NOW))


def words_of(lines):
    """The lines that are commands, split as a shell would."""
    return [shlex.split(line) for line in lines if line.startswith("  outlast")]


def test_a_run_in_doubt_shows_what_was_sent_its_key_and_what_reconcile_said():
    text = "\n".join(shown(DOUBT))
    for fact in (
        "to='ann@example.org'",
        "5f1c-key",
        "its process ended while it ran",
        "unknown: the mail server did not answer",
    ):
        assert fact in text


def test_the_settle_commands_of_a_run_in_doubt_can_be_pasted():
    commands = words_of(shown(DOUBT))
    settle = ["outlast", "settle", "ticket-81", "send_reply#3"]
    assert [*settle, "--done", '"TEXT"'] in commands
    assert [*settle, "--not-done"] in commands
    assert [*settle, "--failed", "TEXT"] in commands
    assert commands[-1] == ["outlast", "resume", "ticket-81"]


def test_suggested_commands_reach_the_store_that_was_asked_for():
    view = run(status="running", interrupted=True)
    (command,) = words_of(shown(view, store="sqlite:///my runs.db"))
    assert command == ["outlast", "--store", "sqlite:///my runs.db", "resume", "ticket-81"]


@pytest.mark.parametrize(
    "view",
    [
        run(status="queued"),
        run(status="running", interrupted=True),
        run(status="waiting", due_at=NOW + 60),
        run(status="waiting", due_at=NOW - 60),
        *(run(status="held", reason=reason) for reason in HoldReason.__args__),
    ],
    ids=lambda view: f"{view.status}-{view.reason}-{view.due_at}",
)
def test_every_run_that_can_go_on_says_how(view):
    assert ["outlast", "resume", "ticket-81"] in words_of(advice(view, Caller(), NOW))


def test_a_run_that_somebody_executes_suggests_to_wait_for_it():
    for status in ("running", "waiting"):
        view = run(status=status, due_at=NOW + 9, owner="process 11827 on vm")
        lines = advice(view, Caller(), NOW)
        assert words_of(lines) == [["outlast", "resume", "ticket-81", "--wait"]]
        assert "process 11827 on vm goes on with it" in "\n".join(lines)
        assert "executed by process 11827 on vm" in shown(view)[1]


def test_a_completed_run_shows_its_result_and_asks_for_nothing():
    view = run(result={"answer": "Grüße", "refunds": [1, 2]})
    assert advice(view, Caller(), NOW) == []
    lines = shown(view)
    assert lines[lines.index("result") + 1 :] == [*plain(pretty(view.result))]
    assert '  "answer": "Grüße",' in lines


@pytest.mark.parametrize(
    ("steps", "at"),
    [([], "@end"), ([step("a#0"), step("b#1", status="failed")], "b#1")],
    ids=["in the workflow", "in a step"],
)
def test_a_failed_run_shows_its_error_and_how_to_go_on_with_a_copy(steps, at):
    lines = shown(run(status="failed", error="ValueError: no such order", steps=steps))
    assert "ValueError: no such order" in lines
    assert words_of(lines) == [["outlast", "fork", "ticket-81", "--from", at]]


def test_a_run_that_does_not_fit_its_code_shows_both_ways_out():
    lines = shown(run(status="held", reason="diverged", detail="no fit", held_at="think#1"))
    assert words_of(lines) == [
        ["outlast", "resume", "ticket-81"],
        ["outlast", "resume", "ticket-81", "--accept-from", "think#1"],
        ["outlast", "fork", "ticket-81", "--from", "think#1"],
        ["outlast", "replay"],
    ]


@pytest.mark.parametrize("held_at", ["think#0", "mail#1", "turns#3"])
def test_code_that_cannot_be_let_count_is_not_recommended(held_at):
    steps = [
        step("think#0"),
        step("mail#1", effect="once"),
        step("mail#3.t0.1", effect="once", status="in-doubt"),
    ]
    lines = shown(
        run(status="held", reason="diverged", detail="no fit", held_at=held_at, steps=steps)
    )
    assert ["outlast", "fork", "ticket-81", "--from", held_at] in words_of(lines)
    assert "--accept-from" not in "\n".join(lines)
    kept = "mail#3.t0.1" if held_at == "turns#3" else "mail#1"
    assert f"{kept} is a `once` step that has happened or may have" in "\n".join(lines)


@pytest.mark.parametrize(
    "mail",
    [
        step("mail#1", effect="once", status="failed", fault="terminal"),
        step("mail#1", effect="once", status="interrupted"),
    ],
    ids=["it failed for certain", "it was settled as not done"],
)
def test_code_can_be_let_count_if_a_once_step_did_not_happen(mail):
    view = run(status="held", reason="diverged", held_at="think#0", steps=[step("think#0"), mail])
    assert ["outlast", "resume", "ticket-81", "--accept-from", "think#0"] in words_of(shown(view))


def test_a_run_that_an_operator_let_fail_says_that_a_copy_may_pay_twice():
    pay = step("pay#1", effect="once", status="failed", reconciled="settled failed by ann")
    lines = shown(run(status="failed", error="settled: gave up", steps=[step("think#0"), pay]))
    assert words_of(lines) == [
        ["outlast", "fork", "ticket-81", "--from", "pay#1", "--repeat-effects"]
    ]
    assert "may be paid twice" in "\n".join(lines)


def test_something_that_cannot_be_read_is_not_always_a_class():
    lines = shown(run(status="held", reason="unreadable", detail="event 4 was altered"))
    assert "Something stored cannot be read. Deal with what is said above, then:" in lines


def test_a_fork_says_what_it_was_forked_from():
    text = "\n".join(shown(run(forked_from="ticket-80", forked_at="think#1")))
    assert "forked from ticket-80 at think#1" in text


def test_a_decision_about_the_journal_is_shown_in_words():
    accepted = RunAccepted("think#1", 7, "ann").encode()
    text = "\n".join(plain(journal_lines([event(9, "run.accepted", data=accepted)])))
    assert "accepted by ann: calls from think#1 on (since event 7) count no longer" in text
    (damaged,) = plain(journal_lines([event(9, "run.accepted", data=b"{")]))[1:]
    assert damaged.endswith("{")


TRACEBACK = """Traceback (most recent call last):
  File "/home/ann/desk.py", line 7, in desk
    return look()
  File "{outlast}/engine/flow.py", line 90, in run_step
    raise error
ValueError: no such order
"""


def test_a_failed_run_shows_its_traceback_and_its_error_once():
    error = "ValueError: no such order"
    view = run(status="failed", error=error, detail="no such order", traceback=TRACEBACK)
    lines = shown(view)
    assert '  File "/home/ann/desk.py", line 7, in desk' in lines
    assert "\n".join(lines).count("no such order") == 1


def test_the_place_of_an_error_is_the_last_one_in_the_users_own_code():
    ours = Path(outlast.__file__).parent
    assert last_user_frame(TRACEBACK.format(outlast=ours)) == "/home/ann/desk.py:7"
    assert last_user_frame(f'  File "{os.__file__}", line 3, in x') is None


@pytest.mark.parametrize(
    ("status", "said", "shown_as"),
    [
        ("completed", "settled done by ann", "completed (settled)"),
        ("failed", "settled failed", "failed (settled)"),
        ("completed", "done", "completed (reconciled)"),
        ("completed", "done: the result came late", "completed (reconciled)"),
        ("completed", "not-done", "completed (reconciled not-done)"),
        ("in-doubt", "settled done", "in-doubt"),
    ],
)
def test_a_step_that_was_decided_about_says_by_whom(status, said, shown_as):
    (_, line) = plain(timeline(run(steps=[step("a#0", status=status, reconciled=said)]), NOW))
    assert line.endswith(f"  {shown_as}")


def test_the_time_of_an_attempt_that_died_is_not_made_up():
    steps = [step("a#0", unmeasured=1), step("b#1", unmeasured=1, worked=0.0)]
    (_, some, none) = plain(timeline(run(steps=steps), NOW))
    assert "≥ 1.00 s" in some
    assert "?" in none.split()


def test_a_long_error_fits_the_terminal_and_follows_in_full():
    error = "Timeout: " + "slow " * 80 + "end"
    view = run(steps=[step("a#0", status="failed", error=error)])
    table, rest = plain(timeline(view, NOW, 100))[:2], plain(timeline(view, NOW, 100))[2:]
    assert max(map(len, table)) == 100
    assert table[1].endswith("…")
    assert rest == ["", f"a#0  failed: {error}"]
    assert plain(timeline(run(steps=[step("a#0")]), NOW, 100))[2:] == []


def test_a_run_released_by_ctrl_c_says_so():
    (_, line) = plain(run_list([run(status="queued", reason="released: SIGINT")], NOW))
    assert "queued (released: Ctrl-C)" in line


def test_both_sides_of_a_divergence_are_shown_line_by_line():
    detail = "recorded: think#0(chat=1)\ncalled:   search#0(query=2)"
    lines = shown(run(status="held", reason="diverged", detail=detail))
    assert set(detail.split("\n")) <= set(lines)


def test_the_timeline_has_a_line_for_each_step_with_attempts_effect_and_error():
    steps = [
        step("think#0"),
        step("search#1", status="failed", attempts=5, error="Timeout: slow"),
        step("pay#2", status="interrupted", effect="idempotent"),
    ]
    heading, *lines = plain(timeline(run(steps=steps), NOW))
    assert len(lines) == 3
    assert lines[1].split()[0] == "search#1"
    assert "5" in lines[1].split()
    assert lines[1].endswith("failed: Timeout: slow")
    assert "idempotent" in lines[2]
    assert lines[2].endswith("interrupted")
    assert heading.split()[0] == "STEP"


@pytest.mark.parametrize(
    ("effect", "repeated", "marked"),
    [("assumed", True, True), ("assumed", False, False), ("idempotent", True, False)],
)
def test_only_a_repeated_undeclared_step_may_have_happened_twice(effect, repeated, marked):
    view = run(steps=[step("pay#0", effect=effect, repeated=repeated)])
    assert ("may have happened twice" in "\n".join(shown(view))) == marked


def test_a_bar_lies_where_its_step_lies_in_the_run():
    assert bar(0, 1) == "█" * BAR
    half = BAR // 2
    assert bar(0, 0.5) == "█" * half + "·" * half
    assert bar(0.5, 1) == "·" * half + "█" * half


@pytest.mark.parametrize(("start", "end"), [(0, 0), (1, 1), (0.4, 0.4), (-3, -2), (2, 3)])
def test_a_bar_is_always_visible_and_never_longer_than_its_column(start, end):
    drawn = bar(start, end)
    assert len(drawn) == BAR
    assert "█" in drawn


def test_a_running_step_reaches_to_now():
    steps = [step("think#0", status="running", started=STARTED + 30, ended=None, worked=30)]
    (line,) = plain(timeline(run(status="running", steps=steps), NOW))[1:]
    assert "30.00 s" in line


def test_a_list_has_one_line_for_each_run_in_aligned_columns():
    heading, *lines = plain(
        run_list([run(), run(run_id="t", status="running", interrupted=True, turn=4)], NOW)
    )
    place = heading.index("STATUS")
    assert lines[0][place:].startswith("completed")
    assert lines[1][place:].startswith("running, interrupted")
    assert lines[1].endswith("t4")


def test_the_steps_that_are_not_completed_can_be_told_in_a_list():
    (_, line) = plain(run_list([DOUBT], NOW))
    assert "held (in-doubt)" in line
    assert "1/2" in line


def test_a_list_without_steps_shows_how_many_are_done():
    (_, line) = plain(run_list([run(finished=14)], NOW))
    assert line.split()[-2] == "14"


@pytest.mark.parametrize("width", [20, 80])
def test_a_long_id_is_neither_cut_nor_wrapped_on_any_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    file = io.StringIO()
    Terminal(file).lines(run_list([run(run_id=LONG)], NOW))
    assert LONG in file.getvalue().split("\n")[1]


def test_what_is_not_a_terminal_gets_no_colours_and_no_trailing_blanks():
    file = io.StringIO()
    Terminal(file).lines(run_details(DOUBT, Caller(), NOW))
    assert "\x1b" not in file.getvalue()
    assert all(line == line.rstrip() for line in file.getvalue().split("\n"))


class _Tty(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_NO_COLOR_is_set(no_color, coloured, monkeypatch):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    file = _Tty()
    Terminal(file).lines([Text("held", style="bold yellow")])
    assert ("\x1b" in file.getvalue()) == coloured


def test_every_status_of_a_run_has_a_colour():
    assert set(Status.__args__) <= COLOURS.keys()
    assert COLOURS.keys() >= FINAL


HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\nsecond"


def test_a_hostile_text_cannot_drive_the_operators_terminal():
    views = [
        run(status="failed", error=HOSTILE, detail=HOSTILE, tags={"a": HOSTILE}),
        run(result=HOSTILE, steps=[step("x#0", error=HOSTILE, preview=HOSTILE)]),
        run(run_id=HOSTILE, workflow=HOSTILE, status="held", reason="in-doubt"),
        run(steps=[step("x#0", status="in-doubt", preview=HOSTILE, reconciled=HOSTILE)]),
    ]
    for view in views:
        for line in [*shown(view), *plain(run_list([view], NOW))]:
            assert line.isprintable(), line
    (_, line) = plain(journal_lines([event(1, "run.created", HOSTILE, HOSTILE.encode())]))
    assert line.isprintable()


def test_rich_markup_in_a_text_stays_text():
    file = io.StringIO()
    Terminal(file).lines([Text("[red]x[/red] :smile: [/]")])
    assert file.getvalue() == "[red]x[/red] :smile: [/]\n"


def test_the_journal_has_one_line_for_each_event():
    events = [event(1, "run.created"), event(2, "step.started", "think#0", b'{"name":"think"}')]
    heading, *lines = plain(journal_lines(events))
    assert heading.split() == ["SEQ", "TIME", "HASH", "KIND", "STEP", "DATA"]
    assert lines[1].split()[0] == "2"
    for part in ("step.started", "think#0", '{"name":"think"}', "0202020202"):
        assert part in lines[1]


def test_an_event_of_a_megabyte_is_shown_short():
    (_, line) = plain(journal_lines([event(1, "step.completed", "x#0", b"x" * 1_000_000)]))
    assert len(line) < 300
    assert line.endswith("…")
    (_, line) = plain(journal_lines([event(1, "a.b", "x#0", b"x" * 1_000)], cut=False))
    assert "x" * 1_000 in line


def test_verify_names_the_altered_record_and_gives_the_whole_head_of_an_intact_journal():
    fine = Verdict("ticket-81", True, 9, "cd" * 32, None, None)
    bad = Verdict("ticket-82", False, 9, "cd" * 32, "its hash does not fit", 7)
    first, second = plain(verdict_lines([fine, bad]))
    assert "intact" in first
    assert "cd" * 32 in first
    assert "ALTERED at record 7" in second
    assert "its hash does not fit" in second


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-0.5, "0 ms"),
        (0.0004, "0 ms"),
        (0.34, "340 ms"),
        (1.239, "1.24 s"),
        (61, "1 min 01 s"),
        (3 * 3600 + 5 * 60, "3 h 05 min"),
        (3 * 86400, "3 d"),
    ],
)
def test_durations_in_words(seconds, text):
    assert duration(seconds) == text


def test_columns_count_wide_characters_as_the_terminal_does():
    rows = [[Text("漢字"), Text("x")], [Text("abcd"), Text("y")]]
    assert plain(columns(rows)) == ["漢字  x", "abcd  y"]


def test_printable_keeps_letters_of_all_languages_and_shows_controls():
    assert printable("Grüße 漢字 ✓") == "Grüße 漢字 ✓"
    assert printable("a\tb\x1b") == "a\\tb\\x1b"


def test_short_never_exceeds_its_width():
    assert short("abc", 3) == "abc"
    assert short("abcd", 3) == "ab…"
    assert len(short("\x1b" * 50, 10)) == 10
