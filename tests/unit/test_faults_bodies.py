"""What the body of an answer says counts more than its status: scenarios 23 and 24."""

import json

import httpx2
import openai
import pytest

from outlast.policy.faults import classify
from outlast.policy.faults.sayings import GENERIC, PERMANENT, SAYINGS, THROTTLED, Saying

NOW = 1_800_000_000.0
CLIENT = openai.OpenAI(api_key="none")
"""It makes errors here, and no requests."""


def answered(status: int, body: object, **headers: str) -> Exception:
    """The error of the real client for an answer with this body."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.Response(status, content=raw, request=request, headers=named)
    return CLIENT._make_status_error_from_response(response)


def unread(status: int, body: bytes, query: str = "") -> Exception:
    """The error of a client that does not look into the answer."""
    request = httpx2.Request("GET", f"http://127.0.0.1/{query}")
    with pytest.raises(httpx2.HTTPStatusError) as error:
        httpx2.Response(status, content=body, request=request).raise_for_status()
    return error.value


def says(code: str | None = None, message: str = "as the provider words it") -> object:
    return {"error": {"message": message, "type": "error", "code": code}}


def test_a_used_up_quota_is_terminal_however_friendly_it_is_told() -> None:
    for message in ("You exceeded your current quota", "Too many requests, please slow down"):
        fault = classify(answered(429, says("insufficient_quota", message), retry_after="2"), NOW)
        assert (fault.kind, fault.counts) == ("terminal", False)
        assert "quota" in fault.reason


def test_a_rate_limit_is_throttled_and_so_is_what_cannot_be_read() -> None:
    limited = classify(answered(429, says("rate_limit_exceeded"), retry_after="2"), NOW)
    assert (limited.kind, limited.wait, limited.counts) == ("throttled", 2.0, False)
    for body in (b"", b"<html>", b"\xff\xfe\x00", b"{", b"[" * 50_000, [1], "text", None):
        fault = classify(answered(429, body, retry_after="2"), NOW)
        assert (fault.kind, fault.wait) == ("throttled", 2.0), body


@pytest.mark.parametrize("saying", [*PERMANENT, *GENERIC], ids=lambda s: s.reason)
@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_every_permanent_code_is_terminal_whatever_the_status(saying: Saying, status: int) -> None:
    for code in saying.codes:
        for spelled in (code, code.upper(), f"com.example#{code}"):
            fault = classify(answered(status, says(spelled)), NOW)
            assert (fault.kind, fault.counts) == ("terminal", False), (code, fault)
            assert fault.reason == f"HTTP {status}, {saying.reason}"


@pytest.mark.parametrize("code", [code for saying in THROTTLED for code in saying.codes])
@pytest.mark.parametrize("status", [400, 403, 429, 503])
def test_every_code_of_a_limit_is_throttled(code: str, status: int) -> None:
    assert classify(answered(status, says(code)), NOW).kind == "throttled"


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (500, "This model's maximum context length is 128000 tokens.", "too large"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", "too large"),
        (429, "Request too large for gpt-9 on tokens per min (TPM): Limit 10", "too large"),
        (429, "You exceeded your current quota, please check your plan.", "quota"),
        (400, "Your credit balance is too low to access the API.", "quota"),
        (500, "Incorrect API key provided: sk-x.", "key"),
        (503, "The model `gpt-9` does not exist or you do not have access to it.", "model"),
        (500, "litellm.NotFoundError: Unknown model gpt-9", "model"),
    ],
)
def test_the_words_of_a_message_tell_as_well(status: int, message: str, reason: str) -> None:
    fault = classify(answered(status, says(None, message)), NOW)
    assert (fault.kind, fault.counts) == ("terminal", False)
    assert reason in fault.reason
    # Also where a proxy passes it on as text.
    assert classify(answered(status, message.encode()), NOW).kind == "terminal"


def test_quota_words_with_a_wait_are_a_limit_that_passes() -> None:
    error = answered(429, says(None, "You exceeded your current quota"), retry_after="30")
    assert classify(error, NOW).kind == "throttled"


def test_a_permanent_status_inside_of_the_body_is_believed() -> None:
    assert classify(answered(500, {"error": {"code": 400}}), NOW).kind == "terminal"
    assert classify(answered(502, {"error": {"code": 502}}), NOW).kind == "transient"
    assert classify(answered(429, {"error": {"code": 429}}), NOW).kind == "throttled"
    assert classify(answered(500, {"rows": [{"code": 404}]}), NOW).kind == "transient"


def test_what_a_request_was_about_is_not_taken_for_what_the_answer_says() -> None:
    echo = {"error": {"message": "overloaded"}, "input": "maximum context length"}
    assert classify(answered(500, echo), NOW).kind == "transient"
    asked_about = unread(503, b"", "?q=insufficient_quota")
    assert "insufficient_quota" in str(asked_about)
    assert classify(asked_about, NOW).kind == "transient"


def test_a_body_too_long_to_be_parsed_is_searched_at_its_beginning() -> None:
    filler = {"more": "x" * 300_000}
    first = json.dumps({"code": "context_length_exceeded", **filler}).encode()
    last = json.dumps({**filler, "code": "context_length_exceeded"}).encode()
    assert classify(unread(500, first), NOW).kind == "terminal"
    assert classify(unread(500, last), NOW).kind == "transient"


def test_a_code_tells_more_than_the_words_beside_it() -> None:
    error = answered(429, says("insufficient_quota", "the model was not found"))
    assert classify(error, NOW).reason == "HTTP 429, the quota is used up"


def test_no_code_has_two_meanings() -> None:
    codes = [code for saying in SAYINGS for code in saying.codes]
    assert len({code.replace("_", "").lower() for code in codes}) == len(codes)
