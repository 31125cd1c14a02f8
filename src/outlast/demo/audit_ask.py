"""Looks at refunds that needed somebody's leave: who gave it, when, and what came of it."""

from collections.abc import Mapping, Sequence

from outlast import StoredEvent, events
from outlast.demo.audit import Check, verdict
from outlast.demo.audit_outage import Request

PAY = "pay_back#"
"""How the key of the step begins that needs leave."""

MOVES = frozenset({"run.claimed", "run.released"})
"""A process takes a run up, and lets go of it."""

Journals = Mapping[str, Sequence[StoredEvent]]
"""Of runs, by id."""


def check_asked_first(journals: Journals) -> Check:
    """Each run has asked once, and no attempt to pay stands before the answer."""
    wrong = []
    for run_id, journal in journals.items():
        asked = [event.kind for event in journal].count("wait.opened")
        if asked != 1:
            wrong.append(f"{run_id} has asked {asked} times")
        before, _ = _parted(journal)
        if any(e.kind == "step.started" and str(e.key).startswith(PAY) for e in before):
            wrong.append(f"{run_id} did not wait for the answer")
    return verdict("asked before anything was paid", f"{len(journals)} questions", wrong)


def check_from_outside(journals: Journals) -> Check:
    """Each run was answered once, by somebody with a name, while no process had it."""
    wrong, who = [], set[str]()
    for run_id, journal in journals.items():
        given = [e for e in journal if e.kind == "question.answered"]
        answers = [events.decode(event.kind, event.data) for event in given]
        names = [one.by for one in answers if isinstance(one, events.QuestionAnswered)]
        who.update(names)
        if len(names) != 1 or not names[0]:
            wrong.append(f"{run_id} has {len(names)} answers, by {', '.join(names) or 'nobody'}")
        before, _ = _parted(journal)
        if [e.kind for e in before if e.kind in MOVES][-1:] != ["run.released"]:
            wrong.append(f"a process had {run_id}")
    found = f"by {', '.join(sorted(who))}, while no process had the runs"
    return verdict("answered from outside, once each", found, wrong)


def check_answers(journals: Journals, expected: Mapping[str, str]) -> Check:
    """Each run got the answer that was given.

    Args:
        expected: `answer` or `denied`, by run id.
    """
    wrong = []
    for run_id, how in expected.items():
        ends = [e for e in journals[run_id] if e.kind == "wait.ended"]
        got = [events.decode(event.kind, event.data) for event in ends]
        words = [one.how for one in got if isinstance(one, events.WaitEnded)]
        if words != [how]:
            wrong.append(f"{run_id}: {', '.join(words) or 'nothing'}")
    return verdict("each run has got its answer", f"{len(expected)} answers", wrong)


def check_untouched(requests: Sequence[Request], order_id: str) -> Check:
    """The bank has never heard of a refund of this order."""
    heard = [request.outcome for request in requests if request.order_id == order_id]
    return verdict(f"the bank was not asked for {order_id}", f"{len(requests)} requests", heard)


def _parted(journal: Sequence[StoredEvent]) -> tuple[list[StoredEvent], list[StoredEvent]]:
    """What stands before the first answer, and what stands behind it."""
    kinds = [event.kind for event in journal]
    place = kinds.index("question.answered") if "question.answered" in kinds else len(kinds)
    return list(journal[:place]), list(journal[place:])
