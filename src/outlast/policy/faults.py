"""What an exception says about the call that raised it.

`classify` puts an exception into one of four classes (promise P6). The table, first match wins:

    an HTTP status 429                        throttled (terminal if it is a used-up quota)
    an HTTP status 408, 425, 5xx              transient
    any other HTTP status 4xx                 terminal
    ConnectionError, TimeoutError, StepTimeout, a failed name look-up     transient
    anything else                             its explicit cause (`raise ... from`), else terminal

An unknown class is terminal since most are bugs, which repeat themselves. An exception group is
terminal if one leaf is; cancellations in it say nothing.

`certainly_not_done` answers another question: whether the outside world can have seen the call.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outlast.errors import NotDone, StepTimeout

FaultKind = Literal["transient", "throttled", "terminal", "unknown-outcome"]

MAX_CAUSES = 8
"""How many `raise ... from` links are followed."""


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
        if isinstance(link, ConnectionError | TimeoutError | StepTimeout | socket.gaierror):
            return Fault("transient")
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
            # 408 says that the server gave up waiting: the request may have been worked on.
            return 400 <= status <= 499 and status != 408
        if isinstance(
            link, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError
        ):
            return True
    return False


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
        link = link.__cause__ or (reason if isinstance(reason, BaseException) else None)
