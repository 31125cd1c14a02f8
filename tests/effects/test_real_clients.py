"""P6 with the clients that agents use: what their errors say about a refused connection, a server
that does not answer, one that hangs up, one that talks nonsense, and one that breaks off."""

import asyncio
import importlib
import smtplib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import outlast
from outlast.policy.faults import certainly_not_done, classify, inner_retries
from tests.effects.clients import CLIENTS, PATIENCE, ask_openai
from tests.effects.stage import Stage

pytestmark = pytest.mark.usefixtures("others_garbage")

NOW = 1_800_000_000.0

SHORT = 0.5
"""Seconds that a client waits for the server that never answers."""

ANSWERS = {
    "hangs up": b"",
    "talks nonsense": b"nonsense\r\n\r\n",
    "breaks off": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{",
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a server that refuses connections, is silent, or answers as in the table."""
    with socket.socket() as listener:
        listener.settimeout(PATIENCE)  # so that a client that never comes cannot stop the test run
        listener.bind(("127.0.0.1", 0))
        if request.param != "refuses":  # bound but not listening, a port refuses
            listener.listen()
        answer = ANSWERS.get(request.param)
        thread = threading.Thread(target=reply, args=(listener, answer))
        if answer is not None:
            thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        if answer is not None:
            thread.join()


def reply(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        if answer:  # all of the request is read, else the system would reset the connection
            connection.settimeout(PATIENCE)
            read = more = connection.recv(65536)
            while more and read.startswith(b"P") and not is_whole(read):
                more = connection.recv(65536)
                read += more
            connection.sendall(answer)
        else:
            connection.recv(1)


def is_whole(request: bytes) -> bool:
    head, blank, body = request.partition(b"\r\n\r\n")
    length = next(
        (line.partition(b":")[2] for line in head.lower().split(b"\r\n") if b"content-le" in line),
        b"0",
    )
    return bool(blank) and len(body) >= int(length)


def error_of(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as error:  # each client has classes of its own
        call()
    return error.value


@pytest.mark.parametrize("ask", CLIENTS)
@pytest.mark.parametrize(
    ("server", "timeout", "not_done"),
    [
        ("refuses", PATIENCE, True),
        ("is silent", SHORT, False),
        ("hangs up", PATIENCE, False),
        ("talks nonsense", PATIENCE, False),
        ("breaks off", PATIENCE, False),
    ],
    indirect=["server"],
)
def test_network_trouble_is_transient_and_leaves_doubt_once_something_was_sent(
    ask: Callable[..., object], server: str, timeout: float, not_done: bool
) -> None:
    exc = error_of(lambda: ask(server, timeout))
    fault = classify(exc, NOW)
    assert (fault.kind, fault.counts) == ("transient", True), repr(exc)
    assert certainly_not_done(exc) is not_done, repr(exc)
    assert inner_retries(exc) == ""


@pytest.mark.parametrize("server", ["hangs up"], indirect=True)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_failed_tls_handshake_means_that_nothing_was_sent(
    ask: Callable[..., object], server: str
) -> None:
    exc = error_of(lambda: ask(server.replace("http:", "https:")))
    assert certainly_not_done(exc), repr(exc)
    assert classify(exc, NOW).kind == "transient", repr(exc)


@pytest.mark.parametrize("server", ["talks nonsense"], indirect=True)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_server_that_does_not_speak_tls_will_not_learn_it(
    ask: Callable[..., object], server: str
) -> None:
    exc = error_of(lambda: ask(server.replace("http:", "https:")))
    fault = classify(exc, NOW)
    assert (fault.kind, fault.counts) == ("terminal", True), repr(exc)
    assert certainly_not_done(exc), repr(exc)


@pytest.mark.parametrize("server", ["refuses"], indirect=True)
def test_a_refused_connection_of_other_tools_is_transient(server: str) -> None:
    port = int(server.rpartition(":")[2])
    mail = error_of(lambda: smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE))
    assert classify(mail, NOW).kind == "transient"
    assert certainly_not_done(mail)
    database = error_of(lambda: psycopg.connect(f"host=127.0.0.1 port={port} user=a dbname=a"))
    assert classify(database, NOW).kind == "transient"
    grpc: Any = importlib.import_module("grpc")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        remote = error_of(lambda: channel.unary_unary("/a.B/C")(b"", timeout=PATIENCE))
    assert classify(remote, NOW).reason.startswith("gRPC UNAVAILABLE")


@pytest.mark.parametrize("server", ["hangs up"], indirect=True)
def test_a_mail_server_that_hangs_up_is_transient(server: str) -> None:
    port = int(server.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as first:
        first.sendall(b"x")  # the server hangs up after one letter, and a client is no first talker
        lost = error_of(lambda: _helo(first))
    assert isinstance(lost, smtplib.SMTPServerDisconnected)
    assert classify(lost, NOW).kind == "transient"
    assert not certainly_not_done(lost)


def _helo(connection: socket.socket) -> None:
    client = smtplib.SMTP()
    client.sock = connection
    try:
        client.helo("a")
    finally:
        client.close()


def test_a_child_process_that_fails_tells_its_exit_code() -> None:
    python = [sys.executable, "-c"]
    failed = error_of(lambda: subprocess.run([*python, "exit(3)"], check=True))
    assert classify(failed, NOW).reason == "exit code 3"
    assert (classify(failed, NOW).kind, classify(failed, NOW).counts) == ("terminal", True)
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    killed = error_of(lambda: subprocess.run([*python, suicide], check=True))
    assert (classify(killed, NOW).kind, classify(killed, NOW).reason) == (
        "transient",
        "killed by SIGKILL",
    )
    for_ever = "import threading; threading.Event().wait()"
    slow = error_of(lambda: subprocess.run([*python, for_ever], timeout=0.01))
    assert classify(slow, NOW).kind == "transient"
    missing = error_of(lambda: subprocess.run(["/nonexistent/program"], check=True))
    assert (classify(missing, NOW).kind, classify(missing, NOW).counts) == ("terminal", False)


def test_a_task_group_with_one_failed_tool_is_judged_by_that_tool() -> None:
    async def fails() -> None:
        raise ConnectionResetError

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
            group.create_task(fails())

    assert classify(error_of(lambda: asyncio.run(both())), NOW).kind == "transient"


@pytest.mark.parametrize("server", ["refuses"], indirect=True)
@pytest.mark.parametrize("effect", ["read", "once"])
def test_a_model_step_is_tried_again_when_the_connection_was_refused(
    stage: Stage, server: str, effect: Any
) -> None:
    tries: list[int] = []

    @outlast.step(effect=effect, retry=outlast.Retry(attempts=2, initial=0))
    def think() -> str:
        tries.append(1)
        return str(ask_openai(server)) if len(tries) == 1 else "thought"

    @outlast.workflow
    def flow() -> str:
        return think()

    assert outlast.run(flow, run_id="run", store=stage.url) == "thought"
    assert stage.step("think#0").attempts == 2
