"""The audit sees when a refund did not wait for leave, and when it was not a person who gave it."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec import Raw

from outlast import StoredEvent, events
from outlast.demo import audit_ask
from outlast.demo.audit_outage import Request

ASKED = "run.created run.claimed wait.opened"
GOOD = f"{ASKED} run.released question.answered run.claimed wait.ended step.started run.completed"


def journal(kinds: str, by: str = "ann", how: str = "answer") -> list[StoredEvent]:
    data: dict[str, object] = {
        "question.answered": events.QuestionAnswered("q", Raw(b"{}"), by),
        "wait.ended": {"how": how},
    }
    return [
        StoredEvent(
            "run", seq, kind, "pay_back#2", msgspec.json.encode(data.get(kind, {})), 0.0, 1, b""
        )
        for seq, kind in enumerate(kinds.split(), 1)
    ]


@pytest.mark.parametrize(
    ("kinds", "ok"),
    [
        (GOOD, True),
        (ASKED, True),
        ("run.created run.claimed step.started run.completed", False),
        (f"{ASKED} step.started run.released question.answered", False),
        (f"{ASKED} run.released question.answered run.claimed wait.opened", False),
    ],
)
def test_a_run_asks_once_and_pays_nothing_before_the_answer(kinds: str, ok: bool) -> None:
    assert audit_ask.check_asked_first({"run": journal(kinds)}).ok is ok


@pytest.mark.parametrize(
    ("kinds", "by", "ok"),
    [
        (GOOD, "ann", True),
        (GOOD, "", False),
        (ASKED, "ann", False),
        (f"{ASKED} question.answered wait.ended", "ann", False),
        (f"{ASKED} run.released run.claimed question.answered", "ann", False),
        (f"{GOOD} question.answered", "ann", False),
    ],
)
def test_an_answer_comes_from_a_person_while_no_process_has_the_run(
    kinds: str, by: str, ok: bool
) -> None:
    check = audit_ask.check_from_outside({"good": journal(GOOD, "bob"), "run": journal(kinds, by)})
    assert check.ok is ok


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        ([journal(GOOD), journal(GOOD, how="denied")], True),
        ([journal(GOOD, how="denied"), journal(GOOD)], False),
        ([journal(GOOD), journal(ASKED)], False),
        ([journal(GOOD), journal(GOOD, how="timeout")], False),
        ([journal(f"{GOOD} wait.ended"), journal(GOOD, how="denied")], False),
    ],
)
def test_each_run_gets_its_own_answer(found: Sequence[list[StoredEvent]], ok: bool) -> None:
    journals = dict(zip(("first", "second"), found, strict=True))
    expected = {"first": "answer", "second": "denied"}
    assert audit_ask.check_answers(journals, expected).ok is ok


def test_a_bank_that_was_asked_for_a_refund_that_was_denied_is_seen() -> None:
    asked = [Request("NL-1", "booked", 1.0, 0)]
    assert audit_ask.check_untouched(asked, "NL-2").ok
    for outcome in ("booked", "refused", "unavailable"):
        check = audit_ask.check_untouched([*asked, Request("NL-2", outcome, 2.0, 0)], "NL-2")
        assert not check.ok
        assert f"wrong: {outcome}" in check.found
