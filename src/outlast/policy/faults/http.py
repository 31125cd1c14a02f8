"""What an HTTP status means, together with what the answer says."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from outlast.policy.faults.answers import answer_of, headers_of
from outlast.policy.faults.fault import Fault, FaultKind, Finding, Sent
from outlast.policy.faults.reading import classes, get, integer, is_a
from outlast.policy.faults.sayings import Saying, saying_of
from outlast.policy.faults.waits import longest, remaining, wait_asked, wait_in

STATUSES: Mapping[int, tuple[FaultKind, str]] = MappingProxyType(
    {
        400: ("terminal", "the request is wrong"),
        401: ("terminal", "the key is not accepted"),
        402: ("terminal", "the quota is used up"),
        403: ("terminal", "it is not allowed"),
        404: ("terminal", "it is not there"),
        405: ("terminal", "the method is not allowed"),
        406: ("terminal", "the wanted form is not offered"),
        407: ("terminal", "the proxy wants to know who asks"),
        408: ("transient", "the server gave up waiting for the request"),
        409: ("terminal", "it is in conflict with what is there"),
        410: ("terminal", "it is no longer there"),
        412: ("terminal", "a precondition does not hold"),
        413: ("terminal", "the request is too large"),
        414: ("terminal", "the address is too long"),
        415: ("terminal", "the media type is not supported"),
        422: ("terminal", "the request is wrong"),
        423: ("terminal", "it is locked"),
        424: ("terminal", "another request that it depends on failed"),
        425: ("transient", "too early"),
        426: ("terminal", "another protocol is wanted"),
        428: ("terminal", "the request must be conditional"),
        429: ("throttled", "too many requests"),
        431: ("terminal", "the headers are too large"),
        451: ("terminal", "it is not allowed by law"),
        499: ("terminal", "the client went away"),
        500: ("transient", "the server failed"),
        501: ("transient", "the server does not know how"),
        502: ("transient", "a server behind the server failed"),
        503: ("transient", "the server is overloaded"),
        504: ("transient", "a server behind the server did not answer"),
        529: ("transient", "the server is overloaded"),
    }
)
"""Statuses by number. One that is missing here is like 400 if it is a 4xx, like 500 if a 5xx."""

BUSY = frozenset({503, 529})
"""Transient, but throttled if the answer says how long to wait."""

WORKED_ON = frozenset({408, 409, 425, 444, 460, 499})
"""Statuses 4xx that do not say "refused": the server gave up waiting, or the client did, or the
effect exists already, perhaps by an earlier attempt with the same idempotency key, or the request
was a copy that came early."""

EXHAUSTED = re.compile(r"too many (\d{3}) error responses")
"""How urllib3 tells a status after its own retries."""


def http_status(exc: BaseException) -> int | None:
    """The HTTP status an exception carries, as httpx, requests, urllib, aiohttp, botocore and the
    model clients spell it; None if there is none."""
    if _is_parser_error(exc) or _is_parser_error(get(exc, "__cause__")):
        return None
    response = get(exc, "response")
    for holder in (exc, response):
        for name in ("status_code", "status", "code"):
            found = _status(get(holder, name))
            if found is not None:
                return found
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    if isinstance(metadata, dict):
        return _status(metadata.get("HTTPStatusCode"))
    if ("urllib3", "ResponseError") in classes(exc):
        args = get(exc, "args")
        told = EXHAUSTED.fullmatch(str(args[0])) if isinstance(args, tuple) and args else None
        return int(told[1]) if told else None
    return None


def _status(value: object) -> int | None:
    number = integer(value)
    return number if number is not None and 100 <= number <= 599 else None


def _is_parser_error(exc: object) -> bool:
    """aiohttp gives a status of its own making to an answer that it could not read."""
    return is_a(exc, BaseException) and ("aiohttp", "HttpProcessingError") in classes(exc)


def by_http(exc: BaseException, now: float) -> Finding | None:
    """What an exception with an HTTP status says; None if it has none."""
    status = http_status(exc)
    return None if status is None else by_status(exc, status, now)


def by_status(exc: BaseException, status: int, now: float) -> Finding:
    """What an exception says whose answer has this status."""
    answer, headers = answer_of(exc), headers_of(exc)
    asked = longest([wait_asked(headers, now), *(wait_in(value, now) for value in answer.waits)])
    said = saying_of(frozenset(answer.codes), answer.text, waits=asked is not None)
    kind, meaning = _meaning(status)
    permanent = kind == "terminal" and status >= 400
    if said is not None and _overrules(said, status, permanent):
        kind, meaning = said.kind, said.reason
    elif answer.inner and not permanent:
        kind, meaning = "terminal", f"the answer says {min(answer.inner)}"
    elif status == 403 and remaining(headers, "x-ratelimit-remaining") == 0:
        kind, meaning = "throttled", "too many requests"  # GitHub
    if kind == "terminal":
        # An answer that is no error for HTTP and yet of no use is the tool's doing.
        counts = status < 300 and said is None and not answer.inner
        return Finding(_told(kind, status, meaning, None, counts), _sent(status))
    wait = longest([asked, wait_in(get(exc, "retry_after"), now)])
    if kind == "transient" and status in BUSY and wait is not None:
        kind = "throttled"
    counts = kind == "transient" or status >= 500
    return Finding(_told(kind, status, meaning, wait, counts), _sent(status))


def _overrules(said: Saying, status: int, permanent: bool) -> bool:
    """Whether what an answer says tells more than its status."""
    if permanent:
        return said.anywhere or said.kind == "terminal"
    return said.kind != "transient" or said.anywhere or status < 400


def _told(kind: FaultKind, status: int, meaning: str, wait: float | None, counts: bool) -> Fault:
    return Fault(kind, f"HTTP {status}, {meaning}", status, wait, counts)


def _meaning(status: int) -> tuple[FaultKind, str]:
    if status < 300:
        return "terminal", "but the answer is of no use"
    if status < 400:
        return "terminal", "a redirection that was not followed"
    return STATUSES.get(status) or STATUSES[status // 100 * 100]


def _sent(status: int) -> Sent:
    return "refused" if 400 <= status <= 499 and status not in WORKED_ON else "maybe"
