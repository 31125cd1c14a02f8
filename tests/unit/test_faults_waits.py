"""Every form in which an answer asks to be left alone gives a wait that can be used, or none."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.policy.faults import classify
from outlast.policy.faults.waits import LONGEST, wait_asked, wait_in

NOW = 784_111_777.0 + 86_400 * 365 * 30
"""A frozen clock; the dates below are made around it."""

AT = "Tue, 29 Oct 2024 08:49:37 GMT"

WAITS: list[tuple[str, float | None]] = [
    ("0", 0.0),
    ("2", 2.0),
    (" 2 ", 2.0),
    ("2.5", 2.5),
    ("+2", 2.0),
    ("1e1", 10.0),
    ("-1", 0.0),
    ("", None),
    ("inf", None),
    ("-inf", None),
    ("nan", None),
    ("1e400", None),
    ("1_0", None),
    ("٣", None),
    ("9999999999", None),
    (f"{NOW + 30:.0f}", 30.0),
    (f"{NOW - 30:.0f}", 0.0),
    (f"{(NOW + 30) * 1000:.0f}", 30.0),
    ("604800", LONGEST),
    ("604801", None),
    ("Tue, 29 Oct 2024 08:50:07 GMT", 30.0),
    ("Tuesday, 29-Oct-24 08:50:07 GMT", 30.0),
    ("Tue Oct 29 08:50:07 2024", 30.0),
    ("Tue, 29 Oct 2024 08:50:07 -0000", 30.0),
    ("Tue, 29 Oct 2024 09:50:07 +0100", 30.0),
    ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
    ("Wed, 29 Oct 2025 08:49:37 GMT", None),
    ("Tue, 99 Oct 2024 99:99:99 GMT", None),
    ("2024-10-29T08:50:07Z", 30.0),
    ("2024-10-29T10:50:07+02:00", 30.0),
    ("2024-10-29 08:50:07", 30.0),
    ("20ms", 0.02),
    ("1s", 1.0),
    ("6m0s", 360.0),
    ("1h2m3.5s", 3723.5),
    ("-1s", 0.0),
    ("1s later", None),
    ("soon", None),
    ("2, 5", 5.0),
    ("2, soon", 2.0),
    ("2, Tue, 29 Oct 2024 08:50:07 GMT", 30.0),
    ("1" * 1000, None),
]


def test_the_clock_of_this_table_is_the_date_in_it() -> None:
    assert wait_in(AT, NOW) == wait_in("0", NOW) == 0.0


@pytest.mark.parametrize(("value", "wait"), WAITS)
def test_each_form_of_retry_after(value: str, wait: float | None) -> None:
    assert wait_in(value, NOW) == pytest.approx(wait)
    assert wait_in(value.encode("utf-8"), NOW) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"Retry-After": "2"}, 2.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "2", "retry-after-ms": "2500"}, 2.5),
        ({"retry-after": "soon", "retry-after-ms": "2500"}, 2.5),
        ({"retry-after": "2", "x-ratelimit-reset": "60"}, 2.0),
        ({"retry-after": "soon", "x-ratelimit-reset": "60"}, 60.0),
        ({"x-ratelimit-reset": f"{NOW + 9:.0f}"}, 9.0),
        ({"ratelimit-reset": "9"}, 9.0),
        ({"x-rate-limit-reset": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "12",
            },
            1.0,
        ),
        ({"anthropic-ratelimit-tokens-reset": "2024-10-29T08:50:07Z"}, 30.0),
        (
            {
                "anthropic-ratelimit-tokens-reset": "2024-10-29T08:50:07Z",
                "anthropic-ratelimit-tokens-remaining": "1000",
            },
            None,
        ),
        ({"x-ratelimit-reset-tokens": "soon"}, None),
        ({"date": AT, "x-request-id": "2"}, None),
    ],
)
def test_the_headers_that_count(headers: dict[str, str], wait: float | None) -> None:
    class Error(Exception):
        status = 429

    error = Error()
    error.headers = headers  # type: ignore[attr-defined]
    assert classify(error, NOW).wait == pytest.approx(wait)
    assert classify(error, NOW).kind == "throttled"


def test_of_two_headers_of_one_name_the_longer_wait_counts() -> None:
    assert wait_asked([("retry-after", "2"), ("retry-after", "5")], NOW) == 5.0


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be set here")
def test_a_date_without_a_zone_is_in_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for value in ("Tue Oct 29 08:50:07 2024", "2024-10-29 08:50:07"):
            assert wait_in(value, NOW) == pytest.approx(30.0)
    finally:
        monkeypatch.undo()
        time.tzset()


SIGNS = st.sampled_from([*"0123456789+-.eE:, smhGMTZadyJuneµ/_\0", "Mon", "inf", "nan"])


@given(
    st.one_of(
        st.text(),
        st.lists(SIGNS).map("".join),
        st.integers(),
        st.floats(),
        st.binary(),
        st.none(),
        st.booleans(),
        st.integers().map(str),
        st.floats().map(str),
        st.datetimes().map(str),
        st.datetimes().map(lambda d: d.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    ),
    st.floats(0, 1e11),
)
def test_whatever_is_asked_the_wait_is_finite_and_not_negative(value: object, now: float) -> None:
    wait = wait_in(value, now)
    assert wait is None or (math.isfinite(wait) and 0 <= wait <= LONGEST)
    header = value if isinstance(value, str) else repr(value)
    for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset-tokens"):
        wait = wait_asked([(name, header), ("x-ratelimit-remaining-tokens", header)], now)
        assert wait is None or (math.isfinite(wait) and 0 <= wait <= LONGEST)
