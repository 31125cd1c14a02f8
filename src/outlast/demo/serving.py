"""What the demo's three servers share: JSON over HTTP, durable lines, and how a server starts.

They stand for other people's systems, so they know nothing about runs, steps or journals.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOOPBACK = "127.0.0.1"


class BadRequest(Exception):
    """The client's request cannot be understood; its text becomes the answer."""


class JsonHandler(BaseHTTPRequestHandler):
    """A request handler that reads and answers JSON and keeps quiet otherwise."""

    protocol_version = "HTTP/1.1"

    def read_json(self) -> dict[str, object]:
        """Read the request's body.

        Raises:
            BadRequest: the body is not a JSON object.
        """
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
        except ValueError as problem:
            raise BadRequest(f"the body is not JSON: {problem}") from problem
        if not isinstance(body, dict):
            raise BadRequest("the body must be a JSON object")
        return body

    def answer(self, status: int, body: Mapping[str, object]) -> None:
        """Send `body` as JSON."""
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        # Whoever asked may have been killed meanwhile: here that is an ordinary event.
        try:
            self.wfile.write(raw)
            self.wfile.flush()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the records on disk are the log."""


class HttpServer(ThreadingHTTPServer):
    """An HTTP server on loopback that takes a client's sudden death calmly."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print what went wrong, unless it is only that the client has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Lines:
    """An append-only file of JSON lines. A line that `append` has returned from is on disk."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; a line that a crash left half-written is dropped."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.path = path
        data = path.read_bytes()
        os.ftruncate(self._file, data.rfind(b"\n") + 1)
        sync_folder(path.parent)

    def read(self) -> list[dict[str, object]]:
        """All lines, oldest first."""
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]

    def append(self, line: Mapping[str, object]) -> None:
        """Write one line and wait until it is on disk."""
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all three servers have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="slowness in seconds")
    parser.add_argument(
        "--with-parent", action="store_true", help="end when standard input is closed"
    )
    return parser


def ready(*ports: int, with_parent: bool) -> None:
    """Tell the starter on standard output that requests are welcome, and where."""
    if with_parent:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    print("READY", *ports, flush=True)


def _end_with_parent() -> None:
    sys.stdin.read()  # returns when the parent is gone, however it went
    os._exit(0)
