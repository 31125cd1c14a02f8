"""Looks at the bank's ledger and at the mailbox, from outside, and says whether all is well.

It asks neither the agent nor its journal what should be there: for the built-in model the answer
is written down here. A real model decides for itself, so then its report is held against the facts.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from outlast.demo import mails
from outlast.demo.agent import Report
from outlast.demo.bank import ORDERS
from outlast.demo.mailbox import messages
from outlast.records import StoredEvent

Key = TypeVar("Key", str, tuple[str, int])

# What the built-in model ought to do with the mails in `inbox/`.
REFUNDED = tuple(f"NL-10{number:02}" for number in (*range(1, 8), *range(9, 16)))
UNANSWERED = frozenset({"17-auto-reply.eml", "19-advertisement.eml"})


@dataclass(frozen=True)
class Expected:
    """What must be found outside.

    Attributes:
        refunds: order id and amount in cents, each as often as it must be booked.
        replies: names of the mails, each as often as it must be answered.
    """

    refunds: Counter[tuple[str, int]]
    replies: Counter[str]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, what was found, and whether that is right."""

    name: str
    found: str
    ok: bool


def by_the_rules() -> Expected:
    """What must be found after a run with the built-in model."""
    return Expected(
        refunds=Counter((order, ORDERS[order][1]) for order in REFUNDED),
        replies=Counter(set(mails.names(mails.INBOX)) - UNANSWERED),
    )


def by_the_report(result: object) -> Expected:
    """What must be found if a run's result, given as plain JSON data, tells the truth."""
    lines = msgspec.convert(result, Report).lines
    replies: Counter[str] = Counter()
    for line in lines:  # a mail that was postponed has two
        replies[line.mail] += line.replies
    return Expected(
        refunds=Counter((r.order_id, r.amount) for line in lines for r in line.refunds),
        replies=replies,
    )


def check_ledger(folder: Path, expected: Expected) -> Check:
    """Every refund that should be there is booked once, with the right amount, and no other."""
    booked = Counter((str(b["order_id"]), int(str(b["amount"]))) for b in _lines(folder, "ledger"))
    wrong = [f"{order} EUR {amount / 100:.2f}" for order, amount in _odd(booked, expected.refunds)]
    total = sum(amount * count for (_, amount), count in booked.items()) / 100
    found = f"{booked.total()} bookings, EUR {total:.2f}"
    return verdict("every refund booked once", found, wrong)


def check_mailbox(folder: Path, expected: Expected) -> Check:
    """Every mail that should be answered is answered once, and no other."""
    inbox = {mails.read(mails.INBOX / n).message_id: n for n in mails.names(mails.INBOX)}
    answered = Counter(
        inbox.get(reference, reference)
        for reference in (str(message["In-Reply-To"]).strip() for message in messages(folder))
    )
    wrong = list(_odd(answered, expected.replies))
    return verdict("every answer mailed once", f"{answered.total()} messages", wrong)


def check_result(result: object, reference: object) -> Check:
    """The result is the one of the undisturbed run."""
    name = "result equals the undisturbed one"
    if result is not None and result == reference:
        return Check(name, f"{len(msgspec.convert(result, Report).lines)} mails, equal", True)
    return Check(name, "they differ", False)


def check_steps(journal: Sequence[StoredEvent]) -> Check:
    """No step that had finished was started again; the journal may be of several runs."""
    finished: set[tuple[str, str | None]] = set()
    again = []
    for event in journal:
        step = (event.run_id, event.key)
        if event.kind == "step.completed":
            finished.add(step)
        elif event.kind == "step.started" and step in finished:
            again.append(str(event.key))
    return verdict("no finished step run again", f"{len(finished)} steps", again)


def repeats(folder: Path) -> int:
    """How many requests the bank recognised as repeats and did not book again."""
    return [line["outcome"] for line in _lines(folder, "requests")].count("repeated")


def verdict(name: str, found: str, wrong: list[str]) -> Check:
    """A check that passes if nothing is wrong; what is, is named beside what was found."""
    return Check(name, f"{found}; wrong: {', '.join(wrong)}" if wrong else found, not wrong)


def _odd(found: Counter[Key], expected: Counter[Key]) -> list[Key]:
    return sorted(key for key in found | expected if found[key] != expected[key])


def _lines(folder: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
