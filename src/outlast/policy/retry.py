"""Whether and when a failed attempt is followed by another."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """How often an attempt that failed transiently is repeated.

    Attributes:
        attempts: how many attempts there are at most, over all resumes together.
        first: wait before the second attempt, in seconds, before the jitter.
        factor: by what each further wait is longer.
        cap: longest wait, in seconds.
    """

    attempts: int = 3
    first: float = 0.5
    factor: float = 2.0
    cap: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"Retry(attempts={self.attempts}): at least 1, the first attempt")
        if not (0 <= self.first <= self.cap < math.inf):
            raise ValueError(
                f"Retry(first={self.first}, cap={self.cap}): 0 <= first <= cap, both finite, is "
                "expected"
            )
        if not (1 <= self.factor < math.inf):
            raise ValueError(f"Retry(factor={self.factor}): a finite 1 or more is expected")


def next_wait(retry: Retry, fault: str, attempt: int, draw: float) -> float | None:
    """Seconds to wait before the attempt after number `attempt`, or None to give up.

    The wait has "full jitter": evenly drawn between 0 and the exponential bound (AWS Architecture
    Blog, "Exponential Backoff And Jitter").

    Args:
        fault: the fault class of the error; only transient and throttled ones are repeated.
        attempt: number of the attempt that failed, from 1.
        draw: a number in [0, 1).
    """
    if fault not in ("transient", "throttled") or attempt >= retry.attempts:
        return None
    try:
        bound = min(retry.cap, retry.first * retry.factor ** (attempt - 1))
    except OverflowError:
        bound = retry.cap if retry.first else 0.0
    return bound * draw
