"""Errors of libraries that no loopback server can be made to cause, built as they build them."""

import importlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import apsw
import httpx
import httpx2
import mcp_types
import openai
import psycopg
import psycopg.errors
import pydantic_ai.exceptions
import pytest
import requests
import tenacity
import urllib3.exceptions
from google.genai import errors as google
from mcp.shared.exceptions import MCPError

from outlast.policy.faults import certainly_not_done, classify

pytestmark = pytest.mark.usefixtures("others_garbage")

NOW = 1_800_000_000.0

# They ship no types.
aws_errors: Any = importlib.import_module("botocore.exceptions")
grpc: Any = importlib.import_module("grpc")
grpc_aio: Any = importlib.import_module("grpc.aio")


def aws(code: str, status: int, **headers: str) -> Exception:
    answer: Any = {
        "Error": {"Code": code, "Message": "as AWS words it"},
        "ResponseMetadata": {
            "HTTPStatusCode": status,
            "HTTPHeaders": {name.replace("_", "-"): value for name, value in headers.items()},
            "RetryAttempts": 0,
        },
    }
    made: Exception = aws_errors.ClientError(answer, "Converse")
    return made


def rpc(code: object, details: str = "", **metadata: str) -> Exception:
    pairs = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    before, after = grpc_aio.Metadata(), grpc_aio.Metadata(*pairs)
    made: Exception = grpc_aio.AioRpcError(code, before, after, details=details)
    return made


def gemini(status: int, name: str, message: str = "", *details: object) -> Exception:
    body = {"error": {"code": status, "status": name, "message": message, "details": [*details]}}
    kind = google.ClientError if status < 500 else google.ServerError
    return kind(status, body)


def openai_stream(code: str, message: str = "") -> Exception:
    """As when the error comes in the middle of a stream: no status."""
    request = httpx2.Request("POST", "http://127.0.0.1/")
    return openai.APIError(message, request, body={"code": code, "message": message})


def anthropic_stream(kind: str) -> Exception:
    """As when the error comes in the middle of a stream: the status was 200."""
    response = httpx2.Response(200, request=httpx2.Request("POST", "http://127.0.0.1/"))
    body = {"type": "error", "error": {"type": kind, "message": "as Anthropic words it"}}
    return anthropic.APIStatusError("stream", response=response, body=body)


def model_http(status: int, body: object = None, **headers: str) -> Exception:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return pydantic_ai.exceptions.ModelHTTPError(status, "m", body, headers=named)


def rpc_error(code: int, message: str = "") -> Exception:
    return MCPError(code, message)


def state(code: str) -> Exception:
    return psycopg.errors.lookup(code)("as PostgreSQL words it")


QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}

