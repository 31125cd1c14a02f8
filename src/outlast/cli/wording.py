"""Times, statuses and advice in words."""

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.text import Text

from outlast.amounts import in_words
from outlast.cli.output import printable
from outlast.records import KillView, RunView, StepView, StopView, Usage
from outlast.worker.stores import reaching, url_or_default

COLOURS = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "blue",
    "held": "yellow",
    "completed": "green",
    "failed": "red",
    "killed": "magenta",
    "in-doubt": "yellow",
    "interrupted": "yellow",
    "abandoned": "dim",
}
"""The colour of each status of a run or of a step."""


@dataclass(frozen=True, slots=True)
class Caller:
    """How the user called us, so that the commands we suggest reach the same store.

    Attributes:
        store: value of `--store` as a URL; None if the default applies.
    """

    store: str | None = None

    @property
    def url(self) -> str:
        """The store that this command works on."""
        return url_or_default(self.store)

    def command(self, *words: str) -> str:
        """A command line to paste into a shell."""
        chosen = () if self.store is None else ("--store", self.store)
        return printable(shlex.join(("outlast", *chosen, *words)))

    def ready(self, text: str) -> str:
        """A text of the library, which knows no `--store`, with commands that reach the store."""
        return reaching(text, self.store)


def duration(seconds: float) -> str:
    """A length of time in a few characters, such as `340 ms`, `1.24 s` or `3 h 05 min`."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d"


def took(step: StepView) -> str:
    """How long a step's attempts took. How long one lasted whose process died is not known."""
    if not step.unmeasured:
        return duration(step.worked)
    return f"≥ {duration(step.worked)}" if step.worked else "?"


def tries(step: StepView) -> str:
    """How often a step was tried, and how often its breaker did not let it."""
    return str(step.attempts) + (f"+{step.refusals} refused" if step.refusals else "")


def cost(spent: Usage | None) -> str:
    """What something has cost; `-` if nothing was charged for it."""
    if spent is None:
        return "-"
    parts = ["USD unknown" if spent.usd is None else f"{in_words(spent.usd)} USD"]
    if spent.tokens != 0:
        parts.append("tokens unknown" if spent.tokens is None else f"{spent.tokens} tokens")
    return ", ".join(parts)


