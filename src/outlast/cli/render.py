"""Runs, timelines and journals as lines of text. Pure: records and the time in, lines out."""

import json
from collections.abc import Iterator, Sequence

from rich.text import Text

from outlast.api.client import BreakerView, Verdict
from outlast.cli.family_words import family_lines
from outlast.cli.journal_words import in_words
from outlast.cli.mail import mail_lines
from outlast.cli.output import columns, printable, short
from outlast.cli.tracebacks import without_error
from outlast.cli.wording import (
    COLOURS,
    Caller,
    advice,
    clock,
    cost,
    duration,
    kill_words,
    retries,
    status_text,
    stop_words,
    stopping,
    took,
    tries,
)
from outlast.journal import STORE
from outlast.records import FINAL, Killed, RunView, StepView, StoredEvent

BAR = 28
"""Width of the bar of a step in the timeline, in characters."""

GAP = 2
"""Blanks between two columns."""

OUTCOME, LEAST = 200, 20
"""Most and fewest characters of the column of statuses and errors."""

TWICE = "may have happened twice"


def run_list(views: Sequence[RunView], now: float) -> Iterator[Text]:
    """The lines of `outlast ls`: a heading and one line for each run."""
    rows = [_cells("RUN", "WORKFLOW", "STATUS", "AGE", "STEPS", "TURN", style="bold")]
    for view in views:
        rows.append(
            [
                Text(printable(view.run_id)),
                Text(printable(view.workflow)),
                status_text(view),
                Text(duration(now - view.created_at)),
                Text(_step_count(view)),
                Text("-" if view.turn is None else f"t{view.turn}"),
            ]
        )
    return columns(rows)


def run_details(
    view: RunView, caller: Caller, now: float, width: int | None = None
) -> Iterator[Text]:
    """The lines of `outlast show`: what it is, what to do next, its steps, how it ended.

    Args:
        width: of the terminal, which the table of the steps is to fit; None if it is none.
    """
    if view.stopped is not None:
        yield stop_words(view.stopped, caller)
    yield from _header(view, now)
    yield from _needs(view, caller, now)
    yield from mail_lines(view, caller, now)
    yield from family_lines(view)
    if view.steps:
        yield Text()
        yield from timeline(view, now, width)
    if view.status == "completed":
        yield Text()
        yield Text("result", style="bold")
        yield from pretty(view.result)