# what was raised · its class · the wait · whether it counts · whether it certainly did not happen
ERRORS: list[tuple[Exception, str, float | None, bool, bool]] = [
    (aws("ThrottlingException", 400), "throttled", None, False, True),
    (aws("ThrottlingException", 429, retry_after="3"), "throttled", 3, False, True),
    (aws("SlowDown", 503), "throttled", None, True, False),
    (aws("RequestLimitExceeded", 503), "throttled", None, True, False),
    (aws("RequestTimeout", 400), "transient", None, True, True),
    (aws("InternalFailure", 500), "transient", None, True, False),
    (aws("ExpiredToken", 400), "terminal", None, False, True),
    (aws("ExpiredTokenException", 403), "terminal", None, False, True),
    (aws("AccessDeniedException", 403), "terminal", None, False, True),
    (aws("ValidationException", 400), "terminal", None, False, True),
    (aws("ValidationException", 500), "terminal", None, False, False),
    (aws_errors.NoCredentialsError(), "terminal", None, False, False),
    (
        aws_errors.ConnectionClosedError(endpoint_url="http://127.0.0.1/"),
        "transient",
        None,
        True,
        False,
    ),
    (
        aws_errors.EndpointConnectionError(endpoint_url="http://127.0.0.1/"),
        "transient",
        None,
        True,
        True,
    ),
    (
        aws_errors.ReadTimeoutError(endpoint_url="http://127.0.0.1/"),
        "transient",
        None,
        True,
        False,
    ),
    (rpc(grpc.StatusCode.UNAVAILABLE), "transient", None, True, False),
    (rpc(grpc.StatusCode.DEADLINE_EXCEEDED), "transient", None, True, False),
    (rpc(grpc.StatusCode.ABORTED), "transient", None, True, False),
    (rpc(grpc.StatusCode.RESOURCE_EXHAUSTED), "throttled", None, False, True),
    (rpc(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after="2"), "throttled", 2, False, True),
    (
        rpc(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)"),
        "terminal",
        None,
        False,
        True,
    ),
    (rpc(grpc.StatusCode.INVALID_ARGUMENT), "terminal", None, False, True),
    (rpc(grpc.StatusCode.ALREADY_EXISTS), "terminal", None, False, False),
    (rpc(grpc.StatusCode.UNAUTHENTICATED), "terminal", None, False, True),
    (rpc(grpc.StatusCode.DATA_LOSS), "terminal", None, True, False),
    (gemini(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY), "throttled", 34, False, True),
    (gemini(429, "RESOURCE_EXHAUSTED", QUOTA), "throttled", None, False, True),
    (gemini(503, "UNAVAILABLE", "The model is overloaded."), "transient", None, True, False),
    (gemini(500, "INTERNAL"), "transient", None, True, False),
    (gemini(400, "INVALID_ARGUMENT", "API key not valid."), "terminal", None, False, True),
    (gemini(404, "NOT_FOUND", "models/x is not found"), "terminal", None, False, True),
    (openai_stream("server_error"), "transient", None, True, False),
    (openai_stream("rate_limit_exceeded"), "throttled", None, False, False),
    (openai_stream("insufficient_quota"), "terminal", None, False, False),
    (openai_stream("something_new"), "transient", None, True, False),
    (openai.OpenAIError("The api_key client option must be set"), "terminal", None, False, False),
    (anthropic_stream("overloaded_error"), "transient", None, True, False),
    (anthropic_stream("rate_limit_error"), "throttled", None, False, False),
    (anthropic_stream("invalid_request_error"), "terminal", None, False, False),
    (model_http(503), "transient", None, True, False),
    (model_http(429, None, retry_after="4"), "throttled", 4, False, True),
    (model_http(429, {"code": "insufficient_quota"}), "terminal", None, False, True),
    (pydantic_ai.exceptions.ModelAPIError("m", "no connection"), "transient", None, True, False),
    (pydantic_ai.exceptions.UsageLimitExceeded("too many"), "terminal", None, False, False),
    (pydantic_ai.exceptions.UserError("no model"), "terminal", None, False, False),
    (rpc_error(mcp_types.INTERNAL_ERROR), "transient", None, True, False),
    (rpc_error(mcp_types.CONNECTION_CLOSED), "transient", None, True, False),
    (rpc_error(mcp_types.REQUEST_TIMEOUT), "transient", None, True, False),
    (rpc_error(408, "Timed out"), "transient", None, True, False),
    (rpc_error(mcp_types.INVALID_PARAMS), "terminal", None, False, True),
    (rpc_error(mcp_types.METHOD_NOT_FOUND), "terminal", None, False, True),
    (rpc_error(mcp_types.INTERNAL_ERROR, "insufficient_quota"), "terminal", None, False, False),
    (rpc_error(-31999), "terminal", None, True, False),
    (state("08006"), "transient", None, True, False),
    (state("40001"), "transient", None, True, False),
    (state("40P01"), "transient", None, True, False),
    (state("53300"), "transient", None, True, False),
    (state("55P03"), "transient", None, True, False),
    (state("57014"), "transient", None, True, False),
    (state("57P01"), "transient", None, True, False),
    (state("57P03"), "transient", None, True, False),
    (state("57P04"), "terminal", None, False, False),
    (state("23505"), "terminal", None, False, False),
    (state("42P01"), "terminal", None, False, False),
    (state("28P01"), "terminal", None, False, False),
    (state("XX000"), "terminal", None, True, False),
    (psycopg.OperationalError("the connection is lost"), "transient", None, True, False),
    (
        psycopg.OperationalError('FATAL: password authentication failed for user "a"'),
        "terminal",
        None,
        False,
        False,
    ),
    (psycopg.ProgrammingError("no statement"), "terminal", None, False, False),
    (httpx.UnsupportedProtocol("ftp"), "terminal", None, False, False),
    (httpx2.InvalidURL("no"), "terminal", None, False, False),
    (httpx2.DecodingError("gzip"), "terminal", None, True, False),
    (httpx2.PoolTimeout("busy"), "transient", None, True, True),
    (httpx2.WriteTimeout("slow"), "transient", None, True, False),
    (requests.exceptions.InvalidURL("no"), "terminal", None, False, False),
    (requests.exceptions.ChunkedEncodingError("half"), "transient", None, True, False),
    (requests.exceptions.JSONDecodeError("no", "<", 0), "terminal", None, True, False),
    (urllib3.exceptions.LocationParseError("no"), "terminal", None, False, False),
    (
        urllib3.exceptions.ResponseError("too many 503 error responses"),
        "transient",
        None,
        True,
        False,
    ),
    (
        urllib3.exceptions.ResponseError("too many 404 error responses"),
        "terminal",
        None,
        False,
        True,
    ),
    (aiohttp.ServerDisconnectedError(), "transient", None, True, False),
    (aiohttp.ConnectionTimeoutError(), "transient", None, True, True),
    (aiohttp.ClientPayloadError("half"), "transient", None, True, False),
    (aiohttp.InvalidURL("no"), "terminal", None, False, False),
]