def clock(at: float) -> str:
    """A moment in local time, to the millisecond."""
    try:
        local = datetime.fromtimestamp(at, tz=UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # in an altered store may stand any number
        return f"{at:g} s after 1970"
    return local.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def status_text(view: RunView) -> Text:
    """The status of a run with its reason, such as `held (in-doubt)` or `running, interrupted`;
    in a list also whether it is damaged."""
    text = Text(view.status, style=COLOURS[view.status])
    if view.reason:
        text.append(f" ({printable(_REASONS.get(view.reason, view.reason))})")
    if view.interrupted:
        text.append(", interrupted", style=COLOURS["interrupted"])
    if view.reason == "paused" and view.owner is not None:
        text.append(", a step still runs", style="yellow")
    if view.kill is not None and not view.kill.stopped:
        text.append(", still in a process", style="yellow")
    if view.damaged is not None:
        text.append(", damaged", style="red")
    return text


_REASONS = dict.fromkeys(("released: SIGINT", "released: KeyboardInterrupt"), "released: Ctrl-C")


def advice(view: RunView, caller: Caller, now: float) -> list[str]:
    """What to do next about a run, one line each; commands stand indented, ready to paste.

    Empty for a run that is completed.
    """
    resume = "  " + caller.command("resume", view.run_id)
    match view.status:
        case "completed":
            return []
        case "failed" | "killed":
            return _advice_for_ended(view, caller)
        case "held":
            more = [*_or_accept(view, caller), *_or_declare(view)]
            return [*_advice_for_held(view, caller), resume, *more]
        case _ if view.interrupted:
            return ["Whoever executed it is gone; nothing is lost. To go on:", resume]
        case _ if view.owner is not None:
            wait = "  " + caller.command("resume", view.run_id, "--wait")
            owner = f"{printable(view.owner)} goes on with it"
            return [*waits_for(view, now), f"{owner}. To wait for its end:", wait]
        case _:
            begin = waits_for(view, now)
            then = "From then on:" if begin else "It waits for a process to execute it:"
            return [*begin, then, resume]


def _advice_for_ended(view: RunView, caller: Caller) -> list[str]:
    if view.undone is not None:
        still = [] if view.kill is None else stopping(view.kill, view.run_id, caller)
        again = "It was undone, so nothing goes on from here. To try again, run it under another"
        return [*still, f"{again} --id."]
    if view.kill is not None:
        return [
            *stopping(view.kill, view.run_id, caller),
            "It was killed and does not come back by itself. To take that back and go on with it:",
            "  " + caller.command("resume", view.run_id, "--revive"),
            "To go on with a copy of what it has done:",
            "  " + caller.command("fork", view.run_id, "--from", "@end"),
        ]
    again = "It has failed for good. To try again, run it under another --id. "
    last = view.steps[-1] if view.steps else None
    if last is None or last.status != "failed":
        fork = caller.command("fork", view.run_id, "--from", "@end")
    elif last.effect == "once" and last.may_have_happened:
        fork = caller.command("fork", view.run_id, "--from", last.key, "--repeat-effects")
        return [
            f"{again}{printable(last.key)} may have happened (a payment that it made was made). "
            "A copy that goes on with it makes it again, under another idempotency key, so that "
            "it may be paid twice:",
            f"  {fork}",
        ]
    else:
        fork = caller.command("fork", view.run_id, "--from", last.key)
    return [f"{again}To go on with a copy of what it has done:", f"  {fork}"]


def waits_for(view: RunView, now: float) -> list[str]:
    """What a run waits for, and until when; nothing if it can go on."""
    if view.status == "waiting" and view.due_at is None:
        what = printable(view.detail or "waits for something from outside")
        return [f"It {what}" if what.endswith("?") else f"It {what}."]
    if view.status != "waiting" or view.due_at is None or view.due_at <= now:
        return []
    until = f"until {clock(view.due_at)} (in {duration(view.due_at - now)})"
    next_ = min((step for step in view.steps if retries(step)), key=_retry_at, default=None)
    if next_ is None or _retry_at(next_) > view.due_at:
        return [f"It {printable(view.detail)}, {until}." if view.detail else f"It sleeps {until}."]
    return [f"It waits {until}: {retry(next_)}."]


def retries(step: StepView) -> bool:
    """Whether a step waits for its next attempt."""
    return step.retry_at is not None


def _retry_at(step: StepView) -> float:
    assert step.retry_at is not None
    return step.retry_at


def retry(step: StepView) -> str:
    """What a step that waits for its next attempt waits for."""
    if step.breaker:
        return f"breaker {printable(step.breaker)} does not let {printable(step.key)} be called"
    return f"{printable(step.key)} is tried again then"


def stop_words(stop: StopView, caller: Caller) -> Text:
    """The emergency stop of a store, in a line that nobody overlooks."""
    who = f" by {stop.by}" if stop.by else ""
    why = f": {stop.why}" if stop.why else ""
    said = (
        f"EMERGENCY STOP since {clock(stop.since)}{who}{why}. No step begins and no run is taken "
        f"up until: {caller.command('allow')}"
    )
    return Text(printable(said), style="bold red")


def kill_words(kill: KillView) -> str:
    """By whom a run was killed, when and why."""
    who = f" by {kill.by}" if kill.by else ""
    above = f", together with {kill.parent}" if kill.parent else ""
    why = f": {kill.why}" if kill.why else ""
    return printable(f"killed{who} at {clock(kill.at)}{above}{why}")


def stopping(kill: KillView, run_id: str, caller: Caller) -> list[str]:
    """What is still executed of a killed run, one line each; commands stand indented."""
    lines = []
    if kill.ended:
        lines.append(f"ended from outside: {printable(', '.join(kill.ended))}")
    if kill.survivors:
        lines.append(f"could not be ended: {printable(', '.join(kill.survivors))}")
    if kill.stopped and kill.seconds is not None:
        lines.append(f"nothing of it runs any more (after {duration(kill.seconds)})")
    if kill.owner is not None:
        lines += [
            f"{printable(kill.owner)} has not let go of it yet; nothing more can open or be "
            "recorded there. To end that process, with all that it executes:",
            "  " + caller.command("kill", run_id, "--hard"),
        ]
    return lines


def pausing(view: RunView, caller: Caller) -> list[str]:
    """What a pause has come to, one line each; commands stand indented."""
    resume = "  " + caller.command("resume", view.run_id)
    if view.reason != "paused":
        said = f"run {view.run_id} is {view.status} already ({view.reason}), and stays so"
        return [printable(said)]
    running = [step.key for step in view.steps if step.status == "running" and not retries(step)]
    what = f"run {view.run_id} is {view.detail or 'paused'}"
    if view.owner is not None and running:
        verb = "runs" if len(running) == 1 else "run"
        what = f"pausing: {', '.join(running)} still {verb} in {view.owner}; {what} then"
    return [printable(f"{what}. To go on:"), resume]


_HELD = {
    "paused": "Somebody paused it. To go on:",
    "over-budget": "Or set another budget in the code, then:",
    "looping": "To let it go on for as many calls again:",
    "diverged": "The code no longer fits what is recorded. Put the recorded code back, then:",
    "crash-loop": "Its process died again and again in one attempt. Find out why, then:",
    "stuck": "A step outlived its timeout and could not be stopped. End its process, then:",
    "unreadable": "Something stored cannot be read. Deal with what is said above, then:",
}


_ADD = re.compile(r"--(add|charge) (\w+)=")
"""How a hold names the limit that was reached."""


def _advice_for_held(view: RunView, caller: Caller) -> list[str]:
    doubts = [step for step in view.steps if step.status == "in-doubt"]
    if view.reason == "over-budget":
        named = _ADD.search(view.fix or "")
        option, limit = named.groups() if named else ("add", "usd")
        how = "To go on:" if option == "add" else "Say what the unknown costs came to:"
        raised = caller.command("resume", view.run_id, f"--{option}", f"{limit}=AMOUNT")
        other = _HELD[view.reason]
        if option == "charge":
            other = (
                "Or, in the code, give the step an estimate, cost=Cost(estimate=..., actual=...), "
                "or the budget an upper bound, Budget(on_unknown=...), then:"
            )
        return [
            f"Nothing that is finished is run or paid for again. {how}",
            f"  {raised}",
            other,
        ]
    if view.reason == "diverged" and "outlast breakers reset" in (view.fix or ""):
        return [printable(view.fix or ""), "Then:"]  # two steps with other settings for one breaker
    if view.reason == "looping":
        journal = caller.command("journal", view.run_id)
        return ["To see what the tool answered:", f"  {journal}", _HELD[view.reason]]
    if view.reason == "undo-failed" and view.held_at is not None:
        return _advice_for_failed_undo(view.held_at, view.run_id, caller)
    if view.reason != "in-doubt" or not doubts:
        return [_HELD.get(view.reason or "", "Deal with the cause, then:")]
    lines = ["Find out whether it happened, say so with one of these, and then resume:"]
    for step in doubts:
        for answer in (("--done", '"TEXT"'), ("--not-done",), ("--failed", "TEXT")):
            lines.append("  " + caller.command("settle", view.run_id, step.key, *answer))
    return lines


def _advice_for_failed_undo(step: str, run_id: str, caller: Caller) -> list[str]:
    return [
        "If you have undone it yourself, or it is to stay as it is, say so, and then resume:",
        "  " + caller.command("settle", run_id, step, "--done", "null"),
        "  " + caller.command("settle", run_id, step, "--failed", "TEXT"),
        "Otherwise deal with the cause. To let it be tried again:",
    ]


def _or_declare(view: RunView) -> list[str]:
    """How code says that what looks like a loop is meant."""
    if view.reason != "looping":
        return []
    return [
        "If the tool is meant to be asked again and again: @step(effect='read', poll=True); to "
        "allow more such calls: @workflow(max_repeats=...)."
    ]


def _or_accept(view: RunView, caller: Caller) -> list[str]:
    """How code that does not fit the record can be let count."""
    if view.reason != "diverged" or view.held_at is None:
        return []
    if "outlast breakers reset" in (view.fix or ""):
        return []
    kept = next((step for step in _from(view, view.held_at) if _is_kept(step)), None)
    drop = [
        "Or drop what is recorded from that step on, and go on with the code at hand:",
        "  " + caller.command("resume", view.run_id, "--accept-from", view.held_at),
        "Or do so in a copy:",
        "  " + caller.command("fork", view.run_id, "--from", view.held_at),
    ]
    if kept is not None:
        drop = [
            f"It cannot be let count from {printable(view.held_at)} on: {printable(kept.key)} is a "
            "`once` step that has happened or may have, and that is never dropped. A copy would "
            "make it again, and asks first:",
            "  " + caller.command("fork", view.run_id, "--from", view.held_at),
        ]
    return [
        *drop,
        "To see every run that does not fit this code:",
        "  " + caller.command("replay"),
        "To let old runs keep the old way: outlast.patched(...) in the workflow.",
    ]


def _from(view: RunView, key: str) -> list[StepView]:
    """The steps from a call on; as far as the steps tell, if it is none itself."""
    inside = f"{key.rpartition('#')[2]}.t"  # of a turn loop
    keys = [step.key for step in view.steps]
    if key in keys:
        return view.steps[keys.index(key) :]
    return [step for step in view.steps if step.key.rpartition("#")[2].startswith(inside)]


def _is_kept(step: StepView) -> bool:
    return step.effect == "once" and step.may_have_happened
