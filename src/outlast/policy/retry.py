"""Whether and when a failed attempt is followed by another."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, cast

Jitter = Literal["full", "none"]
LongWait = Literal["sleep", "fail"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often an attempt that failed transiently is repeated.

    Attributes:
        attempts: how many attempts there are at most, over all resumes together.
        initial: wait before the second attempt, in seconds, before the jitter.
        maximum: longest wait of our own making, in seconds.
        multiplier: by what each further wait is longer.
        jitter: `full` draws each wait evenly between 0 and its bound, `none` takes the bound.
        budget_seconds: no wait begins that would end later than so many seconds after the first
            attempt; None for no such limit.
        on: exception classes that are repeated, whatever we would make of them.
        stop_on: exception classes that are not; they win over `on`.
        long_wait: what to do if the tool asks for a longer wait than `maximum`: `sleep` as long as
            it says, with a durable due time, or `fail` at once.
    """

    attempts: int = 3
    initial: float = 0.5
    maximum: float = 60.0
    multiplier: float = 2.0
    jitter: Jitter = "full"
    budget_seconds: float | None = None
    on: Collection[type[BaseException]] = ()
    stop_on: Collection[type[BaseException]] = ()
    long_wait: LongWait = "sleep"

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int):
            raise ValueError(f"Retry(attempts={self.attempts!r}): a whole number is expected")
        if self.attempts < 1:
            raise ValueError(f"Retry(attempts={self.attempts}): at least 1, the first attempt")
        if not (0 <= self.initial <= self.maximum < math.inf):
            raise ValueError(
                f"Retry(initial={self.initial}, maximum={self.maximum}): 0 <= initial <= maximum, "
                "both finite, is expected"
            )
        if not (1 <= self.multiplier < math.inf):
            raise ValueError(f"Retry(multiplier={self.multiplier}): a finite 1 or more is expected")
        if self.jitter not in ("full", "none"):
            raise ValueError(f"Retry(jitter={self.jitter!r}): 'full' or 'none' is expected")
        if self.long_wait not in ("sleep", "fail"):
            raise ValueError(f"Retry(long_wait={self.long_wait!r}): 'sleep' or 'fail' is expected")
        if self.budget_seconds is not None and not (0 <= self.budget_seconds < math.inf):
            raise ValueError(
                f"Retry(budget_seconds={self.budget_seconds}): a finite 0 or more is expected"
            )
        object.__setattr__(self, "on", _classes("on", self.on))
        object.__setattr__(self, "stop_on", _classes("stop_on", self.stop_on))


def _classes(name: str, given: Collection[type[BaseException]]) -> tuple[type[BaseException], ...]:
    classes = cast(
        "tuple[type[BaseException], ...]", given if not isinstance(given, type) else (given,)
    )
    classes = tuple(classes)
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        raise ValueError(f"Retry({name}={given!r}): exception classes are expected")
    return classes


def declared(retry: Retry, exc: BaseException) -> bool | None:
    """What `on` and `stop_on` say about an exception: repeat it, do not, or nothing. Of a group,
    one leaf in `stop_on` is enough, and `on` must name them all."""
    if not (retry.on or retry.stop_on):
        return None
    leaves = list(islice(_leaves(exc), MOST_LEAVES))
    if any(isinstance(leaf, tuple(retry.stop_on)) for leaf in leaves):
        return False
    if leaves and all(isinstance(leaf, tuple(retry.on)) for leaf in leaves):
        return True
    return None


MOST_LEAVES = 1000
"""Errors in a group that are looked at."""


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    left = [exc]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def next_wait(
    retry: Retry,
    fault: str,
    failures: int,
    draw: float,
    *,
    asked: float | None = None,
    spent: float = 0.0,
) -> float | None:
    """Seconds to wait after failure number `failures`, or None to give up.

    The wait has "full jitter": evenly drawn between 0 and the exponential bound (AWS Architecture
    Blog, "Exponential Backoff And Jitter"). What the tool asked for is waited for at least.

    Args:
        fault: the fault class of the error; only transient and throttled ones are repeated.
        failures: how many attempts have failed, from 1.
        draw: a number in [0, 1).
        asked: seconds that the tool wants to be left alone, such as `Retry-After`.
        spent: seconds since the first attempt.
    """
    if fault not in ("transient", "throttled") or failures >= retry.attempts:
        return None
    if asked is not None and asked > retry.maximum and retry.long_wait == "fail":
        return None
    try:
        bound = min(retry.maximum, retry.initial * retry.multiplier ** (failures - 1))
    except OverflowError:
        bound = retry.maximum if retry.initial else 0.0
    wait = max(bound * draw if retry.jitter == "full" else bound, asked or 0.0)
    if retry.budget_seconds is not None and spent + wait > retry.budget_seconds:
        return None
    return wait
