"""What an exception says about the call that raised it.

`classify` gives an exception its class (promise P6). The table, first match wins:

    an HTTP status 429                        throttled (terminal if it is a used-up quota)
    an HTTP status 408, 425, 5xx              transient
    any other HTTP status 4xx                 terminal
    a class of a table below, by its name or that of a base class         transient
    an OSError "network or host unreachable"                              transient
    anything else                             its explicit cause (`raise ... from`), else terminal

An unknown class is terminal since most are bugs, which repeat themselves. An exception group is
terminal if one leaf is; cancellations in it say nothing. The fourth class, `unknown-outcome`, is
not read off an exception: it is given to an attempt of a `once` step that is in doubt.

`certainly_not_done` answers another question: whether the outside world can have seen the call. It
is decided by the first exception in the chain that knows about the network or carries a status;
what lies below that one was dealt with by somebody, perhaps by a second try elsewhere. It speaks
about the last request that was made, so a `once` body should make one, without retries by its
client (`max_retries=0`).

Classes are known by name, so that no library need be imported to recognise its errors.
"""

import asyncio
import errno
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outlast.errors import NotDone

FaultKind = Literal["transient", "throttled", "terminal", "unknown-outcome"]

MAX_CAUSES = 8
"""How many `raise ... from` links are followed."""

NEVER_SENT = frozenset(
    {
        "ConnectionRefusedError",
        "gaierror",  # a failed name look-up
        "ConnectError",  # httpx, httpcore: no connection, or no TLS handshake
        "ConnectTimeout",  # httpx, httpcore, requests
        "PoolTimeout",  # httpx: all connections were busy
        "ClientConnectorError",  # aiohttp
        "NewConnectionError",  # urllib3
        "ConnectTimeoutError",  # urllib3
    }
)
"""Transient: there was no connection yet, so the request cannot have left."""

MAYBE_SENT = frozenset(
    {
        "ConnectionError",  # reset, aborted, broken pipe; also of requests and redis
        "TimeoutError",
        "StepTimeout",
        "SSLEOFError",
        "NetworkError",  # httpx, httpcore: reading or writing failed
        "TimeoutException",  # httpx, httpcore
        "Timeout",  # requests
        "RemoteProtocolError",  # httpx, httpcore: closed before the answer was complete
        "ClientConnectionError",  # aiohttp
        "ReadTimeoutError",  # urllib3
        "IncompleteRead",  # http.client, urllib3
    }
)
"""Transient: something went wrong once there was, or may have been, a connection."""

WRAPPERS = frozenset({"APIConnectionError"})
"""Transient: how openai, anthropic and their kin wrap one of the above. Whether the request left is
told by their cause."""

UNREACHABLE = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH})

HANDSHAKE = frozenset(
    {
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "TLSV1_UNRECOGNIZED_NAME",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
    }
)
"""Reasons of an `ssl.SSLError` that only a handshake has. Others, such as WRONG_VERSION_NUMBER, may
also come later, so they leave doubt (unless the client says `ConnectError`)."""

WORKED_ON = frozenset({408, 409, 499})
"""Statuses 4xx that do not say "refused": the server gave up waiting, or the client did, or the
effect exists already, perhaps by an earlier attempt with the same idempotency key."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A classified error. `status` is the HTTP status it carried, if any."""

    kind: FaultKind
    status: int | None = None


def http_status(exc: BaseException) -> int | None:
    """The HTTP status an exception carries, as httpx, requests, urllib, aiohttp and the model
    clients spell it; None if there is none."""
    holders = (exc, getattr(exc, "response", None))
    for holder in holders:
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


def classify(exc: BaseException) -> Fault:
    """The fault class of an exception; see the table above."""
    if isinstance(exc, BaseExceptionGroup):
        return _classify_group(exc)
    for link in _causes(exc):
        status = http_status(link)
        if status is not None:
            return Fault(_by_status(link, status), status)
        if _group_of(link) is not None:
            below = _causes(link)
            hopeless = any(isinstance(e, ssl.SSLCertVerificationError) for e in below)
            return Fault("terminal" if hopeless else "transient")
    return Fault("terminal")


def certainly_not_done(exc: BaseException, declared: tuple[type[BaseException], ...] = ()) -> bool:
    """Whether it is known that the effect did not take place (design, section 5.8).

    Args:
        exc: what the body of a `once` step raised.
        declared: classes that the step's author listed in `not_done=`.
    """
    if isinstance(exc, (NotDone, *declared)):
        return True
    for link in _causes(exc):
        status = http_status(link)
        if status is not None:
            return 400 <= status <= 499 and status not in WORKED_ON
        if isinstance(link, ssl.SSLError):
            reason = getattr(link, "reason", None)
            return isinstance(link, ssl.SSLCertVerificationError) or reason in HANDSHAKE
        group = _group_of(link)
        if group is not None and group is not WRAPPERS:
            return group is NEVER_SENT
    return False


def _group_of(exc: BaseException) -> frozenset[str] | None:
    """Which table has the class of an exception, or the nearest of its base classes."""
    for cls in type(exc).__mro__:
        for group in (NEVER_SENT, MAYBE_SENT, WRAPPERS):
            if cls.__name__ in group:
                return group
    unreachable = isinstance(exc, OSError) and exc.errno in UNREACHABLE
    return MAYBE_SENT if unreachable else None


def _by_status(exc: BaseException, status: int) -> FaultKind:
    if status == 429:
        return "terminal" if "insufficient_quota" in _codes(exc) else "throttled"
    if status in (408, 425) or status >= 500:
        return "transient"
    return "terminal" if status >= 400 else "transient"


def _codes(exc: BaseException) -> str:
    """Where model providers put their own error code."""
    return " ".join(str(getattr(exc, name, "")) for name in ("code", "type", "body"))


def _classify_group(group: BaseExceptionGroup[BaseException]) -> Fault:
    faults = [classify(leaf) for leaf in _leaves(group)]
    for fault in faults:
        if fault.kind == "terminal":
            return fault
    return faults[0] if faults else Fault("terminal")


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for exc in group.exceptions:
        if isinstance(exc, BaseExceptionGroup):
            yield from _leaves(exc)
        elif not isinstance(exc, asyncio.CancelledError):
            yield exc


def _causes(exc: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exc
    for _ in range(MAX_CAUSES):
        if link is None:
            return
        yield link
        # urllib keeps what went wrong below it in `reason` instead of chaining it.
        reason = getattr(link, "reason", None)
        below = link.__cause__ or (reason if isinstance(reason, BaseException) else None)
        if below is None and _group_of(link) is NEVER_SENT:
            below = link.__context__  # httpcore raises `from None`
        link = below