def pretty(value: object) -> Iterator[Text]:
    """A plain JSON value as lines; a text stands as itself."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    # Split by hand: str.splitlines also breaks at characters that terminals do not break at.
    for line in text.split("\n"):
        yield Text(printable(line))


def _header(view: RunView, now: float) -> Iterator[Text]:
    yield Text.assemble(
        (printable(view.run_id), "bold"), "  ", printable(view.workflow), "  ", status_text(view)
    )
    end = view.updated_at if view.status in FINAL else now
    facts = [
        f"created {clock(view.created_at)}",
        f"{'took' if view.status in FINAL else 'age'} {duration(end - view.created_at)}",
        f"{_step_count(view)} step{'' if len(view.steps) == 1 else 's'}",
    ]
    if view.turn is not None:
        facts.append(f"turn t{view.turn}")
    if view.owner is not None:
        facts.append(f"executed by {view.owner}")
    if view.forked_from is not None:
        facts.append(f"forked from {view.forked_from} at {view.forked_at}")
    if view.parent is not None:
        facts.append(f"child of {view.parent}")
    facts += [f"{key}={value}" for key, value in view.tags.items()]
    facts.append(f"trace {view.trace_id}")
    yield Text(printable(", ".join(facts)), style="dim")
    if view.kill is not None:
        yield Text(kill_words(view.kill), style=COLOURS[view.status])
    for line in view.budget:
        yield Text(f"budget: {printable(line)}", style="dim")
    if view.undone is not None:
        yield from undone_lines(view)
    if view.error:
        yield Text(printable(view.error), style="red")
        for line in without_error(view.traceback or "", view.error):
            yield Text(printable(line), style="dim")
    # A doubt is shown with all that is known about it, see `doubt`, and so is what it waits for; an
    # error stands above.
    elif (
        view.detail and view.reason != "in-doubt" and view.kill is None and view.status != "waiting"
    ):
        for line in view.detail.split("\n"):
            yield Text(printable(line), style=COLOURS[view.status])


def undone_lines(view: RunView) -> Iterator[Text]:
    """What was undone of a run, and what is left that may have taken effect."""
    undone, left = (", ".join(map(printable, keys or ())) for keys in (view.undone, view.left))
    yield Text(f"undone: {undone or 'nothing'}")
    if left:
        yield Text(f"left as it is: {left}", style="yellow")


def _step_count(view: RunView) -> str:
    done, known = view.finished, len(view.steps)
    return str(done) if done >= known else f"{done}/{known}"


def _needs(view: RunView, caller: Caller, now: float) -> Iterator[Text]:
    """What is in doubt, and the commands that help."""
    for step in view.steps:
        if step.status == "in-doubt":
            yield Text()
            yield from doubt(step)
    lines = advice(view, caller, now)
    if lines:
        yield Text()
    for line in lines:
        yield Text(line, style="bold" if line.startswith(" ") else "")


def doubt(step: StepView) -> Iterator[Text]:
    """What is known about a step that may or may not have happened."""
    yield Text(f"in doubt: {printable(step.key)}", style="yellow")
    known = {
        "sent": step.preview,
        "idempotency key": step.idempotency_key,
        "what happened": step.error,
        "reconcile said": step.reconciled or "nothing yet; resume asks it, if the step has one",
    }
    rows = [_cells(f"  {name}", printable(text)) for name, text in known.items() if text]
    yield from columns(rows)


def timeline(view: RunView, now: float, width: int | None = None) -> Iterator[Text]:
    """One line for each step: where in the run's time it lies, how long it worked, how it went.
    What does not fit into `width` follows below the table."""
    until = _horizon(view, now)
    span = max(until - view.created_at, 1e-9)
    priced = any(step.cost is not None for step in view.steps)
    costs = ("COST",) if priced else ()
    rows = [_cells("STEP", "TIME", "TOOK", "TRIES", *costs, "EFFECT", style="bold")]
    for step in view.steps:
        ended = until if step.ended is None else step.ended
        start = (step.started - view.created_at) / span
        colour = COLOURS[_status(step)]
        rows.append(
            [
                Text(printable(step.key)),
                Text(bar(start, (ended - view.created_at) / span), style=colour),
                Text(took(step)),
                Text(tries(step)),
                *([Text(cost(step.cost))] if priced else []),
                Text(step.effect),
            ]
        )
    yield from _with_outcomes(list(columns(rows)), view.steps, width)


def _with_outcomes(
    lines: list[Text], steps: Sequence[StepView], width: int | None
) -> Iterator[Text]:
    """The table with its last column, cut to what fits, and then in full what was cut."""
    used = max(line.cell_len for line in lines) + GAP
    outcomes = [Text("STATUS", style="bold"), *map(_outcome, steps)]
    room = OUTCOME if width is None else min(max(width - used, LEAST), OUTCOME)
    for line, outcome in zip(lines, outcomes, strict=True):
        shown = outcome.copy()
        shown.truncate(room, overflow="ellipsis")
        yield Text.assemble(line, " " * (used - line.cell_len), shown)
    cut = [pair for pair in zip(steps, outcomes[1:], strict=True) if pair[1].cell_len > room]
    if cut:
        yield Text()
    for step, outcome in cut:
        yield Text.assemble(f"{printable(step.key)}  ", outcome)


def bar(start: float, end: float) -> str:
    """A bar from `start` to `end`, given as fractions of its whole width. Never invisible."""
    left = min(max(int(start * BAR), 0), BAR - 1)
    right = min(max(round(end * BAR), left + 1), BAR)
    return "·" * left + "█" * (right - left) + "·" * (BAR - right)


def _horizon(view: RunView, now: float) -> float:
    """Where the time axis of a run ends: now, if somebody executes it."""
    live = view.status == "running" and not view.interrupted
    ends = [step.ended or step.started for step in view.steps]
    return max([now if live else view.updated_at, *ends])


def _status(step: StepView) -> str:
    """Its status, or that it waits for its next attempt, whoever executes the run then."""
    return "waiting" if retries(step) else step.status


def _outcome(step: StepView) -> Text:
    text = Text(_status(step), style=COLOURS[_status(step)])
    text.append(_decision(step))
    if step.repeated and step.effect == "assumed":
        text.append(f", {TWICE}", style="yellow")
    if step.inner:
        text.append(f", client retried too: {printable(step.inner)}", style="yellow")
    if step.late is not None and step.status != "completed":
        text.append(f", {printable(step.late)} came too late: kept as evidence", style="yellow")
    if step.retry_at is not None:
        text.append(f" until {clock(step.retry_at)}")
    if step.error and step.status != "in-doubt":
        style = "red" if step.status == "failed" else "dim"
        text.append(f": {printable(step.error)}", style=style)
        if step.fault_reason:
            text.append(f" ({printable(f'{step.fault}: {step.fault_reason}')})", style="dim")
    return text


def _decision(step: StepView) -> str:
    """Who decided about a step that was in doubt; nothing while it is."""
    said = step.reconciled or ""
    answer = said.removeprefix("settled ")
    if step.status == "in-doubt" or not answer.startswith(("done", "failed", "not-done")):
        return ""
    who = "reconciled" if answer == said else "settled"
    return f" ({who} not-done)" if answer.startswith("not-done") else f" ({who})"


def journal_lines(events: Sequence[StoredEvent], *, cut: bool = True) -> Iterator[Text]:
    """The lines of `outlast journal`: one for each event.

    Args:
        cut: show only the beginning of long data.
    """
    key = "BREAKER" if events and events[0].run_id == STORE else "STEP"
    rows = [_cells("SEQ", "TIME", "HASH", "KIND", key, "DATA", style="bold")]
    for event in events:
        rows.append(
            [
                Text(str(event.seq)),
                Text(clock(event.at)),
                Text(event.hash.hex()[:10], style="dim"),
                Text(printable(event.kind), style=_kind_colour(event.kind)),
                Text(printable(event.key or "-")),
                Text(in_words(event) or _data(event, cut)),
            ]
        )
    return columns(rows)


def _data(event: StoredEvent, cut: bool) -> str:
    text = event.data.decode("utf-8", "replace")
    return short(text, 120) if cut else printable(text)


def verdict_lines(verdicts: Sequence[Verdict]) -> Iterator[Text]:
    """The lines of `outlast verify`: one for each run, with its whole head hash to keep."""
    for verdict in verdicts:
        line = Text(f"{printable(verdict.run_id)}  ")
        if verdict.ok:
            line.append("intact", style="green")
            line.append(f"  {verdict.events} events  head {verdict.head}")
        else:
            where = "" if verdict.seq is None else f" at record {verdict.seq}"
            line.append(f"ALTERED{where}", style="bold red")
            line.append(f"  {printable(verdict.problem or '')}")
        yield line


def killed_lines(killed: Killed, caller: Caller) -> Iterator[Text]:
    """What a kill has come to: a line for the run, what of it still runs, and its children."""
    run = printable(killed.run_id)
    kill = killed.kill
    if killed.outcome == "refused":
        yield Text(f"run {run} was not killed: {printable(killed.problem or '')}", style="red")
    elif kill is None:
        verb = "has" if killed.status in ("completed", "failed") else "is"
        yield Text(f"run {run} {verb} already {killed.status}; nothing was changed")
    else:
        before = "was already " if killed.outcome == "already" else ""
        yield Text.assemble(f"run {run} {before}", (kill_words(kill), COLOURS["killed"]))
        nothing = ["nothing of it was being executed"] if kill.stopped else []
        for line in stopping(kill, killed.run_id, caller) or nothing:
            yield Text(f"  {line}")
        if killed.problem is not None:
            yield Text(f"  its record is damaged: {printable(killed.problem)}", style="red")
        if not kill.stopped and kill.owner is None and not kill.survivors:
            yield Text("  whether something of it is still executed cannot be told")
    for child in killed.children:
        yield from killed_lines(child, caller)


def breaker_list(views: Sequence[BreakerView], now: float) -> Iterator[Text]:
    """The lines of `outlast breakers`: a heading and one line for each breaker."""
    names = ("BREAKER", "STATE", "FAILURES", "TRIPS", "NEXT PROBE", "PROBING", "LAST FAULT")
    rows = [_cells(*names, style="bold")]
    for view in views:
        of = view.settings
        rows.append(
            [
                Text(printable(view.name)),
                breaker_state(view),
                Text(f"{view.failures} of {of.failures} in {of.window:g} s"),
                Text(str(view.trips)),
                Text(_next_probe(view, now)),
                Text(printable(", ".join(view.probes)) or "-"),
                Text(_last_fault(view, now)),
            ]
        )
    return columns(rows)


def breaker_state(view: BreakerView) -> Text:
    """The state of a breaker."""
    return Text(view.state, style=_BREAKER_COLOURS[view.state])


_BREAKER_COLOURS = {"closed": "green", "open": "red", "half-open": "yellow"}


def _next_probe(view: BreakerView, now: float) -> str:
    if view.until is not None:
        return f"{clock(view.until)} (in {duration(view.until - now)})"
    if view.state == "closed":
        return "-"
    return "under way" if view.probes else "next call"


def _last_fault(view: BreakerView, now: float) -> str:
    if view.last_fault_at is None:
        return "-"
    said = short(view.last_fault, OUTCOME) or "unknown"
    return f"{said}, {duration(now - view.last_fault_at)} ago"


def _kind_colour(kind: str) -> str:
    end = kind.rpartition(".")[2].replace("_", "-")
    return COLOURS.get(end) or _KIND_COLOURS.get(kind, "")


_KIND_COLOURS = {
    "step.refused": "yellow",
    "breaker.opened": "red",
    "breaker.tripped": "red",
    "breaker.probed": "yellow",
    "breaker.closed": "green",
    "breaker.reset": "green",
}


def _cells(*texts: str, style: str = "") -> list[Text]:
    return [Text(text, style=style) for text in texts]
