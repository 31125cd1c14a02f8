"""What the server says in turn, and what is to be made of it. Written by hand, from the rules."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.wire.server import Answer

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
"""What the clock says; dates are made around it."""

STATUSES = [*range(400, 432), 444, 451, 460, 499, *range(500, 512), *range(520, 531), 598, 599]
BUSY = (429, 503, 529)
DOUBTFUL = (408, 409, 425, 444, 460, 499)


@dataclass(frozen=True)
class Case:
    """An answer, and its class. `words`: the body decides, not the status."""

    name: str
    answer: Answer
    kind: str
    wait: float | None
    counts: bool
    not_done: bool
    words: bool = False


def seconds(later: float) -> datetime:
    return NOW + timedelta(seconds=later)


def imf(moment: datetime) -> str:
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")


STAMP = NOW.timestamp()

Headers = tuple[tuple[str, str], ...]

FORMS: list[tuple[Headers, float | None]] = [
    *(
        ((("Retry-After", value),), wait)
        for value, wait in [
            ("0", 0.0),
            ("2", 2.0),
            ("2.5", 2.5),
            ("-1", 0.0),
            ("", None),
            ("inf", None),
            ("nan", None),
            ("1e400", None),
            ("9999999999", None),
            (f"{STAMP + 40:.0f}", 40.0),
            (imf(seconds(40)), 40.0),
            (seconds(40).strftime("%A, %d-%b-%y %H:%M:%S GMT"), 40.0),
            (seconds(40).strftime("%a %b %e %H:%M:%S %Y"), 40.0),
            (seconds(40).strftime("%a, %d %b %Y %H:%M:%S -0000"), 40.0),
            (imf(seconds(-40)), 0.0),
            (imf(seconds(8 * 86_400)), None),
            ("soon", None),
            ("3600", 3600.0),
        ]
    ),
    ((("Retry-After", "2"), ("Retry-After", "5")), 5.0),
    ((("Retry-After", "2"), ("Retry-After", imf(seconds(40)))), 40.0),
    ((("retry-after-ms", "1500"),), 1.5),
    ((("retry-after-ms", "soon"), ("Retry-After", "2")), 2.0),
    ((("x-ratelimit-reset", "9"),), 9.0),
    ((("x-ratelimit-reset", f"{STAMP + 9:.0f}"),), 9.0),
    ((("x-ratelimit-reset", f"{(STAMP + 9) * 1000:.0f}"),), 9.0),
    ((("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")), 360.0),
    ((("x-ratelimit-reset-requests", "20ms"),), 0.02),
    (
        (
            ("x-ratelimit-remaining-tokens", "90"),
            ("x-ratelimit-reset-tokens", "6m0s"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1s"),
        ),
        1.0,
    ),
    ((("anthropic-ratelimit-requests-reset", seconds(40).isoformat()),), 40.0),
    (
        (("anthropic-ratelimit-tokens-reset", seconds(40).strftime("%Y-%m-%dT%H:%M:%SZ")),),
        40.0,
    ),
    ((("x-ratelimit-reset-tokens", "soon"),), None),
]

BODIES: list[tuple[int, dict[str, object] | bytes, Headers, str, float | None]] = [
    (429, {"code": "rate_limit_exceeded"}, (("Retry-After", "2"),), "throttled", 2.0),
    (429, {"code": "insufficient_quota"}, (("Retry-After", "2"),), "terminal", None),
    (
        429,
        {"code": "insufficient_quota", "message": "Too many requests, please slow down."},
        (),
        "terminal",
        None,
    ),
    (429, b"\xff\xfe no JSON", (), "throttled", None),
    (429, b"", (("Retry-After", "2"),), "throttled", 2.0),
    (400, {"code": "context_length_exceeded"}, (), "terminal", None),
    (500, {"code": "context_length_exceeded"}, (), "terminal", None),
    (500, {"message": "maximum context length is 8192 tokens"}, (), "terminal", None),
    (429, {"code": "model_not_found"}, (), "terminal", None),
    (500, {"code": "invalid_api_key"}, (), "terminal", None),
    (503, {"type": "overloaded_error"}, (), "transient", None),
    (529, {"type": "overloaded_error"}, (("Retry-After", "2"),), "throttled", 2.0),
    (400, {"type": "billing_error", "message": "credit balance is too low"}, (), "terminal", None),
]


def status_cases() -> Iterator[Case]:
    """Every status, without any word about a wait."""
    for status in STATUSES:
        if status == 429:
            kind = "throttled"
        elif status >= 500 or status in (408, 425):
            kind = "transient"
        else:
            kind = "terminal"
        not_done = status < 500 and status not in DOUBTFUL
        yield Case(str(status), Answer(status), kind, None, kind == "transient", not_done)


def form_cases() -> Iterator[Case]:
    """Every form in which a wait is asked for, with those statuses that go with it."""
    for status in (*BUSY, 500):
        for headers, wait in FORMS:
            kind = "transient"
            if status == 429 or (wait is not None and status != 500):
                kind = "throttled"
            name = f"{status}  " + "  ".join(f"{name}: {value}" for name, value in headers)
            yield Case(
                name, Answer(status, headers), kind, wait, status != 429, not_done=status == 429
            )


def body_cases() -> Iterator[Case]:
    """What the body says."""
    for status, said, headers, kind, wait in BODIES:
        error = {"message": "as the provider words it", "type": "error"}
        body = said if isinstance(said, bytes) else json.dumps({"error": error | said}).encode()
        name = f"{status}  " + "  ".join(
            [repr(body)[1:] if isinstance(said, bytes) else json.dumps(said)]
            + [f"{name}: {value}" for name, value in headers]
        )
        counts = kind != "terminal" and status >= 500
        words = not isinstance(said, bytes)
        yield Case(name, Answer(status, headers, body), kind, wait, counts, status < 500, words)


CASES = [*status_cases(), *form_cases(), *body_cases()]
