"""A client library that had retried by itself under a step is noticed. Real ones, against a real
server that is always overloaded."""

import asyncio
import importlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import google.genai
import openai
import pytest
import requests
import requests.adapters
import tenacity
import urllib3

from outlast.policy.faults import certainly_not_done, inner_retries
from tests.wire.clients import error_of
from tests.wire.server import Answer, Wire, serving

pytestmark = pytest.mark.usefixtures("others_garbage")

OVERLOADED, WRONG, LIMITED, SILENT = range(4)
SOON = (("retry-after-ms", "1"),)


@pytest.fixture
def wire() -> Iterator[Wire]:
    answers = [Answer(503, SOON), Answer(400), Answer(429, SOON), Answer(503, body=b"")]
    with serving(answers) as wire:
        yield wire


def ask_openai(url: str, retries: int) -> object:
    with openai.OpenAI(api_key="none", base_url=url, max_retries=retries) as client:
        return client.chat.completions.create(model="m", messages=[])


def ask_openai_async(url: str, retries: int) -> object:
    async def ask() -> object:
        made = openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=retries)
        async with made as client:
            return await client.chat.completions.create(model="m", messages=[])

    return asyncio.run(ask())


def ask_anthropic(url: str, retries: int) -> object:
    with anthropic.Anthropic(api_key="none", base_url=url, max_retries=retries) as client:
        return client.messages.create(model="m", max_tokens=1, messages=[])


def ask_requests(url: str, retries: int) -> object:
    """As is usual: an adapter that retries some statuses, and raises at the end."""
    again = urllib3.Retry(retries, status_forcelist=[503, 429], allowed_methods=None)
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=again))
        response = session.post(url, json={})
        response.raise_for_status()
        return response


def ask_requests_quietly(url: str, retries: int) -> object:
    """The same, but it is the last answer that raises."""
    again = urllib3.Retry(
        retries, status_forcelist=[503, 429], allowed_methods=None, raise_on_status=False
    )
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=again))
        session.post(url, json={}).raise_for_status()
    return None


def ask_urllib3(url: str, retries: int) -> object:
    again = urllib3.Retry(retries, status_forcelist=[503, 429], allowed_methods=None)
    with urllib3.PoolManager(retries=again) as pool:
        response = pool.request("POST", url)
    if response.status >= 400:
        raise RuntimeError(response.status)
    return None


def once(url: str) -> None:
    requests.post(url, json={}, timeout=10).raise_for_status()


def is_not_wrong(exc: BaseException) -> bool:
    return getattr(getattr(exc, "response", None), "status_code", None) != 400


def ask_by_tenacity(url: str, retries: int) -> object:
    again = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(1 + retries),
        retry=tenacity.retry_if_exception(is_not_wrong),
    )
    return again(once, url)


def ask_by_tenacity_reraising(url: str, retries: int) -> object:
    again = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(1 + retries),
        retry=tenacity.retry_if_exception(is_not_wrong),
        reraise=True,
    )
    return again(once, url)


def ask_by_tenacity_async(url: str, retries: int) -> object:
    again = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(1 + retries),
        retry=tenacity.retry_if_exception(is_not_wrong),
        reraise=True,
    )

    async def ask() -> None:
        await asyncio.to_thread(once, url)

    return asyncio.run(again(ask))


def ask_by_tenacity_in_a_loop(url: str, retries: int) -> object:
    for attempt in tenacity.Retrying(
        stop=tenacity.stop_after_attempt(1 + retries),
        retry=tenacity.retry_if_exception(is_not_wrong),
        reraise=True,
    ):
        with attempt:
            once(url)
    return None


def ask_botocore(url: str, retries: int) -> object:
    session: Any = importlib.import_module("botocore.session").get_session()
    config: Any = importlib.import_module("botocore.config").Config
    session.set_credentials("none", "none")
    client = session.create_client(
        "sts",
        region_name="eu-central-1",
        endpoint_url=url,
        config=config(retries={"total_max_attempts": 1 + retries, "mode": "legacy"}),
    )
    try:
        return client.get_caller_identity()
    finally:
        client.close()


