"""A real server on 127.0.0.1 that answers as it is told."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """What the server says."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"{}"


@dataclass
class Wire:
    """Where the server is, and how often each answer was asked for."""

    base: str
    asked: Counter[int] = field(default_factory=Counter)

    def url(self, number: int) -> str:
        """The address of an answer by its number; anything may follow it."""
        return f"{self.base}/{number}"


@contextmanager
def serving(answers: Sequence[Answer]) -> Iterator[Wire]:
    """Run the server; `/7/whatever` gets answer number 7."""
    wire = Wire("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave in one piece, so that no client waits for a delayed acknowledgement.
        wbufsize = -1

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            number = int(self.path.split("/")[1])
            wire.asked[number] += 1
            answer = answers[number]
            self.send_response(answer.status, "Said")
            for name, value in (("Content-Type", "application/json"), *answer.headers):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        wire.base = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield wire
        finally:
            server.shutdown()
            thread.join()
