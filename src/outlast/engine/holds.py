"""Why a run is held, in words: what happened, to which step, and what lets the run go on."""

import shlex
from collections.abc import Callable, Iterable
from itertools import dropwhile

from msgspec import Struct

from outlast import codec
from outlast.engine.history import TURNS, Kind, Past, name_of, position_of
from outlast.engine.requests import Call, ChildHeld
from outlast.engine.run import Run
from outlast.engine.sites import Site, raise_site
from outlast.engine.spec import WorkflowSpec
from outlast.engine.stop import Hold
from outlast.events import SETTLED, StepFailed
from outlast.journal import idempotency_key
from outlast.policy.budget import Short
from outlast.policy.gate import Deny
from outlast.records import UNSURE, StoredEvent, Unknown


class Asked(Struct, frozen=True):
    """What the code calls where something else is recorded. `preview` makes a short text of its
    arguments."""

    kind: Kind
    name: str
    site: Site | None
    preview: Callable[[], str] = str


def _id(run: Run) -> str:
    """The run's id as it stands in a command."""
    return shlex.quote(run.run_id)


def misfit(run: Run, past: Past, asked: Asked) -> Hold:
    """The code does not call what is recorded at this position, or with other arguments."""
    if past.fits(asked.kind, asked.name):
        said = f"{past.key} was recorded with other arguments than the code passes now"
        if past.preview == asked.preview():
            said += " (the difference is not in what is shown here)"
        return _diverged(run, past, said, _asked(asked))
    recorded, called = past.key, asked.name
    if past.name == asked.name:
        recorded, called = f"{past.kind} {past.key}", f"the {asked.kind} {asked.name}"
    said = f"the journal has {recorded}, the code now calls {called}"
    return _diverged(run, past, said, _asked(asked))


def not_recorded(run: Run, later: Past, asked: Asked) -> Hold:
    """The code calls something that is not recorded in front of something that is."""
    if later.kind == "map":
        said = f"{later.key} was recorded as ended, the code now calls {asked.name} in it"
    else:
        said = f"the journal goes on with {later.key}, the code calls {asked.name} before that"
    return _diverged(run, later, said, _asked(asked))


def not_cancelled(run: Run, past: Past) -> Hold:
    """The code now waits for a call that it cancelled when the call was recorded."""
    said = f"{past.key} was recorded as cancelled, and the code now waits for it"
    return _diverged(run, past, said, "the code waits for it")


def _diverged(run: Run, past: Past, said: str, now: str) -> Hold:
    """The hold that shows both sides."""
    detail = (
        f"the code does not fit the run's journal: {said}; the call was not executed\n"
        f"  recorded: {_side(past.key, past.site, past.preview)}\n"
        f"  now:      {now}"
    )
    return Hold("diverged", detail, _ways_on(run, past.key), past.key)


def _asked(asked: Asked) -> str:
    return _side(asked.name, asked.site.full if asked.site else "", asked.preview())


def _side(what: str, where: str, preview: str) -> str:
    """A call in words, such as `think#1 at desk.py:41 with n=2`."""
    return what + (f" at {where}" if where else "") + (f" with {preview}" if preview else "")


def _ways_on(run: Run, key: str) -> str:
    """The commands that help with a divergence at a call, a line each."""
    run_id, step = shlex.quote(run.run_id), shlex.quote(key)
    kept = next((past.key for past in _from(run, key) if _may_have_happened(past)), None)
    if kept is None:
        drop = (
            f"Go on with this code, dropping what is recorded from {key} on: "
            f"outlast resume {run_id} --accept-from {step}\n"
            f"The same on a copy of the run: outlast fork {run_id} --from {step}\n"
        )
    else:
        drop = (
            f"This code cannot be let count from {key} on, since {kept} has the effect `once` and "
            "has happened or may have; a copy of the run would make it again: "
            f"outlast fork {run_id} --from {step}\n"
        )
    return (
        f"Bring back the code that fits, then: outlast resume {run_id}\n"
        f"{drop}"
        "See every run that does not fit this code: outlast replay\n"
        "Keep the old way for old runs: outlast.patched(...) in the workflow, then resume"
    )


def _from(run: Run, key: str) -> Iterable[Past]:
    """The recorded calls from one on, in the order in which they began."""
    calls, position = run.history.calls, position_of(key)
    if name_of(key) == TURNS:
        return [past for at, past in calls.items() if at.startswith(f"{position}.t")]
    return dropwhile(lambda past: past.key != key, calls.values())


def _may_have_happened(past: Past) -> bool:
    if past.effect != "once" or not past.attempts:
        return False
    if isinstance(past.outcome, StepFailed):
        error = past.outcome.error
        return error.type == SETTLED or error.fault in UNSURE
    return past.outcome is not None or past.doubt is not None or past.late is not None


def crash_loop(run: Run, past: Past) -> Hold:
    """The stop for a step in whose attempts the process died too often."""
    return Hold(
        "crash-loop",
        f"step {past.key} stopped with its process {past.crashes} times in a row",
        f"Find out why it ends the process, then: outlast resume {_id(run)}",
        past.key,
    )


