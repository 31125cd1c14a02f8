"""Looks from outside at what a run on a budget has spent: into the bill of the model's server."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import msgspec

from outlast import StoredEvent, events
from outlast.demo.audit import Check, verdict


@dataclass(frozen=True)
class Spent:
    """A line of the bill: an answer of the model, and its price in US dollars."""

    answer: str
    usd: Decimal


def bill(folder: Path) -> list[Spent]:
    """All lines of the bill, oldest first."""
    text = (folder / "bill.jsonl").read_text()
    return [msgspec.convert(json.loads(line), Spent) for line in text.splitlines()]


def check_limit(
    before: Sequence[Spent], after: Sequence[Spent], limit: Decimal, raised: Decimal
) -> Check:
    """What the model wants was never above what the run was allowed to spend.

    Args:
        before: the bill when the run was held; `after`: when it had completed.
        limit: in US dollars, at first; `raised`: once it was given more.
    """
    first, whole = _sum(before), _sum(after)
    wrong = []
    if first > limit:
        wrong.append(f"USD {first} before the top-up, of USD {limit}")
    if whole > raised:
        wrong.append(f"USD {whole} in the end, of USD {raised}")
    if whole <= limit:
        wrong.append("it would have had enough anyway")
    words = f"USD {first} of {limit}, then {whole} of {raised}"
    return verdict("spent within the limit", words, wrong)


def check_paid_once(lines: Sequence[Spent]) -> Check:
    """No answer is on the bill twice."""
    twice = [answer for answer, times in Counter(one.answer for one in lines).items() if times > 1]
    return verdict("no answer paid for twice", f"{len(lines)} answers", twice)


def check_account(lines: Sequence[Spent], journal: Sequence[StoredEvent]) -> Check:
    """The run says that it has spent just what the model wants."""
    told = Decimal(0)
    for event in journal:
        if event.kind == "step.charged":
            charged = events.decode(event.kind, event.data)
            assert isinstance(charged, events.StepCharged)
            if charged.settled:  # it includes what was reported on the way
                told += charged.cost.usd or 0
    whole = _sum(lines)
    wrong = [] if told == whole else [f"the run says USD {told}"]
    return verdict("the run's account fits the bill", f"USD {whole}", wrong)


def _sum(lines: Sequence[Spent]) -> Decimal:
    return sum((one.usd for one in lines), Decimal(0))
