"""P6: the classes of faults, and the narrower question whether anything can have happened."""

import asyncio
import concurrent.futures
import errno
import http.client
import json
import signal
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import urllib.error
from email.message import Message

import pytest

from outlast.errors import (
    BodyCancelled,
    BreakerOpen,
    InDoubt,
    NotDone,
    NotStorable,
    StepTimeout,
    StoreError,
    Terminal,
    Transient,
    UsageError,
)
from outlast.policy.faults import Fault, certainly_not_done, classify, http_status

NOW = 1_800_000_000.0


class HttpxLike(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = type("Response", (), {"status_code": status})()


class AiohttpLike(Exception):
    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


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

    __module__ = "httpx"


class ReadTimeout(TimeoutError):
    """As of a client that derives its own from the builtin one."""


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
    assert classify(exc, NOW).status == 503


@pytest.mark.parametrize(
    ("code", "found"), [(True, None), ("503", None), (99, None), (600, None), (100, 100)]
)
def test_what_is_no_status_is_not_taken_for_one(code: object, found: int | None) -> None:
    exc = Exception()
    exc.code = code  # type: ignore[attr-defined]
    assert http_status(exc) == found


TRANSIENT = [
    *(AiohttpLike(status) for status in (408, 425, 500, 501, 502, 503, 504, 529)),
    ConnectionResetError(),
    BrokenPipeError(),
    REFUSED,
    LOOK_UP,
    TimeoutError(),
    StepTimeout("too slow"),
    caused(ConnectionResetError()),
    caused(caused(AiohttpLike(503))),
    caused(ConnectionResetError(), ValueError("cannot fetch the page")),
    OSError(errno.ENETUNREACH, "network is unreachable"),
    OSError(errno.EHOSTUNREACH, "no route to host"),
    OSError(errno.EBUSY, "busy"),
    BlockingIOError(errno.EAGAIN, "try again"),
    ConnectError(),
    caused(ConnectError(), APIConnectionError()),
    APIConnectionError(),
    ssl.SSLEOFError(),
    handshake("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
    urllib.error.URLError(REFUSED),
    urllib.error.URLError(TimeoutError()),
    http.client.RemoteDisconnected("closed"),
    http.client.IncompleteRead(b"half"),
    asyncio.IncompleteReadError(b"half", 10),
    subprocess.TimeoutExpired("make", 3),
    subprocess.CalledProcessError(-signal.SIGKILL, "make"),
    smtplib.SMTPServerDisconnected("closed"),
    smtplib.SMTPDataError(451, b"try later"),
    smtplib.SMTPRecipientsRefused({"a@b.c": (450, b"greylisted")}),
    Transient("the printer is warm"),
    caused(ConnectionResetError(), NotDone("the queue is full")),
]
TERMINAL = [
    *(AiohttpLike(status) for status in (400, 401, 403, 404, 409, 413, 418, 422, 302)),
    OpenaiLike(429, "insufficient_quota"),
    OpenaiLike(429, None, {"error": {"code": "insufficient_quota"}}),
    OpenaiLike(500, "context_length_exceeded"),
    ValueError("a bug"),
    TypeError(),
    KeyError("x"),
    IndexError(),
    AttributeError(),
    AssertionError(),
    ImportError(),
    NameError(),
    NotImplementedError(),
    RecursionError(),
    ZeroDivisionError(),
    FileNotFoundError(2, "no such file"),
    PermissionError(errno.EACCES, "denied"),
    OSError(errno.ENOSPC, "no space"),
    caused(KeyError("x")),
    caused(ConnectionResetError(), AiohttpLike(404)),
    caused(UnicodeEncodeError("ascii", "ü", 0, 1, "no"), APIConnectionError()),
    smtplib.SMTPAuthenticationError(535, b"no"),
    smtplib.SMTPRecipientsRefused({"a@b.c": (450, b"grey"), "d@e.f": (550, b"unknown")}),
    sqlite3.IntegrityError("not unique"),
    concurrent.futures.CancelledError(),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(404),
    StoreError("full"),
    NotStorable("a lock"),
    UsageError("wrong"),
    BreakerOpen("mail", 0.0, "HTTP 500"),
    InDoubt("pay#0", "it raised"),
    BodyCancelled("by somebody"),
    Terminal("no such customer"),
    NotDone("the account is closed"),
    caused(RuntimeError(), NotDone("the account is closed")),
    caused(ConnectionResetError(), Terminal("no such customer")),
]
BROKEN = [
    Exception(),
    RuntimeError("broken"),
    OSError("without a number"),
    EOFError(),
    in_passing(ConnectionResetError()),
    BAD_CERTIFICATE,
    handshake("TLSV1_ALERT_PROTOCOL_VERSION"),
    caused(BAD_CERTIFICATE, ConnectError()),
    in_passing(BAD_CERTIFICATE, ConnectError()),
    caused(handshake("WRONG_VERSION_NUMBER"), ConnectError()),
    urllib.error.URLError("unknown url type"),
    subprocess.CalledProcessError(2, "make"),
    subprocess.CalledProcessError(-signal.SIGSEGV, "make"),
    json.JSONDecodeError("no value", "<html>", 0),
    AiohttpLike(200),
]
THROTTLED = [
    (AiohttpLike(429), None, False),
    (AiohttpLike(429, retry_after="2"), 2.0, False),
    (AiohttpLike(503, retry_after="2"), 2.0, True),
    (OpenaiLike(429, "rate_limit_exceeded"), None, False),
    (AiohttpLike(403, x_ratelimit_remaining="0", x_ratelimit_reset="1800000060"), 60.0, False),
    (Transient("later", retry_after=3), 3.0, True),
]


@pytest.mark.parametrize("exc", TRANSIENT, ids=repr)
def test_what_may_pass_is_transient_and_the_tools_fault(exc: Exception) -> None:
    fault = classify(exc, NOW)
    assert (fault.kind, fault.counts) == ("transient", True), fault
    assert fault.reason


@pytest.mark.parametrize("exc", TERMINAL, ids=repr)
def test_what_the_caller_did_wrong_is_terminal_and_not_the_tools_fault(exc: Exception) -> None:
    fault = classify(exc, NOW)
    assert (fault.kind, fault.counts) == ("terminal", False), fault
    assert fault.reason


@pytest.mark.parametrize("exc", BROKEN, ids=repr)
def test_a_tool_that_is_broken_in_a_way_of_its_own_is_terminal_and_counts(exc: Exception) -> None:
    fault = classify(exc, NOW)
    assert (fault.kind, fault.counts) == ("terminal", True), fault
    assert fault.reason


@pytest.mark.parametrize(("exc", "wait", "counts"), THROTTLED, ids=repr)
def test_a_tool_that_wants_to_be_left_alone(
    exc: Exception, wait: float | None, counts: bool
) -> None:
    fault = classify(exc, NOW)
    assert (fault.kind, fault.wait, fault.counts) == ("throttled", wait, counts), fault


@pytest.mark.parametrize("asked", [float("nan"), float("inf"), "soon", 1e9, True, 10**400])
def test_a_wait_that_is_nonsense_is_left_out(asked: float) -> None:
    fault = classify(Transient("later", retry_after=asked), NOW)
    assert (fault.kind, fault.wait) == ("transient", None)
    assert classify(Transient("later", retry_after=-3), NOW).wait == 0.0


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (AiohttpLike(503), "HTTP 503, the server is overloaded"),
        (AiohttpLike(418), "HTTP 418, the request is wrong"),
        (AiohttpLike(599), "HTTP 599, the server failed"),
        (OpenaiLike(429, "insufficient_quota"), "HTTP 429, the quota is used up"),
        (OpenaiLike(429, None, {"error": {"code": 400}}), "HTTP 429, the answer says 400"),
        (TypeError("x"), "programming error (TypeError)"),
        (RuntimeError("x"), "unknown error (RuntimeError)"),
        (subprocess.CalledProcessError(2, "make"), "exit code 2"),
        (subprocess.CalledProcessError(-9, "make"), "killed by SIGKILL"),
    ],
)
def test_the_reason_can_be_read_by_a_person(exc: Exception, reason: str) -> None:
    assert classify(exc, NOW).reason == reason