def looping(run: Run, call: Call) -> Hold:
    """The stop for a tool that is called in the same way again and again, and always ends alike."""
    times = run.repeats.times(call.spec.name, call.digest)
    key, how = run.repeats.evidence(call.spec.name)
    shown = f" ({call.preview()})" if call.preview() else ""
    last = f", last as {key}: {how}" if key and how else ""
    return Hold(
        "looping",
        f"step {call.spec.name}{shown} was called {times} times in a row with the same arguments "
        f"and ended in the same way each time{last}; the next call was not made",
        "See what it answered: outlast journal "
        f"{_id(run)}. To let it go on for as many calls again: outlast resume {_id(run)}. A "
        "step that is meant to be asked again and again: @step(effect='read', poll=True); more "
        "of them: @workflow(max_repeats=...)",
        call.key,
    )


def clash(run: Run, call: Call, problem: Exception) -> Hold:
    """Two steps have other settings for one breaker."""
    return Hold(
        "diverged",
        f"step {call.key} was not called: {problem}",
        f"Give both steps the same settings, or the breakers other names, then: outlast resume "
        f"{_id(run)}. If the other step is gone: outlast breakers reset NAME",
        call.key,
    )


def over_budget(run: Run, key: str | None, short: Short) -> Hold:
    """The run has reached a limit of its budget."""
    how = f"--add {short.limit}=AMOUNT"
    if short.limit == "unknown":
        how = (
            "--charge usd=AMOUNT. To be asked less often, give the step an estimate, cost=Cost("
            "estimate=..., actual=...), or charge an upper bound: Budget(on_unknown=...)"
        )
    what = "" if key is None else f"step {key} was not called: "
    return Hold(
        "over-budget",
        what + short.text,
        "Nothing that is finished is run or paid for again. To go on: outlast resume "
        f"{_id(run)} {how}",
        key,
    )


def out_of_time(run: Run, call: Call) -> Hold:
    """The run has worked for as long as it may, and the step under way was cut off."""
    return Hold(
        "over-budget",
        f"step {call.key} was cut off: the run has worked for as many seconds as its budget allows",
        "Nothing that is finished is run or paid for again. To go on: outlast resume "
        f"{_id(run)} --add seconds=AMOUNT",
        call.key,
    )


def no_budget(run: Run, call: Call) -> Hold:
    """A step declares a cost, and nobody has said what the run may spend."""
    return Hold(
        "over-budget",
        f"step {call.key} was not called: it declares a cost, and the run has no money budget, "
        "which means that it may spend nothing",
        "Give the workflow one, such as @outlast.workflow(budget=outlast.Budget(usd=2)), or this "
        f"run alone: outlast resume {_id(run)} --add usd=AMOUNT",
        call.key,
    )


def unreadable(run: Run, detail: str) -> Hold:
    """The stop for stored bytes that cannot be turned back into their value."""
    return Hold(
        "unreadable",
        detail,
        "The stored bytes are kept. Bring back the code that can read them, then: "
        f"outlast resume {_id(run)}",
    )


def altered(run: Run, event: StoredEvent) -> Hold:
    """The stop for a journal that is not what was once written."""
    what = event.kind if event.key is None else f"{event.kind} of {event.key}"
    return Hold(
        "unreadable",
        f"event {event.seq} of run {run.run_id} ({what}) is not as it was written: the store's "
        "file is damaged, or somebody changed it",
        f"Nothing was run or overwritten. See: outlast verify {_id(run)}. Bring back the store "
        f"from a copy, then: outlast resume {_id(run)}",
    )


def denied(run: Run, call: Call, verdict: Deny) -> Hold:
    """A policy gate refused an attempt."""
    return Hold(
        "paused",
        f"the policy gate refused step {call.key}: {verdict.rule}",
        f"Change the policy, then: outlast resume {_id(run)}",
        call.key,
    )


def in_doubt(run: Run, call: Call, past: Past, doubt: str, answer: Unknown | None) -> Hold:
    """Nobody can tell whether a `once` step took effect. `answer` is None if its reconcile function
    was not asked."""
    if call.spec.reconcile is None:
        said = "The step has no reconcile function"
    elif answer is None:
        said = "Its reconcile function was not asked yet"
    else:
        said = f"Reconcile said: {answer.why or 'unknown'}"
    known_as = idempotency_key(run.row.uid, past.alias or call.key, past.variant)
    return Hold(
        "in-doubt",
        f"step {call.key} ({call.preview()}) may or may not have happened: {doubt}. "
        f"Idempotency key {known_as}. {said}",
        f"Look outside, then: outlast settle {_id(run)} {shlex.quote(call.key)} --done JSON | "
        "--not-done | --failed TEXT",
        call.key,
    )


