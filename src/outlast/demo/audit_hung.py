"""Looks at what is left of a run that hung and was killed, and of those beside it."""

from collections.abc import Mapping, Sequence

from outlast import StoredEvent
from outlast.demo.audit import Check, verdict
from outlast.processes import Found

EVIDENCE = frozenset({"run.stopped", "step.late"})
"""What may stand behind a kill: what was seen of the end, and results that came too late."""


def check_fenced(journal: Sequence[StoredEvent]) -> Check:
    """Nothing that its owner has done stands behind the kill."""
    name = "nothing done after the kill"
    kinds = [event.kind for event in journal]
    if kinds.count("run.killed") != 1:
        return Check(name, f"{kinds.count('run.killed')} kills", False)
    behind = journal[kinds.index("run.killed") + 1 :]
    wrong = [f"{e.kind} {e.key or ''}".strip() for e in behind if e.kind not in EVIDENCE]
    evidence = [event.kind for event in behind if event.kind in EVIDENCE]
    return verdict(name, f"evidence: {', '.join(evidence) or 'none'}", wrong)


def check_gone(executing: Sequence[Found]) -> Check:
    """None of these processes, known by number and time of start, still runs."""
    wrong = [f"{one.pid} still runs" for one in executing if one.alive]
    if not executing:
        wrong = ["there was none"]
    ended = ", ".join(str(one.pid) for one in executing if not one.alive)
    return verdict("nothing of it runs", f"ended: {ended or 'none'}", wrong)


def check_completed(journals: Mapping[str, Sequence[StoredEvent]]) -> Check:
    """Each of these runs has completed, and none was killed along with another."""
    last = {run_id: events[-1].kind if events else "nothing" for run_id, events in journals.items()}
    wrong = [f"{run_id}: {kind}" for run_id, kind in last.items() if kind != "run.completed"]
    done = len(last) - len(wrong)
    return verdict("the others completed", f"{done} of {len(last)}", wrong)
