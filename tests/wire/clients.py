"""Real clients, their own retries off: each makes a request and gives back the error it raised."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiohttp
import anthropic
import httpx
import httpx2
import openai
import requests

Ask = Callable[[str], Exception]


def error_of(call: Callable[[], object]) -> Exception:
    """The exception that a call ends with."""
    try:
        call()
    except Exception as exc:
        return exc
    raise AssertionError("it went well")


@contextmanager
def by_httpx() -> Iterator[Ask]:
    with httpx.Client() as client:
        yield lambda url: error_of(lambda: client.post(url, json={}).raise_for_status())


@contextmanager
def by_httpx2() -> Iterator[Ask]:
    with httpx2.Client() as client:
        yield lambda url: error_of(lambda: client.post(url, json={}).raise_for_status())


@contextmanager
def by_requests() -> Iterator[Ask]:
    with requests.Session() as session:
        yield lambda url: error_of(lambda: session.post(url, json={}).raise_for_status())


@contextmanager
def by_openai() -> Iterator[Ask]:
    with openai.OpenAI(api_key="none", base_url="http://127.0.0.1/", max_retries=0) as client:

        def ask(url: str) -> Exception:
            here = client.with_options(base_url=url)
            return error_of(lambda: here.chat.completions.create(model="m", messages=[]))

        yield ask


@contextmanager
def by_anthropic() -> Iterator[Ask]:
    with anthropic.Anthropic(api_key="none", max_retries=0) as client:

        def ask(url: str) -> Exception:
            here = client.with_options(base_url=url)
            return error_of(lambda: here.messages.create(model="m", max_tokens=1, messages=[]))

        yield ask


@contextmanager
def by_aiohttp() -> Iterator[Ask]:
    with asyncio.Runner() as runner:

        async def make() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(raise_for_status=True)

        session = runner.run(make())

        async def post(url: str) -> None:
            async with session.post(url, json={}):
                pass

        yield lambda url: error_of(lambda: runner.run(post(url)))
        runner.run(session.close())


CLIENTS = {
    "httpx": by_httpx,
    "httpx2": by_httpx2,
    "requests": by_requests,
    "openai": by_openai,
    "anthropic": by_anthropic,
    "aiohttp": by_aiohttp,
}
WITHOUT_BODY = frozenset({"aiohttp"})
"""Their errors do not have the body of the answer."""
