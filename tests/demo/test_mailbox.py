"""The mail server, by its wire."""

import asyncio
import smtplib
import socket
import threading
import time
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import quote

import pytest

from outlast.demo import rest
from outlast.demo.children import Children, end
from outlast.demo.mailbox import Deliveries, messages

ID = "<abc/1+2@desk.example>"
LONG_ID = f"<{'5eed' * 16}@northlight.example>"


def letter(message_id: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Desk <desk@desk.example>"
    message["To"] = '"O\'Neill, Zoë" <zoe@mueller.example>'
    message["Subject"] = "Re: Rückgabe – NL-1004"
    message["Message-ID"] = message_id
    message.set_content("Hello,\n\nit’s done.\n.\nA line with one dot is above.\n")
    return message


def send(port: int, message: EmailMessage) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=10) as server:
        server.send_message(message)


def arrived(port: int, message_id: str) -> object:
    url = f"http://127.0.0.1:{port}/messages/{quote(message_id, safe='')}"
    return asyncio.run(rest.get(url))["arrived"]


@pytest.mark.parametrize("message_id", [ID, LONG_ID])
def test_a_mail_arrives_once_as_it_was_sent_and_is_found_by_its_id(
    children: Children, tmp_path: Path, message_id: str
) -> None:
    smtp, web = children.serve("mailbox", "--data", str(tmp_path / "box"))
    assert arrived(web, message_id) == 0
    send(smtp, letter(message_id))
    assert arrived(web, message_id) == 1
    assert arrived(web, "<other@desk.example>") == 0
    (kept,) = messages(tmp_path / "box")
    assert kept["Subject"] == "Re: Rückgabe – NL-1004"
    assert kept["To"].addresses[0].addr_spec == "zoe@mueller.example"
    assert "it’s done.\r\n.\r\n" in kept.get_content()


def test_the_same_mail_sent_twice_is_there_twice_so_that_a_resend_would_be_seen(
    children: Children, tmp_path: Path
) -> None:
    smtp, web = children.serve("mailbox", "--data", str(tmp_path / "box"))
    send(smtp, letter(ID))
    send(smtp, letter(ID))
    assert arrived(web, ID) == 2


def test_killed_between_keeping_a_mail_and_saying_so_it_still_has_it(
    children: Children, tmp_path: Path
) -> None:
    smtp, _ = children.serve("mailbox", "--data", str(tmp_path / "box"), "--latency", "600")
    slow = children.last
    failures: list[Exception] = []

    def ask() -> None:
        try:
            send(smtp, letter(ID))
        except (OSError, smtplib.SMTPException) as error:
            failures.append(error)

    sender = threading.Thread(target=ask)
    sender.start()
    deadline = time.monotonic() + 30
    while not list((tmp_path / "box").glob("*.eml")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    end(slow)
    sender.join()
    assert len(failures) == 1
    _, web = children.serve("mailbox", "--data", str(tmp_path / "box"))
    assert arrived(web, ID) == 1


def test_a_sender_that_dies_in_the_middle_leaves_nothing_and_the_answer_is_final(
    children: Children, tmp_path: Path
) -> None:
    smtp, web = children.serve("mailbox", "--data", str(tmp_path / "box"))
    with socket.create_connection(("127.0.0.1", smtp), timeout=10) as wire:
        lines = wire.makefile("rb")
        lines.readline()
        for command in (b"HELO x", b"MAIL FROM:<a@b.example>", b"RCPT TO:<c@d.example>", b"DATA"):
            wire.sendall(command + b"\r\n")
            lines.readline()
        wire.sendall(f"Message-ID: {ID}\r\n\r\nhalf a mail".encode())
        lines.close()
    assert arrived(web, ID) == 0


def test_not_arrived_is_never_said_while_a_delivery_is_under_way() -> None:
    deliveries = Deliveries()
    deliveries.change(1)
    assert not deliveries.wait_for_none(0.01)
    answers: list[bool] = []
    asker = threading.Thread(target=lambda: answers.append(deliveries.wait_for_none(30)))
    asker.start()
    deliveries.change(-1)
    asker.join()
    assert answers == [True]


def test_an_unknown_page_is_refused(children: Children, tmp_path: Path) -> None:
    _, web = children.serve("mailbox", "--data", str(tmp_path / "box"))
    with pytest.raises(rest.Refused, match="no such page"):
        asyncio.run(rest.get(f"http://127.0.0.1:{web}/"))
