"""Events that people look at one by one, in words; of the others, the journal shows the data."""

from msgspec import DecodeError, Raw, json
from msgspec.structs import asdict

from outlast import events
from outlast.cli.family_words import of_family
from outlast.cli.mail_words import of_mail
from outlast.cli.output import printable
from outlast.cli.wording import clock, cost
from outlast.events import decode
from outlast.records import StoredEvent


def in_words(event: StoredEvent) -> str:
    """What an event says, on one line; nothing if its data says it as well."""
    try:
        return printable(_say(decode(event.kind, event.data)))
    except (DecodeError, KeyError):
        # An altered store is shown as it is; `outlast verify` judges it.
        return ""


def _say(event: events.Event) -> str:
    match event:
        case events.RunAccepted():
            return (
                f"the code at hand accepted{_by(event.by)}: calls from {event.step} on (since "
                f"event {event.since}) count no longer"
            )
        case events.RunBudgeted():
            return _budgeted(event)
        case events.RunUndoing():
            return f"to be undone{_by(event.by)}" + (f", down to {event.to}" if event.to else "")
        case events.RunUndone():
            undone, left = ", ".join(event.undone), ", ".join(event.left)
            return f"undone: {undone or 'nothing'}" + (f"; left as it is: {left}" if left else "")
        case events.StepRefused():
            return _refused(event)
        case events.StepCharged():
            return _charged(event)
        case events.RunKilled():
            above = f", together with {event.parent}" if event.parent else ""
            return f"killed{_by(event.by)}{above}, {event.grace:g} s of grace{_why(event.why)}"
        case events.RunStopped():
            return _stopped(event)
        case events.RunRevived():
            above = f", together with {event.parent}" if event.parent else ""
            return f"the kill was taken back{_by(event.by)}{above}"
        case (
            events.WaitOpened()
            | events.WaitEnded()
            | events.WaitRefused()
            | events.SignalSent()
            | events.QuestionAnswered()
        ):
            return of_mail(event)
        case events.RunResumed():
            return f"to go on{_by(event.by or 'an operator')}"
        case _:
            return of_family(event) or _of_breaker(event)


def _of_breaker(event: events.Event) -> str:
    match event:
        case events.BreakerOpened():
            last = _call(event.step, event.run_id)
            fault = f": {event.fault}" if event.fault else ""
            return f"open until {clock(event.until)}, trip {event.trips}, after {last}{fault}"
        case events.BreakerProbed():
            who = _call(event.step, event.run_id)
            return f"let through as a probe: attempt {event.attempt} of {who}"
        case events.BreakerClosed():
            return f"closed by the success of {_call(event.step, event.run_id)}"
        case events.BreakerReset():
            return f"closed{_by(event.by or 'an operator')}, its settings forgotten"
        case events.BreakerTripped():
            return f"opened{_by(event.by or 'an operator')} until {clock(event.until)}"
        case events.StoreStopped():
            kill = ", with a kill of every run" if event.kill else ""
            return f"emergency stop{_by(event.by)}{kill}{_why(event.why)}"
        case events.StoreAllowed():
            return f"the emergency stop was ended{_by(event.by)}"
        case events.BreakerDeclared():
            return f"settings of step {event.step}: {_numbers(event.settings)}"
        case _:
            return ""


def _call(step: str, run_id: str) -> str:
    return f"{step} of run {run_id}"


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""


def _stopped(event: events.RunStopped) -> str:
    ended = f"; ended from outside: {', '.join(event.ended)}" if event.ended else ""
    if event.survivors:
        left = f"could not be ended: {', '.join(event.survivors)}"
        return f"{left}{ended} ({event.by}, after {event.seconds:g} s)"
    return f"nothing of it runs any more, after {event.seconds:g} s ({event.by}){ended}"


def _budgeted(event: events.RunBudgeted) -> str:
    parts = []
    if bytes(event.declared):
        parts.append(f"budget declared: {_numbers(event.declared)}")
    if bytes(event.added):
        parts.append(f"added: {_numbers(event.added)}")
    if event.charged is not None:
        given = {name: value for name, value in asdict(event.charged).items() if value is not None}
        parts.append(f"charged for what was unknown: {_pairs(given)}")
    return "; ".join(parts) + _by(event.by)


def _numbers(raw: Raw) -> str:
    return _pairs(json.decode(raw, type=dict[str, object]))


def _pairs(values: dict[str, object]) -> str:
    said = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
    return said.replace("usd=Infinity", "usd=unlimited") or "no limits"


def _refused(event: events.StepRefused) -> str:
    fault = f" ({event.fault})" if event.fault else ""
    if event.retry_at is None:
        then = "the workflow got BreakerOpen"
    else:
        then = f"to be called at {clock(event.retry_at)}"
    return f"breaker {event.breaker} is open until {clock(event.until)}{fault}: {then}"


def _charged(event: events.StepCharged) -> str:
    why = f" ({event.unknown})" if event.unknown else ""
    verb = "cost" if event.settled else "reports"
    return f"attempt {event.attempt} {verb} {cost(event.cost)}{why}"
