"""The audit sees when a bank that failed was not left alone."""

from collections import Counter
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest

from outlast import Breaker, StoredEvent
from outlast.demo import audit_outage, mails
from outlast.demo.audit import Expected
from outlast.demo.audit_outage import Request
from outlast.demo.rules import DELAY

AGREED = Breaker("payments", failures=3, cooldown=2)


def request(at: float, outcome: str = "unavailable", beside: int = 0) -> Request:
    return Request(f"NL-{at:g}", outcome, at, beside)


GOOD = [
    request(100, "booked"),
    request(101),
    request(101.5),
    request(102),  # trips
    request(104.1),  # a probe, and it fails
    request(106.2, "booked"),  # another one: closed
    request(106.3, "booked"),
    request(106.3, "booked", beside=1),
]


def with_one_more(more: Request) -> list[Request]:
    return sorted([*GOOD, more], key=lambda one: one.at)


def test_a_bank_that_was_left_alone_passes() -> None:
    assert audit_outage.check_left_alone(GOOD, AGREED, 4).ok
    check = audit_outage.check_probes(GOOD, AGREED)
    assert check.ok
    assert check.found == "2 probes"


@pytest.mark.parametrize("at", [102.01, 103.9, 104.2, 106])
@pytest.mark.parametrize("outcome", ["unavailable", "booked", "refused"])
def test_a_request_while_the_breaker_was_open_fails(at: float, outcome: str) -> None:
    extra = request(at, outcome)
    failures = 5 if outcome == "unavailable" else 4
    check = audit_outage.check_left_alone(with_one_more(extra), AGREED, failures)
    assert not check.ok
    assert f"wrong: {extra.order_id} came" in check.found


def test_without_an_outage_there_is_nothing_to_pass() -> None:
    fine = [request(100, "booked"), request(101, "booked")]
    assert not audit_outage.check_left_alone(fine, AGREED, 4).ok
    assert not audit_outage.check_probes(fine, AGREED).ok
    assert not audit_outage.check_left_alone(GOOD[:-4], AGREED, 4).ok


@pytest.mark.parametrize("place", [4, 5, 6])
def test_two_probes_at_a_time_fail(place: int) -> None:
    cooked = list(GOOD)
    cooked[place] = replace(cooked[place], beside=1)
    check = audit_outage.check_probes(cooked, AGREED)
    assert not check.ok
    assert f"wrong: {cooked[place].order_id} came beside another" in check.found


@pytest.mark.parametrize("place", [0, 1, 2, 3, 7])
def test_while_it_is_closed_requests_may_come_together(place: int) -> None:
    busy = list(GOOD)
    busy[place] = replace(busy[place], beside=2)
    assert audit_outage.check_probes(busy, AGREED).ok


def trips(*kinds: str) -> list[StoredEvent]:
    return [StoredEvent("@store", 1, f"breaker.{k}", "payments", b"{}", 0.0, 0, b"") for k in kinds]


@pytest.mark.parametrize(
    ("kinds", "ok"),
    [
        ("declared opened probed closed", True),
        ("declared opened probed opened probed closed", True),
        ("", False),
        ("declared", False),
        ("declared opened", False),
        ("declared opened closed", False),
        ("declared opened probed opened", False),
        ("declared opened probed probed closed", False),
        ("declared closed", False),
    ],
)
def test_a_breaker_has_to_open_to_be_probed_and_to_close(kinds: str, ok: bool) -> None:
    assert audit_outage.check_breaker(trips(*kinds.split())).ok is ok


PLAIN = "01-plain.eml"


def put_letter(folder: Path, name: str, text: str) -> None:
    message = EmailMessage()
    message["In-Reply-To"] = mails.read(mails.INBOX / PLAIN).message_id
    message.set_content(text)
    (folder / f"{name}.eml").write_bytes(message.as_bytes())


def test_a_notice_of_delay_may_come_before_the_answer_and_is_none(tmp_path: Path) -> None:
    expected = Expected(refunds=Counter(), replies=Counter([PLAIN]))
    put_letter(tmp_path, "1", f"Hello,\n\nsorry, {DELAY}.\n")
    assert not audit_outage.check_mailbox(tmp_path, expected).ok
    put_letter(tmp_path, "2", "Hello,\n\nwe have refunded it.\n")
    check = audit_outage.check_mailbox(tmp_path, expected)
    assert check.ok
    assert check.found == "1 answers, 1 notices of delay"
    put_letter(tmp_path, "3", f"Hello,\n\nsorry, {DELAY}.\n")
    assert "wrong: 01-plain.eml told twice" in audit_outage.check_mailbox(tmp_path, expected).found
    (tmp_path / "3.eml").unlink()
    put_letter(tmp_path, "4", "Hello,\n\nwe have refunded it.\n")
    assert not audit_outage.check_mailbox(tmp_path, expected).ok
