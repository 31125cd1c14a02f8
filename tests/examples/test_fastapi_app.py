"""The example of a web application, over real HTTP: its server is killed in the middle of a run."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.ownership.children import until

APP = Path(__file__).parents[2] / "examples" / "fastapi_app"
PATIENCE = 30.0
TICKET = {"id": "ticket-81", "text": "my lamp is broken", "eur": 900}

SERVER = """
import socket, sys
import uvicorn

listening = socket.socket(fileno=int(sys.argv[1]))
config = uvicorn.Config("app:app", log_level="warning", timeout_graceful_shutdown=1)
uvicorn.Server(config).run(sockets=[listening])
"""


@contextmanager
def server(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", httpx.Client]]:
    """The example on a port that the system chose. It listens before the program is up, so that
    requests wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(listening.fileno())],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(APP), "OUTLAST_STORE": f"sqlite:///{folder}/s.db"},
            pass_fds=(listening.fileno(),),
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
            yield process, http
    finally:
        process.kill()
        process.wait()


def stream(http: httpx.Client, after: int = 0) -> Iterator[tuple[int | None, str, dict[str, str]]]:
    """Server-sent events: number, kind, data."""
    with http.stream("GET", f"/tickets/ticket-81/events?after={after}") as response:
        assert response.status_code == 200
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            number = int(fields["id"]) if "id" in fields else None
            yield number, fields["event"], json.loads(fields["data"])
            fields = {}


@pytest.mark.timeout(180)
def test_a_run_of_the_web_application_survives_kill_9_of_its_server(tmp_path: Path) -> None:
    with server(tmp_path) as (process, http):
        started = http.post("/tickets", json=TICKET)
        assert (started.status_code, started.json()["run_id"]) == (202, "ticket-81")
        seen: list[int] = []
        for number, kind, data in stream(http):
            if number is not None:
                seen.append(number)
            if kind == "token":
                assert data == {"step": "draft#0", "attempt": 1, "data": "Sorry"}
                break
        process.kill()  # in the middle of the answer

    with server(tmp_path) as (process, http):
        assert http.get("/tickets/other").status_code == 404
        other = http.post("/tickets", json={**TICKET, "eur": 901})
        assert other.status_code == 409
        assert "other arguments" in other.json()["error"]
        assert http.post("/tickets", json=TICKET).status_code == 202, "the same run"
        (question,) = until(lambda: http.get("/questions").json(), "the question")
        assert question["prompt"] == "Refund 900 EUR?"
        assert "my lamp is broken" in question["details"]
        said = http.post(f"/questions/{question['question']}", json={"approved": True})
        assert said.status_code == 204
        again = http.post(f"/questions/{question['question']}", json={"approved": False})
        assert again.status_code in (404, 409)
        for number, kind, _ in stream(http, after=seen[-1]):
            if number is not None:
                seen.append(number)
                last = kind
        assert last == "run.completed"
        assert seen == list(range(1, len(seen) + 1)), "none twice, none left out"
        state = http.get("/tickets/ticket-81").json()
        assert state["status"] == "completed"
        assert state["result"].endswith("(refunded 900 EUR)")
        process.terminate()
        process.wait(PATIENCE)
    assert len((tmp_path / "ledger.txt").read_text().splitlines()) == 1
