"""Looks from outside at how a bank was treated that failed: into the bank's own record of requests.

The settings of the breaker are an agreement with the bank: what they promise is checked by what it
has seen, not by what the store says about them.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from outlast import Breaker, StoredEvent
from outlast.demo import mails
from outlast.demo.audit import Check, Expected, verdict
from outlast.demo.mailbox import messages
from outlast.demo.rules import DELAY


@dataclass(frozen=True)
class Request:
    """A request for a refund as the bank has noted it, see `outlast.demo.bank.Bank`."""

    order_id: str
    outcome: str
    at: float
    beside: int


def requests(folder: Path) -> list[Request]:
    """All requests for refunds that a bank has seen, oldest first."""
    text = (folder / "requests.jsonl").read_text()
    return [msgspec.convert(json.loads(line), Request) for line in text.splitlines()]


def _failed(failed: int, request: Request) -> int:
    """How many requests have failed since one was served."""
    if request.outcome == "unavailable":
        return failed + 1
    return 0 if request.outcome in ("booked", "repeated") else failed


def check_left_alone(found: Sequence[Request], agreed: Breaker, failures: int) -> Check:
    """After the failures that open the breaker, and after each failed probe, nothing came for as
    long as the cool-down takes.

    Args:
        failures: how many there have to be, or there was no outage to speak of.
    """
    count, failed, quiet_until = 0, 0, 0.0
    wrong = []
    for request in found:
        if request.at < quiet_until:
            early = quiet_until - request.at
            wrong.append(f"{request.order_id} came {early:.2f} s early")
        count += request.outcome == "unavailable"
        failed = _failed(failed, request)
        if failed >= agreed.failures:
            quiet_until = request.at + agreed.cooldown
    if count != failures:
        wrong.append(f"{count} failures, not {failures}")
    words = f"{count} of {len(found)} requests failed"
    return verdict("bank left alone while open", words, wrong)


def check_probes(found: Sequence[Request], agreed: Breaker) -> Check:
    """From the trip until a probe has succeeded there was never more than one request at a time."""
    failed, probes = 0, 0
    probe_before = False
    wrong = []
    for request in found:
        is_probe = failed >= agreed.failures
        probes += is_probe
        # What comes while a probe is not answered yet may not have been let through either.
        if (is_probe or probe_before) and request.beside:
            wrong.append(f"{request.order_id} came beside another")
        probe_before = is_probe
        failed = _failed(failed, request)
    if not probes:
        wrong.append("no probe")
    return verdict("one probe at a time", f"{probes} probes", wrong)


def check_breaker(trips: Sequence[StoredEvent]) -> Check:
    """By the store's own journal the breaker opened, was tried by one call at a time, and closed.

    Args:
        trips: what happened to the breaker, oldest first.
    """
    said = [event.kind.removeprefix("breaker.") for event in trips]
    told = [word for word in said if word != "declared"]
    expected = ["opened", "probed"] * (len(told) // 2) + ["closed"]
    wrong = [] if len(told) > 1 and told == expected else ["not opened, probed, closed"]
    return verdict("breaker closed in the end", " > ".join(told) or "nothing", wrong)


def check_mailbox(folder: Path, expected: Expected) -> Check:
    """Every mail has one final answer; before it at most one that says that it takes longer."""
    inbox = {mails.read(mails.INBOX / name).message_id: name for name in expected.replies}
    final: Counter[str] = Counter()
    delays: Counter[str] = Counter()
    for message in messages(folder):
        name = str(message["In-Reply-To"]).strip()
        name = inbox.get(name, name)
        is_delay = DELAY in " ".join(message.get_content().split())
        (delays if is_delay else final)[name] += 1
    wrong = [name for name in final | expected.replies if final[name] != expected.replies[name]]
    wrong += [f"{name} told twice" for name, times in delays.items() if times > 1]
    words = f"{final.total()} answers, {delays.total()} notices of delay"
    return verdict("every answer mailed once", words, sorted(wrong))