@pytest.mark.parametrize(
    ("exc", "kind", "wait", "counts", "not_done"),
    ERRORS,
    ids=[f"{type(row[0]).__name__}-{place}" for place, row in enumerate(ERRORS)],
)
def test_each_error_of_a_library(
    exc: Exception, kind: str, wait: float | None, counts: bool, not_done: bool
) -> None:
    fault = classify(exc, NOW)
    assert (fault.kind, fault.wait, fault.counts) == (kind, wait, counts), (fault, exc)
    assert fault.reason
    assert certainly_not_done(exc) is not_done


def raised_by(make: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as error:
        make()
    return error.value


@pytest.mark.parametrize("library", ["sqlite3", "apsw"])
def test_a_locked_database_is_transient_and_a_wrong_statement_is_not(
    tmp_path: Path, library: str
) -> None:
    path = str(tmp_path / "a.db")
    connections: list[Any] = [
        sqlite3.connect(path, timeout=0) if library == "sqlite3" else apsw.Connection(path)
        for _ in "ab"
    ]
    first, second = connections
    first.execute("CREATE TABLE t (a PRIMARY KEY)")
    first.execute("BEGIN EXCLUSIVE")
    locked = classify(raised_by(lambda: second.execute("BEGIN IMMEDIATE")), NOW)
    assert (locked.kind, locked.counts) == ("transient", True), locked
    wrong = classify(raised_by(lambda: first.execute("SELECT nonsense")), NOW)
    assert (wrong.kind, wrong.counts) == ("terminal", False), wrong
    first.execute("INSERT INTO t VALUES (1)")
    double = classify(raised_by(lambda: first.execute("INSERT INTO t VALUES (1)")), NOW)
    assert (double.kind, double.counts) == ("terminal", False), double
    for connection in connections:
        connection.close()
    (tmp_path / "a.db").write_bytes(b"no database" * 1000)
    damaged: Any = sqlite3.connect(path) if library == "sqlite3" else apsw.Connection(path)
    broken = classify(raised_by(lambda: damaged.execute("SELECT * FROM t")), NOW)
    assert (broken.kind, broken.counts) == ("terminal", True), broken
    damaged.close()


def test_an_error_of_an_older_mcp_has_its_code_one_level_down() -> None:
    old = type("McpError", (Exception,), {"__module__": "mcp.shared.exceptions"})()
    for code, kind in ((408, "transient"), (-32602, "terminal"), (-32603, "transient")):
        old.error = mcp_types.ErrorData(code=code, message="as MCP words it")
        assert classify(old, NOW).kind == kind


def test_what_tenacity_gave_up_on_decides() -> None:
    @tenacity.retry(stop=tenacity.stop_after_attempt(2))
    def reset() -> None:
        raise ConnectionResetError

    assert classify(raised_by(reset), NOW).kind == "transient"


def test_a_client_error_from_a_google_api_without_a_body() -> None:
    assert classify(google.ClientError(429, {}), NOW).kind == "throttled"
