"""The payment server, by its wire."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from outlast.demo import audit_outage, rest
from outlast.demo.bank import Bank, numbers
from outlast.demo.children import Children, end

LAMP = {"order_id": "NL-1001", "amount": 4990}


def open_bank(children: Children, data: Path, *more: str) -> str:
    (port,) = children.serve("bank", "--data", str(data), *more)
    return f"http://127.0.0.1:{port}"


def post(bank: str, body: dict[str, object], key: str) -> dict[str, object]:
    return asyncio.run(rest.post(f"{bank}/refunds", body, key))


def get(url: str) -> dict[str, object]:
    return asyncio.run(rest.get(url))


def bookings(bank: str) -> list[dict[str, object]]:
    found = get(f"{bank}/ledger")["bookings"]
    assert isinstance(found, list)
    return found


def test_a_repeated_key_is_booked_once_and_gets_the_first_answer(
    children: Children, tmp_path: Path
) -> None:
    bank = open_bank(children, tmp_path)
    first = post(bank, LAMP, "k1")
    assert first == {"refund_id": "RF-NL-1001-1", **LAMP}
    assert post(bank, LAMP, "k1") == first
    assert [line["key"] for line in bookings(bank)] == ["k1"]
    assert get(f"{bank}/orders/NL-1001")["refunded"] == 4990


def test_another_key_books_again_so_that_a_changed_key_would_be_seen(
    children: Children, tmp_path: Path
) -> None:
    bank = open_bank(children, tmp_path)
    post(bank, LAMP, "k1")
    assert post(bank, LAMP, "k2")["refund_id"] == "RF-NL-1001-2"
    assert len(bookings(bank)) == 2


def test_every_request_is_on_record_with_what_became_of_it(
    children: Children, tmp_path: Path
) -> None:
    bank = open_bank(children, tmp_path)
    post(bank, LAMP, "k1")
    post(bank, LAMP, "k1")
    with pytest.raises(rest.Refused, match="422"):
        post(bank, {"order_id": "NL-1001", "amount": 1}, "k1")
    lines = (tmp_path / "requests.jsonl").read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["booked", "repeated", "refused"]
    assert len(bookings(bank)) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"order_id": "NL-0000", "amount": 1}, 404),
        ({"order_id": "NL-1001", "amount": 4991}, 400),
        ({"order_id": "NL-1001", "amount": 0}, 400),
        ({"order_id": "NL-1001", "amount": True}, 400),
        ({"order_id": "NL-1001", "amount": "10"}, 400),
        ({}, 404),
    ],
)
def test_a_senseless_refund_is_refused_and_not_booked(
    body: dict[str, object], status: int, tmp_path: Path
) -> None:
    bank = Bank(tmp_path)
    assert bank.refund("k", body.get("order_id"), body.get("amount"))[0] == status
    assert bank.ledger() == (200, {"bookings": []})


def test_no_key_no_booking(children: Children, tmp_path: Path) -> None:
    bank = open_bank(children, tmp_path)
    request = urllib.request.Request(f"{bank}/refunds", json.dumps(LAMP).encode())
    with pytest.raises(urllib.error.HTTPError, match="400") as caught:
        urllib.request.urlopen(request, timeout=10)
    caught.value.close()
    assert bookings(bank) == []


def test_killed_between_booking_and_answer_it_still_knows_the_key(
    children: Children, tmp_path: Path
) -> None:
    (port,) = children.serve("bank", "--data", str(tmp_path), "--latency", "600")
    slow = children.last
    failures: list[OSError] = []

    def ask() -> None:
        try:
            post(f"http://127.0.0.1:{port}", LAMP, "k1")
        except OSError as error:
            failures.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    # Its latency lies after the booking, so once the line is there the answer never comes.
    deadline = time.monotonic() + 30
    while not (tmp_path / "requests.jsonl").read_bytes().endswith(b"\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    end(slow)
    asker.join()
    assert len(failures) == 1

    bank = open_bank(children, tmp_path)
    assert post(bank, LAMP, "k1") == {"refund_id": "RF-NL-1001-1", **LAMP}
    assert len(bookings(bank)) == 1


def test_a_line_torn_by_a_crash_is_dropped_at_the_next_start(tmp_path: Path) -> None:
    Bank(tmp_path).refund("k1", "NL-1001", 4990)
    ledger = tmp_path / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b'{"key": "k2", "refu')
    bank = Bank(tmp_path)
    assert ledger.read_bytes() == whole
    assert bank.refund("k2", "NL-1002", 100)[0] == 201
    assert len(ledger.read_bytes().splitlines()) == 2


def record(data: Path) -> list[audit_outage.Request]:
    return audit_outage.requests(data)


def test_in_an_outage_nothing_is_booked_and_afterwards_the_same_key_is(
    children: Children, tmp_path: Path
) -> None:
    bank = open_bank(children, tmp_path, "--outage", "2-3")
    post(bank, LAMP, "k1")
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            post(bank, LAMP, "k2")
        assert caught.value.code == 503
    assert len(bookings(bank)) == 1
    assert post(bank, LAMP, "k2")["refund_id"] == "RF-NL-1001-2"
    found = record(tmp_path)
    assert [one.outcome for one in found] == ["booked", "unavailable", "unavailable", "booked"]
    times = [one.at for one in found]
    assert times == sorted(times)


def test_requests_are_counted_on_when_the_bank_starts_again(tmp_path: Path) -> None:
    outage = range(2, 3)
    assert Bank(tmp_path, outage).refund("k1", "NL-1001", 1)[0] == 201
    bank = Bank(tmp_path, outage)
    assert bank.refund("k2", "NL-1001", 1)[0] == 503
    assert bank.refund("k2", "NL-1001", 1)[0] == 201


def test_it_is_on_record_whether_others_were_waiting_for_their_answers(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    bank.refund("k1", "NL-1001", 1)
    asker = threading.Thread(target=bank.refund, args=("k2", "NL-1001", 1, 600.0), daemon=True)
    asker.start()
    deadline = time.monotonic() + 30
    while len(record(tmp_path)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    bank.refund("k3", "NL-1001", 1)
    assert [one.beside for one in record(tmp_path)] == [0, 0, 1]


def test_an_outage_that_is_no_range_is_refused() -> None:
    assert list(numbers("2-5")) == [2, 3, 4, 5]
    for text in ("", "2", "a-b", "2-5-6", "-1-2"):
        with pytest.raises(ValueError, match="FIRST-LAST"):
            numbers(text)
