"""A small real bank on 127.0.0.1: it books on the first sight of a key, then drops the
connection."""

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Bank:
    """The bank's state, as the test sees it.

    Attributes:
        requests: the key of every request to book.
        booked: amount by key.
        drops: how many connections are dropped, after booking or (`books_first=False`) before.
        down: whether looking up answers with an error.
    """

    url: str = ""
    requests: list[str] = field(default_factory=list)
    booked: dict[str, int] = field(default_factory=dict)
    drops: int = 0
    books_first: bool = True
    down: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def book(self, key: str, amount: int) -> bool:
        """Returns whether an answer is sent."""
        with self.lock:
            self.requests.append(key)
            drop, self.drops = self.drops > 0, max(0, self.drops - 1)
            if self.books_first or not drop:
                self.booked.setdefault(key, amount)
            return not drop


@contextmanager
def open_bank() -> Iterator[Bank]:
    """A bank that serves until the block ends."""
    bank = Bank()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if bank.book(self.headers["Idempotency-Key"], body["amount"]):
                self.answer(200, {"booked": body["amount"]})
            else:
                self.connection.shutdown(socket.SHUT_RDWR)

        def do_GET(self) -> None:
            if bank.down:
                self.answer(503, {})
            else:
                self.answer(200, {"booked": bank.booked.get(self.path.removeprefix("/"))})

        def answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    bank.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield bank
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ---- the bank's customers, in the child processes


def post(url: str, key: str, amount: int) -> int:
    """Have an amount booked; returns what the bank says it booked."""
    request = urllib.request.Request(
        url, json.dumps({"amount": amount}).encode(), {"Idempotency-Key": key}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return int(json.load(answer)["booked"])


def look_up(url: str, key: str) -> int | None:
    """What is booked under a key; None if nothing is."""
    with urllib.request.urlopen(f"{url}/{key}", timeout=20) as answer:
        found = json.load(answer)["booked"]
    return None if found is None else int(found)
