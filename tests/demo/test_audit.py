"""The audit sees what is wrong outside."""

from collections.abc import Callable
from dataclasses import asdict
from email.message import EmailMessage
from pathlib import Path

import pytest

from outlast.demo import audit, mails
from outlast.demo.agent import Line, Receipt, Report
from outlast.demo.bank import ORDERS, Bank
from outlast.records import StoredEvent

EXPECTED = audit.by_the_rules()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger and a mailbox as they should be."""
    bank = Bank(tmp_path)
    for order in audit.REFUNDED:
        assert bank.refund(f"key-{order}", order, ORDERS[order][1])[0] == 201
    for name in mails.names(mails.INBOX):
        if name not in audit.UNANSWERED:
            put_answer(tmp_path, name)
    return tmp_path


def put_answer(folder: Path, name: str, suffix: str = "") -> None:
    message = EmailMessage()
    message["In-Reply-To"] = mails.read(mails.INBOX / name).message_id
    message.set_content("Hello")
    (folder / f"{name}{suffix}.eml").write_bytes(message.as_bytes())


def test_what_is_right_passes(folder: Path) -> None:
    assert audit.check_ledger(folder, EXPECTED).ok
    assert audit.check_mailbox(folder, EXPECTED).ok


def doubled(lines: list[str]) -> list[str]:
    return [*lines, lines[3]]


def missing(lines: list[str]) -> list[str]:
    return lines[1:]


def wrong_amount(lines: list[str]) -> list[str]:
    return [line.replace("4990", "4900") for line in lines]


def wrong_order(lines: list[str]) -> list[str]:
    return [line.replace("NL-1012", "NL-1099") for line in lines]


@pytest.mark.parametrize("spoil", [doubled, missing, wrong_amount, wrong_order])
def test_a_ledger_that_is_not_right_fails(
    folder: Path, spoil: Callable[[list[str]], list[str]]
) -> None:
    ledger = folder / "ledger.jsonl"
    ledger.write_text("".join(spoil(ledger.read_text().splitlines(keepends=True))))
    check = audit.check_ledger(folder, EXPECTED)
    assert not check.ok
    assert "wrong: NL-10" in check.found


def test_an_answer_that_is_there_twice_fails(folder: Path) -> None:
    put_answer(folder, "04-windows-1252.eml", ".again")
    check = audit.check_mailbox(folder, EXPECTED)
    assert not check.ok
    assert "wrong: 04-windows-1252.eml" in check.found


def test_an_answer_that_is_missing_fails(folder: Path) -> None:
    (folder / "14-unclear.eml.eml").unlink()
    assert not audit.check_mailbox(folder, EXPECTED).ok


def test_an_answer_to_an_automatic_mail_fails(folder: Path) -> None:
    put_answer(folder, "17-auto-reply.eml")
    assert not audit.check_mailbox(folder, EXPECTED).ok


def test_another_result_or_none_fails() -> None:
    report = asdict(Report((Line("01-plain.eml", "refunded", (), 1),)))
    other = asdict(Report((Line("01-plain.eml", "declined", (), 1),)))
    assert audit.check_result(report, report).ok
    assert not audit.check_result(report, other).ok
    assert not audit.check_result(None, None).ok


def event(kind: str, key: str, run_id: str = "refund-desk") -> StoredEvent:
    return StoredEvent(run_id, 1, kind, key, b"{}", 0.0, 1, b"")


def test_a_finished_step_that_was_started_again_fails() -> None:
    twice = [event("step.started", "think#0"), event("step.started", "think#0")]
    done = event("step.completed", "think#0")
    assert audit.check_steps([*twice, done]).ok
    assert audit.check_steps([*twice, done, event("step.started", "think#0", "another")]).ok
    check = audit.check_steps([twice[0], done, twice[1]])
    assert not check.ok
    assert "wrong: think#0" in check.found


def test_a_real_model_is_held_to_its_own_report() -> None:
    receipt = Receipt("RF-NL-1001-1", "NL-1001", 4990)
    lines = (
        Line("01-plain.eml", "postponed", (), 1),
        Line("01-plain.eml", "refunded", (receipt,), 1),
        Line("17.eml", "ignored", (), 0),
    )
    expected = audit.by_the_report(asdict(Report(lines)))
    assert expected.refunds == {("NL-1001", 4990): 1}
    assert +expected.replies == {"01-plain.eml": 2}


def test_repeats_that_the_bank_absorbed_are_counted(folder: Path) -> None:
    bank = Bank(folder)
    bank.refund("key-NL-1001", "NL-1001", 4990)
    assert audit.repeats(folder) == 1
    assert audit.check_ledger(folder, EXPECTED).ok