RETRYABLE, BUG, CANCELLED = ConnectionResetError(), ValueError(), asyncio.CancelledError()
SOON, LATE = AiohttpLike(429, retry_after="1"), AiohttpLike(429, retry_after="9")


@pytest.mark.parametrize(
    ("leaves", "kind", "wait"),
    [
        ([RETRYABLE], "transient", None),
        ([CANCELLED, RETRYABLE], "transient", None),
        ([RETRYABLE, BUG], "terminal", None),
        ([ExceptionGroup("inner", [RETRYABLE]), RETRYABLE], "transient", None),
        ([ExceptionGroup("inner", [RETRYABLE, BUG]), RETRYABLE], "terminal", None),
        ([CANCELLED], "terminal", None),
        ([RETRYABLE, SOON, LATE], "throttled", 9.0),
        ([LATE, ExceptionGroup("inner", [SOON])], "throttled", 9.0),
    ],
)
def test_a_group_is_as_bad_as_its_worst_leaf(
    leaves: list[BaseException], kind: str, wait: float | None
) -> None:
    group = BaseExceptionGroup("outer", leaves)
    assert (classify(group, NOW).kind, classify(group, NOW).wait) == (kind, wait)
    assert classify(caused(group), NOW).kind == kind


def test_a_group_counts_if_one_of_its_leaves_does() -> None:
    assert classify(ExceptionGroup("tools", [SOON, RETRYABLE]), NOW).counts
    assert not classify(ExceptionGroup("tools", [SOON, LATE]), NOW).counts


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
        NotDone(),
        Declined(),
        DeclinedByBank(),
        *(AiohttpLike(status) for status in (400, 401, 404, 422, 429)),
        OpenaiLike(429, "insufficient_quota"),
        caused(REFUSED),
        caused(caused(LOOK_UP)),
        caused(REFUSED, Transient("not reachable")),
        ConnectError(),
        caused(ConnectError(), APIConnectionError()),
        handshake("SSLV3_ALERT_HANDSHAKE_FAILURE"),
        caused(handshake("DECRYPT_ERROR"), ConnectError()),
        urllib.error.URLError(REFUSED),
        urllib.error.URLError(BAD_CERTIFICATE),
        OSError(errno.ECONNREFUSED, "refused"),
        smtplib.SMTPDataError(550, b"no"),
    ],
    ids=repr,
)
def test_known_not_to_have_happened(exc: Exception) -> None:
    assert certainly_not_done(exc, (Declined,))


