"""The demo's mail server: `python -m outlast.demo.mailbox --data DIR`.

It speaks SMTP on its first port and keeps every message it accepts as a file, acknowledged only
when that file is on disk. On its second port it tells over HTTP whether a message has arrived:

    GET /messages/MESSAGE-ID    {"arrived": 0 or more}, or 503 while a delivery is under way
"""

import asyncio
import email
import email.policy
import os
import threading
from pathlib import Path
from urllib.parse import unquote

from aiosmtpd.smtp import SMTP, Envelope, Session

from outlast.demo.serving import LOOPBACK, HttpServer, JsonHandler, arguments, ready, sync_folder

PATIENCE = 5.0
"""Seconds a question waits for the deliveries under way; then the answer is 503."""


class Deliveries:
    """Counts the SMTP connections that are open.

    Without it "has not arrived" could be said while the message is still on its way in.
    """

    def __init__(self) -> None:
        self._open = 0
        self._changed = threading.Condition()

    def change(self, by: int) -> None:
        """Note that a connection opened (1) or ended (-1)."""
        with self._changed:
            self._open += by
            self._changed.notify_all()

    def wait_for_none(self, seconds: float) -> bool:
        """Wait until no connection is open; false if that takes longer than `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, seconds)


class Mailbox:
    """Keeps messages, one file each, and accepts them from aiosmtpd.

    Args:
        folder: where the files go.
        latency: seconds between a message being safe and its sender being told.
    """

    def __init__(self, folder: Path, latency: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._latency = latency

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Keep one message; aiosmtpd calls this when the last byte is in."""
        content = envelope.content
        assert isinstance(content, bytes)
        self._keep(content)
        await asyncio.sleep(self._latency)
        return "250 OK: on disk"

    def arrived(self, message_id: str) -> int:
        """How many messages with this Message-ID are here."""
        # A long id is folded to the next line on its way, which leaves a blank before it.
        kept = [str(message["Message-ID"]).strip() for message in messages(self._folder)]
        return kept.count(message_id)

    def _keep(self, content: bytes) -> None:
        target = self._folder / f"{len(list(self._folder.glob('*.eml'))) + 1:04}.eml"
        draft = target.with_suffix(".part")
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(target)
        sync_folder(self._folder)


def messages(folder: Path) -> list[email.message.EmailMessage]:
    """All messages that were accepted, oldest first."""
    parse = email.message_from_bytes
    files = sorted(folder.glob("*.eml"))
    return [parse(file.read_bytes(), policy=email.policy.default) for file in files]


def handler(mailbox: Mailbox, deliveries: Deliveries) -> type[JsonHandler]:
    """The HTTP face of a mailbox."""

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            if not self.path.startswith("/messages/"):
                self.answer(404, {"error": f"no such page: {self.path}"})
            elif not deliveries.wait_for_none(PATIENCE):
                self.answer(503, {"error": "a delivery is under way, ask again"})
            else:
                message_id = unquote(self.path.removeprefix("/messages/"))
                self.answer(200, {"arrived": mailbox.arrived(message_id)})

    return Handler


def smtp(mailbox: Mailbox, deliveries: Deliveries) -> type[SMTP]:
    """aiosmtpd's protocol, with its connections counted."""

    class Protocol(SMTP):
        def __init__(self) -> None:
            super().__init__(mailbox, hostname="mail.northlight.example", enable_SMTPUTF8=True)

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            deliveries.change(1)
            super().connection_made(transport)

        def connection_lost(self, error: Exception | None) -> None:
            # From here on aiosmtpd accepts nothing more from this connection.
            super().connection_lost(error)
            deliveries.change(-1)

    return Protocol


async def serve(folder: Path, port: int, latency: float, with_parent: bool) -> None:
    """Serve SMTP and HTTP until the process is ended."""
    mailbox, deliveries = Mailbox(folder, latency), Deliveries()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(smtp(mailbox, deliveries), LOOPBACK, port)
    web = HttpServer((LOOPBACK, 0), handler(mailbox, deliveries))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    ready(server.sockets[0].getsockname()[1], web.server_port, with_parent=with_parent)
    await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = arguments("The demo's mail server")
    parser.add_argument("--data", type=Path, required=True, help="folder of the messages")
    options = parser.parse_args()
    asyncio.run(serve(options.data, options.port, options.latency, options.with_parent))


if __name__ == "__main__":
    main()
