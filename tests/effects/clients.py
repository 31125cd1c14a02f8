"""The clients that agents use, each asking a server once, without retries of its own."""

import asyncio
import importlib
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import anthropic
import google.genai
import httpx
import httpx2
import openai
import pydantic_ai
import requests
import urllib3
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PATIENCE = 20.0
"""Seconds that a client waits for a server that will answer somehow, on however busy a machine."""


def ask_openai(url: str, timeout: float = PATIENCE) -> object:
    with openai.OpenAI(api_key="none", base_url=url, max_retries=0, timeout=timeout) as client:
        return client.chat.completions.create(model="m", messages=[])


def ask_openai_async(url: str, timeout: float = PATIENCE) -> object:
    async def ask() -> object:
        made = openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0, timeout=timeout)
        async with made as client:
            return await client.chat.completions.create(model="m", messages=[])

    return asyncio.run(ask())


def ask_anthropic(url: str, timeout: float = PATIENCE) -> object:
    made = anthropic.Anthropic(api_key="none", base_url=url, max_retries=0, timeout=timeout)
    with made as client:
        return client.messages.create(model="m", max_tokens=1, messages=[])


def ask_google(url: str, timeout: float = PATIENCE) -> object:
    options = google.genai.types.HttpOptions(base_url=url, timeout=int(timeout * 1000))
    client = google.genai.Client(api_key="none", http_options=options)
    try:
        return client.models.generate_content(model="m", contents="?")
    finally:
        client.close()


def ask_pydantic_ai(url: str, timeout: float = PATIENCE) -> object:
    async def ask() -> object:
        made = openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0, timeout=timeout)
        async with made as client:
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            return await pydantic_ai.Agent(model).run("?")

    return asyncio.run(ask())


def ask_httpx(url: str, timeout: float = PATIENCE) -> object:
    return httpx.post(url, json={}, timeout=timeout).raise_for_status()


def ask_httpx2(url: str, timeout: float = PATIENCE) -> object:
    return httpx2.post(url, json={}, timeout=timeout).raise_for_status()


def ask_httpx_async(url: str, timeout: float = PATIENCE) -> object:
    async def ask() -> object:
        async with httpx.AsyncClient(timeout=timeout) as client:
            return (await client.post(url, json={})).raise_for_status()

    return asyncio.run(ask())


def ask_requests(url: str, timeout: float = PATIENCE) -> object:
    response = requests.post(url, json={}, timeout=timeout)
    response.raise_for_status()
    return response


def ask_urllib3(url: str, timeout: float = PATIENCE) -> object:
    with urllib3.PoolManager(retries=False, timeout=timeout) as pool:
        return pool.request("POST", url, body=b"{}")


def ask_urllib(url: str, timeout: float = PATIENCE) -> object:
    with urllib.request.urlopen(url, data=b"{}", timeout=timeout) as response:
        return response.read()


def ask_aiohttp(url: str, timeout: float = PATIENCE) -> object:
    async def ask() -> object:
        total = aiohttp.ClientTimeout(total=timeout)
        async with (
            aiohttp.ClientSession(timeout=total, raise_for_status=True) as session,
            session.post(url, json={}) as response,
        ):
            return await response.read()

    return asyncio.run(ask())


def ask_botocore(url: str, timeout: float = PATIENCE) -> object:
    session: Any = importlib.import_module("botocore.session").get_session()
    config: Any = importlib.import_module("botocore.config").Config
    session.set_credentials("none", "none")
    client = session.create_client(
        "sts",
        region_name="eu-central-1",
        endpoint_url=url,
        config=config(
            retries={"total_max_attempts": 1}, connect_timeout=timeout, read_timeout=timeout
        ),
    )
    try:
        return client.get_caller_identity()
    finally:
        client.close()


CLIENTS: list[Callable[..., object]] = [
    ask_openai,
    ask_openai_async,
    ask_anthropic,
    ask_google,
    ask_pydantic_ai,
    ask_httpx,
    ask_httpx2,
    ask_httpx_async,
    ask_requests,
    ask_urllib3,
    ask_urllib,
    ask_aiohttp,
    ask_botocore,
]