def undo_failed(run: Run, call: Call, problem: Exception) -> Hold:
    """A compensation has failed for good. What came before its step is not undone past it."""
    said = f"{type(problem).__name__}: {problem}"
    key = shlex.quote(call.key)
    return Hold(
        "undo-failed",
        f"{call.key} ({call.preview()}) has failed: {said}. What was done before is not undone yet",
        f"Deal with the cause, and let it be tried again: outlast resume {_id(run)}. If you have "
        f"undone it yourself: outlast settle {_id(run)} {key} --done null; to leave it as it is: "
        f"outlast settle {_id(run)} {key} --failed TEXT; then resume",
        call.key,
    )


def undo_missing(run: Run, key: str, place: str) -> Hold:
    """The code has no compensation any more where it was recorded."""
    return Hold(
        "diverged",
        f"step {key} was recorded with an undo, and there is none at {place} now",
        f"Bring back the step and its undo, then: outlast resume {_id(run)}",
        key,
    )


def child_not_undone(run: Run, key: str, child: str, problem: Exception) -> Hold:
    """What a child has done cannot be undone now, nor what was done before it."""
    return Hold(
        "undo-failed",
        f"child run {child} is to be undone: {problem}. What was done before is not undone yet",
        f"Deal with the cause, then: outlast resume {_id(run)}",
        key,
    )


def child_missing(run: Run, key: str, child: str, place: str) -> Hold:
    """The code of a child is gone, whose steps are to be undone."""
    return Hold(
        "diverged",
        f"child run {child} ({key}) is to be undone, and its workflow is not at {place} now",
        f"Bring back the workflow, then: outlast resume {_id(run)}",
        key,
    )


def lost_item(run: Run, past: Past, asked: Asked) -> Hold:
    """A fan-out was ended by an error of an item that is not in its list now, or does not fail."""
    said = f"{past.key} was recorded as ended by the error of item {past.raised}, which is gone"
    return _diverged(run, past, said, _asked(asked))


def item_gone(run: Run, past: Past, asked: Asked) -> Hold:
    """A fan-out has no item any more of which something is recorded."""
    said = f"{past.key} was recorded for an item that is not in the list of the fan-out now"
    return _diverged(run, past, said, _asked(asked))


def child_held(run: Run, key: str, child: str, news: ChildHeld) -> Hold:
    """A child needs somebody, and so does its parent."""
    detail = f"child run {child} is held ({news.reason}): {news.detail}"
    fix = f"{news.fix}\nThen: outlast resume {_id(run)}" if news.fix else ""
    return Hold(news.reason, detail, fix or f"Go on with: outlast resume {_id(run)}", key)


def unfit_settlement(run: Run, call: Call, problem: Exception) -> Hold:
    """An operator's value is not of the type that the step returns."""
    return Hold(
        "in-doubt",
        f"the value that step {call.key} was settled with does not fit what it returns: {problem}",
        f"Settle it again: outlast settle {_id(run)} {shlex.quote(call.key)} --done JSON",
        call.key,
    )


def stuck(run: Run, key: str) -> Hold:
    """A body outlived its timeout and the grace period."""
    return _stuck(run, f"the body of step {key} still runs after its timeout", key)


def swallowed(run: Run, key: str | None) -> Hold:
    """Code of the user was cancelled, since the run must stop, and went on for the grace period."""
    what = "the workflow" if key is None else f"the body of step {key}"
    return _stuck(run, f"{what} was cancelled and still runs", key)


def _stuck(run: Run, what: str, key: str | None) -> Hold:
    return Hold(
        "stuck",
        f"{what} and cannot be stopped from within its process",
        "Wait until it has ended, or end the process that executes the run, then: outlast resume "
        f"{_id(run)}",
        key,
    )


def ended_early(run: Run, problem: Exception | None) -> Hold:
    """The workflow returned or raised without asking for all that is recorded."""
    left = run.history.unconsumed()
    first, count = left[0], f"{len(left)} recorded call{'' if len(left) == 1 else 's'}"
    if problem is None:
        how, now = "returned", "the workflow returns"
    else:
        message = " ".join(codec.encode_error(problem, "workflow").message.split())
        error, site = f"{type(problem).__name__}: {message[:200]}", raise_site(problem)
        how, now = f"raised {error}, and ended", _side(error, site.full if site else "", "")
    return Hold(
        "diverged",
        f"the workflow {how} without asking for {count}, the first is {first.key}\n"
        f"  recorded: {_side(first.key, first.site, first.preview)}\n"
        f"  now:      {now}",
        _ways_on(run, first.key),
        first.key,
    )


def signature_changed(run: Run, spec: WorkflowSpec, recorded: list[str]) -> Hold:
    """The workflow does not take the arguments that the run was started with."""
    return Hold(
        "diverged",
        f"the run was started with the arguments {', '.join(recorded) or 'none'}, and the workflow "
        f"now is {spec.name}{spec.signature}; it was not called",
        "Bring back a signature that takes them (new parameters need defaults), then: outlast "
        f"resume {_id(run)}",
    )