CLIENTS: dict[Callable[[str, int], object], str] = {
    ask_openai: "openai",
    ask_openai_async: "openai",
    ask_anthropic: "anthropic",
    ask_requests: "urllib3",
    ask_requests_quietly: "urllib3",
    ask_urllib3: "urllib3",
    ask_by_tenacity: "tenacity",
    ask_by_tenacity_reraising: "tenacity",
    ask_by_tenacity_async: "tenacity",
    ask_by_tenacity_in_a_loop: "tenacity",
}


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore waits for a random part of a second between its tries."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)


@pytest.mark.parametrize("ask", CLIENTS)
def test_retries_of_a_client_are_noticed_and_counted(
    wire: Wire, ask: Callable[[str, int], object]
) -> None:
    exc = error_of(lambda: ask(wire.url(OVERLOADED), 2))
    assert inner_retries(exc) == f"{CLIENTS[ask]} (2 retries of its own)"
    assert wire.asked[OVERLOADED] == 3
    one = error_of(lambda: ask(wire.url(OVERLOADED), 1))
    assert inner_retries(one) == f"{CLIENTS[ask]} (1 retry of its own)"


@pytest.mark.parametrize("ask", CLIENTS)
def test_a_client_that_did_not_retry_is_not_accused(
    wire: Wire, ask: Callable[[str, int], object]
) -> None:
    assert inner_retries(error_of(lambda: ask(wire.url(OVERLOADED), 0))) == ""
    assert wire.asked[OVERLOADED] == 1
    if ask is not ask_urllib3:  # that one raises nothing by itself
        assert inner_retries(error_of(lambda: ask(wire.url(WRONG), 2))) == ""
        assert wire.asked[WRONG] == 1


@pytest.mark.usefixtures("no_waiting")
def test_botocore_counts_too(wire: Wire) -> None:
    exc = error_of(lambda: ask_botocore(wire.url(SILENT), 2))
    assert inner_retries(exc) == "botocore (2 retries of its own)"
    assert wire.asked[SILENT] == 3
    assert inner_retries(error_of(lambda: ask_botocore(wire.url(SILENT), 0))) == ""
    with socket.socket() as closed:  # bound but not listening, a port refuses
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        lost = error_of(lambda: ask_botocore(url, 2))
    assert inner_retries(lost) == "botocore (2 retries of its own)"


def test_a_hidden_second_try_of_the_google_client_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("google.genai._api_client.random.randint", lambda _low, _high: -1)
    with socket.socket() as listener:
        listener.settimeout(20)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=hang_up_for_good, args=(listener,))
        thread.start()
        exc = error_of(lambda: ask_google_async(url))
        thread.join()
    assert inner_retries(exc) == "google (1 retry of its own)"
    # The second try was refused, but the first had been sent.
    assert not certainly_not_done(exc)


def hang_up_for_good(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    listener.close()
    with connection:
        connection.recv(1)


def ask_google_async(url: str) -> object:
    async def ask() -> object:
        options = google.genai.types.HttpOptions(base_url=url)
        async with google.genai.Client(api_key="none", http_options=options).aio as client:
            return await client.models.generate_content(model="m", contents="?")

    return asyncio.run(ask())


def test_layers_on_layers_are_all_named(wire: Wire) -> None:
    again = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), reraise=True)
    exc = error_of(lambda: again(ask_openai, wire.url(OVERLOADED), 1))
    assert inner_retries(exc) == "tenacity (1 retry of its own), openai (1 retry of its own)"
    assert wire.asked[OVERLOADED] == 4


def test_they_are_found_behind_a_wrapper_and_in_a_group(wire: Wire) -> None:
    exc = error_of(lambda: ask_openai(wire.url(OVERLOADED), 1))
    wrapped = RuntimeError("no answer")
    wrapped.__cause__ = exc
    assert inner_retries(wrapped) == "openai (1 retry of its own)"
    assert inner_retries(ExceptionGroup("tools", [exc])) == "openai (1 retry of its own)"


def test_a_refusal_after_retries_leaves_doubt_about_the_requests_before(wire: Wire) -> None:
    assert certainly_not_done(error_of(lambda: ask_openai(wire.url(LIMITED), 0)))
    assert not certainly_not_done(error_of(lambda: ask_openai(wire.url(LIMITED), 1)))
