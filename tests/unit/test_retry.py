"""P6: every retry is bounded, in number and in waiting."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import Retry
from outlast.policy.retry import next_wait

finite = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@st.composite
def retries(draw: st.DrawFn) -> Retry:
    first = draw(finite)
    return Retry(
        attempts=draw(st.integers(1, 10**9)),
        initial=first,
        multiplier=draw(st.floats(min_value=1, allow_nan=False, allow_infinity=False)),
        maximum=draw(st.floats(min_value=first, allow_nan=False, allow_infinity=False)),
    )


@given(
    retries(),
    st.sampled_from(["transient", "throttled", "terminal", "unknown-outcome", "workflow"]),
    st.integers(1, 10**9),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_finite_and_within_the_cap_or_there_is_none(
    retry: Retry, fault: str, attempt: int, draw: float
) -> None:
    wait = next_wait(retry, fault, attempt, draw)
    if wait is None:
        assert fault not in ("transient", "throttled") or attempt >= retry.attempts
    else:
        assert fault in ("transient", "throttled")
        assert attempt < retry.attempts
        assert math.isfinite(wait)
        assert 0 <= wait <= retry.maximum


@given(retries(), st.floats(0, 1, exclude_max=True))
def test_the_bound_never_shrinks_from_one_attempt_to_the_next(retry: Retry, draw: float) -> None:
    waits = [next_wait(retry, "transient", n, draw) for n in range(1, min(retry.attempts, 70))]
    assert waits == sorted(waits, key=lambda wait: wait or 0)


def test_the_waits_grow_by_the_factor_up_to_the_cap() -> None:
    retry = Retry(attempts=6, initial=1, multiplier=2, maximum=5)
    half = [next_wait(retry, "transient", attempt, 0.5) for attempt in range(1, 7)]
    assert half == [0.5, 1, 2, 2.5, 2.5, None]


@pytest.mark.parametrize("fault", ["terminal", "unknown-outcome", "done-not-storable", ""])
def test_what_may_not_be_repeated_is_not(fault: str) -> None:
    assert next_wait(Retry(attempts=5), fault, 1, 0.0) is None


def test_one_attempt_means_no_retry() -> None:
    assert next_wait(Retry(attempts=1), "transient", 1, 0.0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"initial": -0.1},
        {"initial": 2, "maximum": 1},
        {"initial": math.nan},
        {"maximum": math.nan},
        {"maximum": math.inf, "initial": math.inf},
        {"maximum": math.inf},
        {"multiplier": 0.5},
        {"multiplier": math.nan},
        {"multiplier": math.inf},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_with_its_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Retry(**wrong)  # type: ignore[arg-type]
