"""Why a run is held, in words: what happened, to which step, and what lets the run go on."""

from outlast.engine.history import Kind, Past
from outlast.engine.requests import Call
from outlast.engine.run import Run
from outlast.engine.spec import WorkflowSpec
from outlast.engine.stop import Hold
from outlast.journal import idempotency_key
from outlast.policy.gate import Deny
from outlast.records import StoredEvent, Unknown


def other_call(run: Run, past: Past, kind: Kind, name: str) -> Hold:
    """The code calls something else than what is recorded at this position."""
    recorded, called = past.key, name
    if past.name == name:
        recorded, called = f"{past.kind} {past.key}", f"the {kind} {name}"
    return _diverged(run, past, f"the journal has {recorded}, the code now calls {called}")


def other_arguments(run: Run, past: Past, preview: str) -> Hold:
    """The code calls what is recorded at this position, but not with the same arguments."""
    said = f"{past.key} was recorded with other arguments than the code passes now ({preview})"
    return _diverged(run, past, said)


def not_cancelled(run: Run, past: Past) -> Hold:
    """The code now waits for a call that it cancelled when the call was recorded."""
    said = f"{past.key} was recorded as cancelled, and the code now waits for it"
    return _diverged(run, past, said)


def _diverged(run: Run, past: Past, said: str) -> Hold:
    return Hold(
        "diverged",
        f"the code does not fit the run's journal: {said}; the call was not executed",
        f"Bring back the code that the run started with, then: outlast resume {run.run_id}",
        past.key,
    )


def crash_loop(run: Run, past: Past) -> Hold:
    """The stop for a step in whose attempts the process died too often."""
    return Hold(
        "crash-loop",
        f"step {past.key} stopped with its process {past.crashes} times in a row",
        f"Find out why it ends the process, then: outlast resume {run.run_id}",
        past.key,
    )


def unreadable(run: Run, detail: str) -> Hold:
    """The stop for stored bytes that cannot be turned back into their value."""
    return Hold(
        "unreadable",
        detail,
        "The stored bytes are kept. Bring back the code that can read them, then: "
        f"outlast resume {run.run_id}",
    )


def altered(run: Run, event: StoredEvent) -> Hold:
    """The stop for a journal that is not what was once written."""
    what = event.kind if event.key is None else f"{event.kind} of {event.key}"
    return Hold(
        "unreadable",
        f"event {event.seq} of run {run.run_id} ({what}) is not as it was written: the store's "
        "file is damaged, or somebody changed it",
        f"Nothing was run or overwritten. See: outlast verify {run.run_id}. Bring back the store "
        f"from a copy, then: outlast resume {run.run_id}",
    )


def denied(run: Run, call: Call, verdict: Deny) -> Hold:
    """A policy gate refused an attempt."""
    return Hold(
        "paused",
        f"the policy gate refused step {call.key}: {verdict.rule}",
        f"Change the policy, then: outlast resume {run.run_id}",
        call.key,
    )


def in_doubt(run: Run, call: Call, doubt: str, answer: Unknown | None) -> Hold:
    """Nobody can tell whether a `once` step took effect. `answer` is None if its reconcile function
    was not asked."""
    if call.spec.reconcile is None:
        said = "The step has no reconcile function"
    elif answer is None:
        said = "Its reconcile function was not asked yet"
    else:
        said = f"Reconcile said: {answer.why or 'unknown'}"
    return Hold(
        "in-doubt",
        f"step {call.key} ({call.preview()}) may or may not have happened: {doubt}. "
        f"Idempotency key {idempotency_key(run.row.uid, call.key)}. {said}",
        f"Look outside, then: outlast settle {run.run_id} '{call.key}' --done JSON | --not-done | "
        "--failed TEXT",
        call.key,
    )


def unfit_settlement(run: Run, call: Call, problem: Exception) -> Hold:
    """An operator's value is not of the type that the step returns."""
    return Hold(
        "in-doubt",
        f"the value that step {call.key} was settled with does not fit what it returns: {problem}",
        f"Settle it again: outlast settle {run.run_id} '{call.key}' --done JSON",
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
        f"{run.run_id}",
        key,
    )


def ended_early(run: Run, problem: Exception | None) -> Hold:
    """The workflow returned or raised without asking for all that is recorded."""
    left = run.history.unconsumed()
    how = (
        "returned" if problem is None else f"raised {type(problem).__name__}: {problem}, and ended"
    )
    return Hold(
        "diverged",
        f"the workflow {how} without asking for {len(left)} recorded calls, the first is "
        f"{left[0].key}",
        f"Bring back what the run started with, then: outlast resume {run.run_id}",
        left[0].key,
    )


def signature_changed(run: Run, spec: WorkflowSpec, recorded: list[str]) -> Hold:
    """The workflow does not take the arguments that the run was started with."""
    return Hold(
        "diverged",
        f"the run was started with the arguments {', '.join(recorded) or 'none'}, and the workflow "
        f"now is {spec.name}{spec.signature}; it was not called",
        "Bring back a signature that takes them (new parameters need defaults), then: outlast "
        f"resume {run.run_id}",
    )
