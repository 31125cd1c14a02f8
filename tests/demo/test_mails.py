"""The mails that come with the demo, as the desk reads them."""

import email
import email.policy

import pytest

from outlast.demo import mails

WORDS = {
    "01-plain.eml": "The order is NL-1001.\nI would like a refund",
    "02-alternative.eml": "Hi there — the floor lamp flickers whatever bulb I put in.",
    "03-html-only.eml": "129,50 € (order NL-1003) and it is green",
    "04-windows-1252.eml": "die Wandleuchte „Dora“ (Bestellung NL-1004, 79,00 €)",
    "05-iso-8859-15.eml": "NL-1005 (34,50 €) hier. Un cœur d'enfant",
    "06-encoded-subject.eml": "That’s not what “garden lantern” means",
    "07-shift-jis.eml": "注文番号 NL-1007 の提灯が破れて届きました。\n返金",
    "08-koi8-r.eml": "Люстра (заказ NL-1008, доставлена в декабре)",
    "09-photo.eml": "See the photo. Refund please!\n\nSent from my phone",
    "10-invoice-attached.eml": "the invoice is attached.",
    "11-forwarded.eml": "--- forwarded: Night light ---\nHej! The night light (NL-1011) hums",
    "12-long-thread.eml": ">>>> Which bulb fits the lamp of order NL-1099?",
    "13-format-flowed.eml": "blinks like a disco. My order has the number NL-1013 and I",
    "14-unclear.eml": "i want my money back",
    "15-beyond-policy.eml": "Since last July your street lamp",
    "16-again.eml": "I am waiting for the refund of NL-1001.",
    "17-auto-reply.eml": "I am away until Monday.",
    "18-two-orders.eml": "Med vänlig hälsning\nHotel Sjöutsikt",
    "19-advertisement.eml": "Only today!\nBulbs & more — buy now.",
}


def test_the_table_above_has_every_mail() -> None:
    assert list(WORDS) == mails.names(mails.INBOX)


@pytest.mark.parametrize("name", WORDS)
def test_a_mail_is_read_as_its_writer_meant_it(name: str) -> None:
    assert WORDS[name] in mails.read(mails.INBOX / name).text


@pytest.mark.parametrize("name", WORDS)
def test_a_mail_is_a_sound_one(name: str) -> None:
    raw = (mails.INBOX / name).read_bytes()
    assert b"\n" not in raw.replace(b"\r\n", b"")
    message = email.message_from_bytes(raw, policy=email.policy.default)
    for part in message.walk():
        assert part.defects == []
    for header in ("From", "To", "Date", "Message-ID", "Subject"):
        assert message[header], header
        assert message[header].defects == (), header


def test_headers_and_attachments_are_decoded() -> None:
    def mail(name: str) -> mails.Mail:
        return mails.read(mails.INBOX / name)

    assert mail("04-windows-1252.eml").subject == "Rückgabe – NL-1004"
    assert mail("06-encoded-subject.eml").subject == "😞 Refund for my lantern, order NL-1006"
    assert mail("07-shift-jis.eml").sender == "佐藤 花子 <hanako.sato@yubin.example>"
    assert mail("08-koi8-r.eml").subject == "Возврат денег за люстру"
    assert mail("09-photo.eml").attachments == ("IMG_0417.png",)
    assert mail("10-invoice-attached.eml").attachments == ("invoice of clip light NL-1010.pdf",)
    assert mail("17-auto-reply.eml").automatic == "auto-replied"
    assert "Auto-Submitted: auto-replied\n" in mail("17-auto-reply.eml").as_text()


def test_no_two_mails_have_the_same_message_id() -> None:
    ids = {mails.read(mails.INBOX / name).message_id for name in WORDS}
    assert len(ids) == len(WORDS)


@pytest.mark.parametrize(
    ("name", "start"), [("09-photo.eml", b"\x89PNG\r\n"), ("10-invoice-attached.eml", b"%PDF-1.4")]
)
def test_attachments_are_real_files(name: str, start: bytes) -> None:
    raw = (mails.INBOX / name).read_bytes()
    message = email.message_from_bytes(raw, policy=email.policy.default)
    (part,) = [part for part in message.walk() if part.get_filename()]
    assert part.get_content().startswith(start)
