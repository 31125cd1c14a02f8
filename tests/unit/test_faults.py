"""P6: the table of faults, and the narrower question whether anything can have happened."""

import asyncio
import errno
import socket
import ssl
import urllib.error
from email.message import Message

import pytest

import outlast
from outlast.policy.faults import certainly_not_done, classify, http_status


class HttpxLike(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = type("Response", (), {"status_code": status})()


class AiohttpLike(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class OpenaiLike(Exception):
    def __init__(self, status: int, code: str | None = None, body: object = None) -> None:
        super().__init__("too many requests")
        self.status_code = status
        self.code = code
        self.body = body


def urllib_error(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://127.0.0.1/", status, "text", Message(), None)


class ConnectError(Exception):
    """As of httpx: no connection."""


class ReadTimeout(TimeoutError):
    """As of httpx: no answer."""


class APIConnectionError(Exception):
    """As of the model clients: wraps one of the others."""


def handshake(reason: str) -> ssl.SSLError:
    exc = ssl.SSLError(1, reason)
    exc.reason = reason
    return exc


def caused(by: BaseException, exc: Exception | None = None) -> Exception:
    """As after `raise exc from by`."""
    exc = exc or RuntimeError("the client's own wrapper")
    exc.__cause__ = by
    return exc


def in_passing(during: BaseException, exc: Exception | None = None) -> Exception:
    """As after `raise ...` in an `except` block, without `from`."""
    exc = exc or RuntimeError("something else")
    exc.__context__ = during
    return exc


REFUSED = ConnectionRefusedError(111, "refused")
LOOK_UP = socket.gaierror(-2, "name not known")
BAD_CERTIFICATE = ssl.SSLCertVerificationError("bad certificate")


@pytest.mark.parametrize("make", [HttpxLike, AiohttpLike, OpenaiLike, urllib_error])
def test_a_status_is_found_however_the_client_spells_it(make: type[Exception]) -> None:
    exc = make(503)
    assert http_status(exc) == 503
    assert classify(exc).status == 503


@pytest.mark.parametrize(
    ("code", "found"), [(True, None), ("503", None), (99, None), (600, None), (100, 100)]
)
def test_what_is_no_status_is_not_taken_for_one(code: object, found: int | None) -> None:
    exc = Exception()
    exc.code = code  # type: ignore[attr-defined]
    assert http_status(exc) == found


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (AiohttpLike(429), "throttled"),
        (OpenaiLike(429, "rate_limit_exceeded"), "throttled"),
        (OpenaiLike(429, "insufficient_quota"), "terminal"),
        (OpenaiLike(429, None, {"error": {"code": "insufficient_quota"}}), "terminal"),
        *((AiohttpLike(status), "transient") for status in (408, 425, 500, 502, 503, 504, 529)),
        *((AiohttpLike(status), "terminal") for status in (400, 401, 403, 404, 409, 413, 422)),
        (ConnectionResetError(), "transient"),
        (BrokenPipeError(), "transient"),
        (REFUSED, "transient"),
        (LOOK_UP, "transient"),
        (TimeoutError(), "transient"),
        (outlast.StepTimeout("too slow"), "transient"),
        (ValueError("a bug"), "terminal"),
        (FileNotFoundError(2, "no such file"), "terminal"),
        (BAD_CERTIFICATE, "terminal"),
        (outlast.NotDone("the account is closed"), "terminal"),
        (caused(ConnectionResetError()), "transient"),
        (caused(caused(AiohttpLike(503))), "transient"),
        (caused(ConnectionResetError(), AiohttpLike(404)), "terminal"),
        (in_passing(ConnectionResetError()), "terminal"),
        (OSError(errno.ENETUNREACH, "network is unreachable"), "transient"),
        (OSError(errno.EHOSTUNREACH, "no route to host"), "transient"),
        (ConnectError(), "transient"),
        (caused(ConnectError(), APIConnectionError()), "transient"),
        (caused(BAD_CERTIFICATE, ConnectError()), "terminal"),
        (in_passing(BAD_CERTIFICATE, ConnectError()), "terminal"),
        (urllib.error.URLError(REFUSED), "transient"),
        (urllib.error.URLError(TimeoutError()), "transient"),
        (urllib.error.URLError("unknown url type"), "terminal"),
    ],
    ids=repr,
)
def test_each_kind_of_fault(exc: Exception, kind: str) -> None:
    assert classify(exc).kind == kind


RETRYABLE, TERMINAL, CANCELLED = ConnectionResetError(), ValueError(), asyncio.CancelledError()


@pytest.mark.parametrize(
    ("leaves", "kind"),
    [
        ([RETRYABLE], "transient"),
        ([CANCELLED, RETRYABLE], "transient"),
        ([RETRYABLE, TERMINAL], "terminal"),
        ([ExceptionGroup("inner", [RETRYABLE]), RETRYABLE], "transient"),
        ([ExceptionGroup("inner", [RETRYABLE, TERMINAL]), RETRYABLE], "terminal"),
        ([CANCELLED], "terminal"),
    ],
)
def test_a_group_is_as_bad_as_its_worst_leaf(leaves: list[BaseException], kind: str) -> None:
    assert classify(BaseExceptionGroup("outer", leaves)).kind == kind


class Declined(Exception):
    pass


class DeclinedByBank(Declined):
    pass


@pytest.mark.parametrize(
    "exc",
    [
        REFUSED,
        LOOK_UP,
        BAD_CERTIFICATE,
        outlast.NotDone(),
        Declined(),
        DeclinedByBank(),
        *(AiohttpLike(status) for status in (400, 401, 404, 422, 425, 429)),
        caused(REFUSED),
        caused(caused(LOOK_UP)),
        ConnectError(),
        caused(ConnectError(), APIConnectionError()),
        handshake("SSLV3_ALERT_HANDSHAKE_FAILURE"),
        caused(handshake("DECRYPT_ERROR"), ConnectError()),
        urllib.error.URLError(REFUSED),
        urllib.error.URLError(BAD_CERTIFICATE),
    ],
    ids=repr,
)
def test_known_not_to_have_happened(exc: Exception) -> None:
    assert certainly_not_done(exc, (Declined,))


@pytest.mark.parametrize(
    "exc",
    [
        *(AiohttpLike(status) for status in (200, 302, 408, 409, 499, 500, 502, 503, 504)),
        TimeoutError(),
        outlast.StepTimeout("too slow"),
        ConnectionResetError(),
        ConnectionAbortedError(),
        BrokenPipeError(),
        EOFError(),
        ValueError("the answer was not JSON"),
        Declined(),
        caused(ConnectionResetError()),
        in_passing(REFUSED),
        # A fallback that came after the refusal is what this error is about.
        caused(REFUSED, TimeoutError()),
        caused(REFUSED, ConnectionResetError()),
        caused(REFUSED, ReadTimeout()),
        caused(AiohttpLike(400), TimeoutError()),
        caused(ReadTimeout(), APIConnectionError()),
        APIConnectionError(),
        handshake("WRONG_VERSION_NUMBER"),
        ssl.SSLEOFError(),
        OSError(errno.ENETUNREACH, "network is unreachable"),
        urllib.error.URLError(TimeoutError()),
        urllib.error.URLError(ConnectionResetError()),
    ],
    ids=repr,
)
def test_everything_else_leaves_doubt(exc: Exception) -> None:
    assert not certainly_not_done(exc)


def test_a_loop_of_causes_comes_to_an_end() -> None:
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert classify(first).kind == "terminal"
    assert not certainly_not_done(first)
