"""P6 with the clients that agents use: what their errors say about a refused connection, a server
that does not answer, and one that hangs up."""

import asyncio
import importlib
import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

import outlast
from outlast.policy.faults import certainly_not_done, classify
from tests.effects.stage import Stage

# Whichever of the two the installed openai speaks HTTP with.
httpx: Any = importlib.import_module("httpx2" if importlib.util.find_spec("httpx2") else "httpx")

TIMEOUT = 0.3
"""Seconds that a client waits for the server that never answers."""


def ask_openai(url: str) -> object:
    with openai.OpenAI(api_key="none", base_url=url, max_retries=0, timeout=TIMEOUT) as client:
        return client.chat.completions.create(model="m", messages=[])


def ask_openai_async(url: str) -> object:
    async def ask() -> object:
        made = openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0, timeout=TIMEOUT)
        async with made as client:
            return await client.chat.completions.create(model="m", messages=[])

    return asyncio.run(ask())


def ask_httpx(url: str) -> object:
    return httpx.post(url, json={}, timeout=TIMEOUT)


def ask_httpx_async(url: str) -> object:
    async def ask() -> object:
        async with httpx.AsyncClient(timeout=TIMEOUT) as client:
            return await client.post(url, json={})

    return asyncio.run(ask())


CLIENTS = [ask_openai, ask_openai_async, ask_httpx, ask_httpx_async]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a server that refuses connections, is silent, or hangs up."""
    with socket.socket() as listener:
        listener.settimeout(20)  # so that a client that never comes cannot stop the test run
        listener.bind(("127.0.0.1", 0))
        if request.param != "refuses":  # bound but not listening, a port refuses
            listener.listen()
        thread = threading.Thread(target=hang_up, args=(listener,))
        if request.param == "hangs up":
            thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        if request.param == "hangs up":
            thread.join()


def hang_up(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)


@pytest.mark.parametrize("ask", CLIENTS)
@pytest.mark.parametrize(
    ("server", "not_done"),
    [("refuses", True), ("is silent", False), ("hangs up", False)],
    indirect=["server"],
)
def test_network_trouble_is_transient_and_leaves_doubt_once_something_was_sent(
    ask: Callable[[str], object], server: str, not_done: bool
) -> None:
    with pytest.raises(Exception) as error:  # each client has classes of its own
        ask(server)
    assert classify(error.value).kind == "transient", repr(error.value)
    assert certainly_not_done(error.value) is not_done, repr(error.value)


@pytest.mark.parametrize("server", ["hangs up"], indirect=True)
@pytest.mark.parametrize("ask", CLIENTS)
def test_a_failed_tls_handshake_means_that_nothing_was_sent(
    ask: Callable[[str], object], server: str
) -> None:
    with pytest.raises(Exception) as error:
        ask(server.replace("http:", "https:"))
    assert certainly_not_done(error.value), repr(error.value)


@pytest.mark.parametrize("server", ["refuses"], indirect=True)
@pytest.mark.parametrize("effect", ["read", "once"])
def test_a_model_step_is_tried_again_when_the_connection_was_refused(
    stage: Stage, server: str, effect: Any
) -> None:
    tries: list[int] = []

    @outlast.step(effect=effect, retry=outlast.Retry(attempts=2, first=0))
    def think() -> str:
        tries.append(1)
        return str(ask_openai(server)) if len(tries) == 1 else "thought"

    @outlast.workflow
    def flow() -> str:
        return think()

    assert outlast.run(flow, run_id="run", store=stage.url) == "thought"
    assert stage.step("think#0").attempts == 2
