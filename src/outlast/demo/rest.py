"""One JSON request over HTTP, as a coroutine: what the demo's agent needs of an HTTP client."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping

TIMEOUT = 10.0
"""Seconds a server has to answer."""


class Refused(Exception):
    """The server understood the request and will not do it; nothing has happened there."""


async def get(url: str) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        Refused: the server answered with a status of 400 to 499.
        OSError: it did not answer, or with a status of 500 and more.
    """
    return await asyncio.to_thread(_send, urllib.request.Request(url))


async def post(url: str, body: Mapping[str, object], key: str) -> dict[str, object]:
    """Send a JSON object under an idempotency key; raises as `get` does."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return await asyncio.to_thread(_send, request)


def _send(request: urllib.request.Request) -> dict[str, object]:
    # The demo is about loopback; a proxy from the environment must not get between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT) as response:
            answer: dict[str, object] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")
        if error.code < 500:
            raise Refused(f"{error.code}: {text}") from error
        raise