@pytest.mark.parametrize(
    "exc",
    [
        *(AiohttpLike(s) for s in (200, 302, 408, 409, 425, 444, 499, 500, 502, 503, 504, 529)),
        OpenaiLike(500, "context_length_exceeded"),
        TimeoutError(),
        StepTimeout("too slow"),
        ConnectionResetError(),
        ConnectionAbortedError(),
        BrokenPipeError(),
        EOFError(),
        ValueError("the answer was not JSON"),
        Declined(),
        Terminal(),
        Transient(),
        StoreError("full"),
        BodyCancelled("by somebody"),
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
        smtplib.SMTPServerDisconnected("closed"),
        subprocess.CalledProcessError(1, "pay"),
        # The other tasks of a group may have done it.
        ExceptionGroup("tools", [REFUSED]),
        caused(ExceptionGroup("tools", [AiohttpLike(400)])),
    ],
    ids=repr,
)
def test_everything_else_leaves_doubt(exc: Exception) -> None:
    assert not certainly_not_done(exc)


def test_a_class_is_known_by_its_package_not_by_its_name_alone() -> None:
    mine = type("ConnectError", (Exception,), {})
    assert classify(mine(), NOW) == Fault("terminal", "unknown error (ConnectError)", counts=True)
    assert not certainly_not_done(mine())
    copied = type("ConnectError", (Exception,), {"__module__": "tool._vendor.httpx._exceptions"})
    assert classify(copied(), NOW).kind == "transient"
