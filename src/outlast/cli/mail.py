"""Questions and signals as lines of text."""

import json
from collections.abc import Iterator

from rich.text import Text

from outlast.cli.output import printable, short
from outlast.cli.wording import Caller, clock, duration
from outlast.mail import QuestionView, SignalView
from outlast.records import RunView

VALUE = 200
"""Most characters of a value that is shown."""


def question_lines(view: QuestionView, caller: Caller, now: float) -> Iterator[Text]:
    """A question: what is asked, by whom, until when, and the commands that answer it."""
    yield Text.assemble((printable(view.question), "bold"), "  ", printable(view.prompt))
    step = view.key.rpartition("#")[0]
    worded = view.what == "approval" and not view.prompt.startswith(f"{step}(")
    if view.details and not worded and view.prompt != f"{step}({view.details})":
        yield Text(f"  {printable(view.details)}")
    # Where the code has words for a call, its arguments only say which one is meant.
    call = f" with {short(view.details, VALUE)}" if worded and view.details else ""
    until = "" if view.due_at is None else f", until {clock(view.due_at)}"
    ago = duration(now - view.asked_at)
    yield Text(printable(f"  {place_of(view)}{call}, {ago} ago{until}"), style="dim")
    for words in _answers(view):
        yield Text("  " + caller.command("answer", view.question, *words), style="bold")


def place_of(view: QuestionView) -> str:
    """Where a question is asked."""
    what = "approval of" if view.what == "approval" else "asked at"
    return f"run {view.run_id} ({view.workflow}), {what} {view.key}"


def _answers(view: QuestionView) -> list[tuple[str, ...]]:
    fields = json.dumps(view.schema)
    if view.schema == {"type": "boolean"} or '"approved"' in fields:
        return [("--yes",), ("--no",)]
    return [("JSON",)]


def mail_lines(view: RunView, caller: Caller, now: float) -> Iterator[Text]:
    """What a run asks, and the signals that it has not taken."""
    for question in view.questions:
        yield Text()
        yield from question_lines(question, caller, now)
    if view.signals:
        yield Text()
    for signal in view.signals:
        yield _signal_line(signal)


def _signal_line(signal: SignalView) -> Text:
    value = short(json.dumps(signal.value, ensure_ascii=False), VALUE)
    by = f" by {signal.by}" if signal.by else ""
    state = f"set aside, since it did not fit: {signal.note}" if signal.note else "not taken yet"
    said = f"signal {signal.name} {value}, sent {clock(signal.sent_at)}{by}: {state}"
    return Text(printable(said), style="yellow" if signal.note else "")
