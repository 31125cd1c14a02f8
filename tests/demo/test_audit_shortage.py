"""The audit sees when a run has spent too much, or something twice."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from outlast import StoredEvent, Usage, events
from outlast.demo import audit_shortage
from outlast.demo.audit_shortage import Spent

BILL = [Spent("a", Decimal("0.004")), Spent("b", Decimal("0.005")), Spent("c", Decimal("0.002"))]
LIMIT, RAISED = Decimal("0.01"), Decimal("0.02")


def test_what_was_spent_within_the_limits_passes() -> None:
    assert audit_shortage.check_limit(BILL[:2], BILL, LIMIT, RAISED).ok
    assert audit_shortage.check_paid_once(BILL).ok


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (BILL, BILL, "before the top-up"),
        (BILL[:2], [*BILL, Spent("d", Decimal("0.01"))], "in the end"),
        (BILL[:1], BILL[:2], "enough anyway"),
    ],
)
def test_more_than_the_limit_or_no_need_of_more_fails(
    before: list[Spent], after: list[Spent], why: str
) -> None:
    check = audit_shortage.check_limit(before, after, LIMIT, RAISED)
    assert not check.ok
    assert why in check.found


def test_an_answer_that_was_paid_for_twice_fails() -> None:
    check = audit_shortage.check_paid_once([*BILL, BILL[1]])
    assert not check.ok
    assert "wrong: b" in check.found


def charged(usd: str | None, *, settled: bool = True) -> StoredEvent:
    cost = Usage(usd=None if usd is None else Decimal(usd))
    data = msgspec.json.encode(events.StepCharged(1, cost, settled=settled))
    return StoredEvent("run", 1, "step.charged", "think#0", data, 0.0, 1, b"")


def test_a_run_that_tells_another_sum_than_the_bill_fails() -> None:
    right = [charged("0.004"), charged("0.007"), charged("0.007", settled=False)]
    assert audit_shortage.check_account(BILL, right).ok
    assert not audit_shortage.check_account(BILL, right[:1]).ok
    assert not audit_shortage.check_account(BILL, [*right, charged("0.001")]).ok
    assert not audit_shortage.check_account([*BILL, BILL[0]], right).ok


def test_the_bill_is_read_exactly(tmp_path: Path) -> None:
    line = '{"answer": "a", "read": 1, "written": 2, "usd": "0.10"}\n'
    (tmp_path / "bill.jsonl").write_text(line)
    assert audit_shortage.bill(tmp_path) == [Spent("a", Decimal("0.1"))]
