"""How long a tool asks to be left alone, in every form that answers are known to have.

Whatever the form, the result is a finite number of seconds, 0 or more, or None for "absent":

- A number is seconds. Above 1e9 it is a time, in seconds since the epoch; above 1e11 in ms.
- A number and a unit (`20ms`, `1s`, `6m0s`) is a duration.
- A date is one of HTTP (three forms) or of ISO 8601; without a zone it is in UTC.
- What is past or negative is 0. What is more than seven days ahead is nonsense, so absent.
- Of several values of a header, and of `Retry-After` and `retry-after-ms`, the longest counts.
- The `...ratelimit-...reset` headers count only if neither of these two is there, and one only if
  its `...remaining` does not say that there is room left.
"""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST = 7 * 86_400.0
"""Seconds above which a wait is not believed."""

EPOCH = 1e9
"""Numbers above it are times since the epoch, not waits: as a wait it would be 31 years."""

EPOCH_MS = 1e11
"""Numbers above it are such times in milliseconds: in seconds it would be the year 5138."""

MAX_TEXT = 200

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DURATION = re.compile(r"(-?)((?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d))+)", re.ASCII)
PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400}

ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d", re.ASCII)

CLOCK = re.compile(r"\d\d:\d\d", re.ASCII)
"""Every form of an HTTP date has it; the parser by itself finds dates in any text."""

BETWEEN = re.compile(r"(?<!mon)(?<!tue)(?<!wed)(?<!thu)(?<!fri)(?<!sat)(?<!sun)(?<!day),", re.I)
"""A comma between two values of a header, not the one behind the day of the week."""

RESET = re.compile(r"(.*rate-?limit.*)-reset(-\w+)?|rate-?limit-reset")


def bounded(seconds: float) -> float | None:
    """A wait as it may be used."""
    if not math.isfinite(seconds) or seconds > LONGEST:
        return None
    return max(seconds, 0.0)


def wait_in(value: object, now: float) -> float | None:
    """Seconds that one value of a header (or a field of an answer) asks for.

    Args:
        value: text, bytes or a number.
        now: seconds since the epoch.
    """
    if isinstance(value, bytes):
        value = value[: MAX_TEXT + 1].decode("latin-1")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _from_number(value, now)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return None
    whole = _from_text(value.strip(), now)
    if whole is not None or "," not in value:
        return whole
    return longest(_from_text(part.strip(), now) for part in BETWEEN.split(value))


def longest(waits: Iterable[float | None]) -> float | None:
    """The longest of those that are there."""
    return max((wait for wait in waits if wait is not None), default=None)


def wait_asked(headers: list[tuple[str, str]], now: float) -> float | None:
    """Seconds that the headers of an answer ask for.

    Args:
        headers: names in small letters, and values.
        now: seconds since the epoch.
    """
    direct = longest(
        [
            *(wait_in(value, now) for name, value in headers if name == "retry-after"),
            *(_from_ms(value) for name, value in headers if name.endswith("retry-after-ms")),
        ]
    )
    if direct is not None:
        return direct
    return longest(
        wait_in(value, now)
        for name, value in headers
        if RESET.fullmatch(name) and not _has_room(headers, name)
    )


def _has_room(headers: list[tuple[str, str]], reset: str) -> bool:
    left = remaining(headers, reset.replace("reset", "remaining"))
    return left is not None and left > 0


def remaining(headers: list[tuple[str, str]], header: str) -> float | None:
    """How much a rate limit leaves, by a header of that name."""
    for name, value in headers:
        if name == header and NUMBER.fullmatch(value.strip()):
            return float(value)
    return None


def _from_number(number: float, now: float) -> float | None:
    try:
        number = float(number)
    except OverflowError:
        return None
    if number > EPOCH_MS:
        number /= 1000
    return bounded(number - now if number > EPOCH else number)


def _from_ms(value: str) -> float | None:
    found = [part.strip() for part in value.split(",") if NUMBER.fullmatch(part.strip())]
    return longest(bounded(float(part) / 1000) for part in found)


def _from_text(text: str, now: float) -> float | None:
    if NUMBER.fullmatch(text):
        return _from_number(float(text), now)
    if duration := DURATION.fullmatch(text):
        seconds = sum(float(n) * UNITS[unit] for n, unit in PART.findall(duration[2]))
        return bounded(-seconds if duration[1] else seconds)
    if not CLOCK.search(text):
        return None
    try:
        moment = datetime.fromisoformat(text) if ISO.match(text) else parsedate_to_datetime(text)
        if moment.tzinfo is None:  # "-0000", asctime: no zone is named, HTTP means UTC
            moment = moment.replace(tzinfo=UTC)
        return bounded(moment.timestamp() - now)
    except Exception:  # the parsers raise many things for garbage
        return None
