"""P4: what is stored reads back exactly."""

import json
import math
from collections import Counter, OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.codec import decode, encode
from tests.codec import kinds
from tests.strategies import assert_same, stored_values

BERLIN = ZoneInfo("Europe/Berlin")


@given(stored_values)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_nested_value_reads_back_exactly(value: object) -> None:
    data = encode(value)
    json.loads(data)
    back = decode(data)
    assert_same(value, back)
    assert encode(back) == data


@given(st.floats())
def test_every_float_keeps_its_repr(number: float) -> None:
    assert repr(decode(encode(number))) == repr(number)


VALUES = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**200), 10**5000,
    0.0, -0.0, 1.0, 1e22, 5e-324, math.inf, -math.inf, math.nan,
    "", "plain", "naïve ☃ 🎉", "\0\x1f\x7f\u2028", "$5.00", '"$', "\ud800", "\udcff/é",
    "\ud83d\ude00",
    b"", b"\0\xff", bytearray(b"ab"), complex(-0.0, math.inf), range(3), range(10**30, 0, -7),
    [], [1, [2, [None]]], {}, {"a": {"b": 1}}, {"$tuple": [1]}, {"$": 1}, {"a": 1, "$b": 2},
    {1: "a", None: "b", (1, 2): "c"}, {"\ud800": 1, "é": 2}, {"é": 1, "a$": 2}, {1.5: {2: 3}},
    (), (1, (2,)), set(), {1, "a", None}, frozenset({frozenset(), frozenset({1})}),
    datetime(2024, 1, 2, 3, 4, 5, 6), datetime(1, 1, 1), datetime.max,
    datetime(2024, 10, 27, 2, 30, fold=1), datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=-5.5))),
    datetime(2024, 1, 2, tzinfo=timezone(timedelta(seconds=3, microseconds=7))),
    time(1, tzinfo=timezone(timedelta(microseconds=1))),
    datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=1), "CET")),
    date(2024, 2, 29), time(1, 2, 3, 4), time(1, tzinfo=BERLIN, fold=1), time(1, tzinfo=UTC),
    timedelta(-1, 2, 3), timedelta.max, UTC, timezone(timedelta(0), "UTC"), BERLIN,
    Decimal("1.10"), Decimal("-0"), Decimal("1E+3"), Decimal("NaN123"), Decimal("-Infinity"),
    Fraction(1, 3), Fraction(-(10**40), 7), UUID(int=5),
    Path("/a/b c"), PurePosixPath("//a"), PureWindowsPath(r"c:\x"), Path("\udcff"), Path(),
    OrderedDict(b=1, a=2), Counter("aab"), Counter({1: -3}), defaultdict(list, {1: [2]}),
    defaultdict(None, a=1), defaultdict(int), msgspec.UNSET,
    kinds.Colour.CRIMSON, kinds.Level.HIGH, kinds.Word.YES, kinds.Rights.READ,
    kinds.Rights(3), kinds.Rights(0), kinds.IntRights(7), kinds.IntRights(2),
    kinds.Hit("a"), kinds.Best("b", 1, [2], rank=kinds.Hit("c")), kinds.Frozen(key=(1,)),
    kinds.SlottedChild(1), kinds.HiddenSlot(), kinds.Derived(1, 2), kinds.Box[int](3),
    kinds.Outer.Inner(1), kinds.ModelDataclass(1, [2]), kinds.TrapDataclass(1),
    kinds.Point(1), kinds.FrozenPoint(x=1, z=(2,)), kinds.FrozenPoint(x=1), kinds.TrapStruct({1}),
    kinds.TrapStructChild(value=1, other=[2]), kinds.DictStruct(3),
    kinds.AttrsPoint((1,)), kinds.AttrsDict({1: 2}), kinds.AttrsHashed(1), kinds.AttrsHashedDict(1),
    kinds.Model(name="a"), kinds.Holder(model=kinds.SubModel(name="a")), kinds.TrapModel(value=1),
    kinds.OpenModel(name="a", more=(1, 2)), kinds.IntCrate(item=1), kinds.Roots([1, 2]),
    kinds.Model.model_construct(name=5), kinds.Pair(1, [2]), kinds.Trio(1), kinds.PairPlus(1, 2),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"k": [v]}, lambda v: (v, v)])
