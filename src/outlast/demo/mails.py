"""Reads the inbox: RFC 5322 mails as files, in whatever form people's programs send them."""

import email
import email.policy
from dataclasses import dataclass
from email.message import EmailMessage, MIMEPart
from html.parser import HTMLParser
from pathlib import Path

INBOX = Path(__file__).with_name("inbox")
"""The mails that come with the demo."""


@dataclass(frozen=True)
class Mail:
    """A mail as the desk sees it.

    Attributes:
        name: its file's name.
        text: what was written, decoded; forwarded mails follow it.
        attachments: names of attached files.
        automatic: value of the header Auto-Submitted, "" for a mail that a person sent.
    """

    name: str
    message_id: str
    sender: str
    subject: str
    date: str
    text: str
    attachments: tuple[str, ...] = ()
    automatic: str = ""

    def as_text(self) -> str:
        """The mail as a model reads it."""
        headers = {"From": self.sender, "Date": self.date, "Subject": self.subject}
        if self.automatic:
            headers["Auto-Submitted"] = self.automatic
        if self.attachments:
            headers["Attachments"] = ", ".join(self.attachments)
        lines = [f"{name}: {' '.join(value.split())}" for name, value in headers.items()]
        return "\n".join(lines) + "\n\n" + self.text


def names(inbox: Path) -> list[str]:
    """Names of the mails in a folder, in the order in which to work on them."""
    return sorted(path.name for path in inbox.glob("*.eml"))


def read(path: Path) -> Mail:
    """Read one `.eml` file.

    Raises:
        OSError: the file cannot be read.
    """
    message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    return Mail(
        name=path.name,
        message_id=str(message["Message-ID"]),
        sender=str(message["From"]),
        subject=str(message["Subject"] or ""),
        date=str(message["Date"]),
        text=_text(message),
        attachments=tuple(filter(None, (part.get_filename() for part in message.walk()))),
        automatic=str(message["Auto-Submitted"] or ""),
    )


def _text(message: EmailMessage) -> str:
    body = message.get_body(("plain", "html"))
    texts = [_part_text(body)] if body is not None else []
    for part in message.iter_attachments():
        if part.get_content_type() == "message/rfc822":
            inner = part.get_content()
            texts.append(f"--- forwarded: {inner['Subject']} ---\n{_text(inner)}")
        elif part.get_content_maintype() == "text" and part.get_filename() is None:
            texts.append(_part_text(part))
    return "\n\n".join(texts)


def _part_text(part: MIMEPart) -> str:
    text = str(part.get_content()).replace("\r\n", "\n").strip()
    if part.get_content_subtype() == "html":
        return _without_tags(text)
    if part.get_param("format") == "flowed":
        return _unflow(text, joined=str(part.get_param("delsp") or "").lower() == "yes")
    return text


def _unflow(text: str, joined: bool) -> str:
    """Undo format=flowed (RFC 3676): a line that ends in a space goes on in the next one."""
    out = ""
    for line in text.split("\n"):
        line = line.removeprefix(" ")
        soft = line.endswith(" ") and line != "-- "
        out += (line[:-1] if joined else line) if soft else line + "\n"
    return out.strip()


def _without_tags(html: str) -> str:
    reader = _HtmlText()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).split("\n"))
    return "\n".join(line for line in lines if line)


class _HtmlText(HTMLParser):
    """Keeps the words of an HTML mail and starts a line for each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"style", "script", "title"}:
            self._hidden += 1
        elif tag in {"p", "br", "div", "tr", "li", "h1", "h2", "blockquote"}:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"style", "script", "title"}:
            self._hidden -= 1

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            # A line break in HTML source is a blank like any other.
            self.pieces.append(data.replace("\n", " "))
