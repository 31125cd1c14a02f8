"""What events say that tell of signals and questions."""

from outlast import codec, events
from outlast.cli.output import short
from outlast.cli.wording import clock

VALUE = 80
"""Most characters of a value that is shown."""


def of_mail(
    event: events.WaitOpened
    | events.WaitEnded
    | events.WaitRefused
    | events.SignalSent
    | events.QuestionAnswered,
) -> str:
    """What an event says, on one line."""
    match event:
        case events.WaitOpened(what, name):
            until = "" if event.due is None else f", until {clock(event.due)}"
            if what == "signal":
                return f"waits for signal {name}{until}"
            verb = "asks" if what == "question" else "asks for leave"
            is_said = event.prompt.endswith(f"({event.preview})")
            details = f" ({short(event.preview, VALUE)})" if event.preview and not is_said else ""
            return f"{verb}, question {name}: {event.prompt}{details}{until}"
        case events.SignalSent(name, value, by):
            return f"signal {name} sent{_by(by)}: {_value(bytes(value))}"
        case events.QuestionAnswered(question, value, by):
            return f"question {question} answered{_by(by)}: {_value(bytes(value))}"
        case events.WaitRefused(source, why):
            return f"event {source} does not fit and is set aside: {why}"
        case events.WaitEnded():
            return _ended(event)


def _ended(event: events.WaitEnded) -> str:
    said = f": {event.note}" if event.note else ""
    match event.how:
        case "timeout":
            return "nothing came in time"
        case "denied":
            return f"denied{_by(event.by)}{said}"
        case _:
            return f"got event {event.source}{_by(event.by)}{said}"


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _value(data: bytes) -> str:
    return short(str(codec.plain(data)), VALUE)