def test_value_of_every_type(value, wrap) -> None:
    back = decode(encode(wrap(value)))
    assert_same(wrap(value), back)


def test_native_json_stays_native() -> None:
    value = {"id": "A-17", "n": [1, -2.5, None, True], "text": "naïve"}
    assert encode(value) == '{"id":"A-17","n":[1,-2.5,null,true],"text":"naïve"}'.encode()
    assert encode({"when": (1,)}) == b'{"when":{"$tuple":[1]}}'
    assert encode(kinds.Hit("a")) == (
        b'{"$dataclass":["tests.codec.kinds:Hit",{"title":"a","score":0.5,"tags":[]}]}'
    )


def test_signalling_nan_under_a_context_that_traps_everything() -> None:
    with localcontext() as context:
        context.prec = 1
        for trap in context.traps:
            context.traps[trap] = True
        for text in ("sNaN", "1.23456789E-400", "-0E+7"):
            assert str(decode(encode(Decimal(text)))) == str(Decimal(text))


def test_two_nans_stay_two_keys() -> None:
    back = decode(encode({float("nan"): 1, float("nan"): 2}))
    assert len(back) == 2


def test_model_keeps_which_fields_were_set_its_extras_and_private_attributes() -> None:
    model = kinds.Model(name="a")
    model._secret.append(("x",))
    back = decode(encode(model))
    assert back == model
    assert back.model_fields_set == {"name"}
    assert back._secret == [("x",)]
    back.name = "works like any other"

    opened = kinds.OpenModel(name="a", more=1)
    assert decode(encode(opened)).__pydantic_extra__ == {"more": 1}
    assert decode(encode(opened)).model_fields_set == {"name", "more"}


def test_a_subclass_in_a_field_of_its_base_keeps_its_class() -> None:
    held = kinds.Holder(model=kinds.SubModel(name="a", extra_field=1))
    assert type(decode(encode(held)).model) is kinds.SubModel


@pytest.mark.parametrize(
    ("value", "name"),
    [(kinds.Derived(1, 2), "double"), (kinds.DictStruct(4), "twice"),
     (kinds.AttrsPoint(4), "double"), (kinds.Model(name="a"), "shout")],
)  # fmt: skip
def test_cached_properties_are_dropped_and_computed_again(value, name: str) -> None:
    computed = getattr(value, name)
    back = decode(encode(value))
    assert name not in getattr(back, "__dict__", {})
    assert getattr(back, name) == computed


@pytest.mark.parametrize("cls", [kinds.AttrsHashed, kinds.AttrsHashedDict])
def test_cached_hash_is_not_carried_into_another_process(cls) -> None:
    value = cls("text")
    hash(value)
    back = decode(encode(value))
    assert back._attrs_cached_hash is None
    assert hash(back) == hash(value)


def test_a_generic_dataclass_made_through_its_alias() -> None:
    assert decode(encode(kinds.Box[int](3))) == kinds.Box(3)


def test_shared_references_become_copies() -> None:
    inner: list[int] = []
    back = decode(encode([inner, inner]))
    assert back == [[], []]
    assert back[0] is not back[1]


DEEP = [lambda v: [v], lambda v: {"a": v}, lambda v: {1: v}, lambda v: (v,), kinds.Hit,
        kinds.Point, lambda v: kinds.Model(name="a", size=v), lambda v: frozenset([v])]  # fmt: skip


@pytest.mark.parametrize("wrap", DEEP)
def test_the_deepest_value_that_is_accepted_is_readable(wrap) -> None:
    value: object = ()
    for _ in range(198):
        value = wrap(value)
    assert encode(decode(encode(value))) == encode(value)
