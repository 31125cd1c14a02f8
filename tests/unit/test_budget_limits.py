"""What may be written as a budget, and what is refused with the limit named."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import UsageError
from outlast.policy.budget import Budget, Limits, parse_limits
from outlast.records import Usage


@pytest.mark.parametrize("written", [2, "2", Decimal(2), 2.0, "2.00"])
def test_money_can_be_written_in_any_way(written: int | str | Decimal | float) -> None:
    assert Budget(usd=written).limits.usd == Decimal(2)


@given(st.integers(0, 10**9), st.integers(0, 12))
def test_a_float_is_taken_as_it_is_printed(digits: int, places: int) -> None:
    text = f"{Decimal(digits).scaleb(-places):f}"
    number = float(text)
    assert Budget(usd=number).limits.usd == Decimal(repr(number))
    assert Budget(usd=text).limits.usd == Decimal(text)


@pytest.mark.parametrize(
    "usd",
    [-1, "-0.01", Decimal("NaN"), float("nan"), "nan", "sNaN", True, "much", "", 1e30, "1e-500"],
)
def test_odd_money_is_refused_by_name(usd: float | str | Decimal) -> None:
    with pytest.raises(ValueError, match=r"Budget\(usd="):
        Budget(usd=usd)


@pytest.mark.parametrize("usd", [float("inf"), "Infinity", Decimal("inf")])
def test_infinite_money_has_to_be_asked_for_by_name(usd: float | str | Decimal) -> None:
    with pytest.raises(ValueError, match=r"Budget\.unlimited\(\)"):
        Budget(usd=usd)
    unlimited = Budget.unlimited(calls=3)
    assert unlimited.limits == Limits(usd=Decimal("Infinity"), calls=3)


@pytest.mark.parametrize("name", ["tokens", "calls", "steps", "turns"])
@pytest.mark.parametrize("value", [-1, True, 1.0, "1", Decimal(1), 10**30])
def test_odd_counts_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"Budget\({name}="):
        Budget(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True, "5"])
def test_odd_seconds_are_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"Budget\(seconds="):
        Budget(seconds=value)  # type: ignore[arg-type]


def test_a_bound_for_unknown_costs_is_dollars_or_a_usage() -> None:
    assert Budget(usd=1).bound is None
    assert Budget(usd=1, on_unknown=0.1).bound == Usage(usd=Decimal("0.1"))
    assert Budget(usd=1, on_unknown=Usage(Decimal(1), 9)).bound == Usage(Decimal(1), 9)


@pytest.mark.parametrize("bound", [-1, float("nan"), "stop", True, Usage(tokens=-1)])
def test_an_odd_bound_is_refused_by_name(bound: float | Usage) -> None:
    with pytest.raises(ValueError, match=r"Budget\(on_unknown="):
        Budget(on_unknown=bound)


def test_limits_are_read_from_a_command_line() -> None:
    assert parse_limits("usd=5,calls=100") == Limits(usd=Decimal(5), calls=100)
    assert parse_limits(" seconds = 1.5 , turns=2,steps=3,tokens=4,usd=0.10") == Limits(
        usd=Decimal("0.10"), tokens=4, steps=3, turns=2, seconds=1.5
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no limit"),
        ("usd", "'usd' is no limit"),
        ("money=5", "one of usd, tokens, calls, steps, turns, seconds"),
        ("usd=5,usd=6", "usd is given twice"),
        ("usd=five", "'five' is not a number of US dollars"),
        ("usd=-1", "'usd=-1': .* is negative"),
        ("usd=nan", "not a finite number"),
        ("calls=1.5", "'1.5' is not a whole number"),
        ("calls=-2", "-2 is negative"),
        ("calls=", "'' is not a whole number"),
        ("calls=²", "not a whole number"),
        ("seconds=long", "'long' is not a finite number of seconds"),
        ("seconds=-1", "'-1' is not a finite number of seconds"),
        ("usd=5,", "'' is no limit"),
    ],
)
def test_what_is_no_limit_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_limits(text)


@given(
    st.builds(
        Limits,
        usd=st.none() | st.decimals(0, 10**12, allow_nan=False, places=6) | st.just(Decimal("inf")),
        tokens=st.none() | st.integers(0, 10**15),
        seconds=st.none() | st.floats(0, 1e9),
    )
)
def test_limits_read_back_from_json_as_they_were(limits: Limits) -> None:
    assert msgspec.json.decode(msgspec.json.encode(limits), type=Limits) == limits
