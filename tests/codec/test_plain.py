"""Stored values for display, and an operator's JSON as values."""

import inspect
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings

from outlast.codec import encode, from_plain, plain
from outlast.errors import Unreadable, UsageError
from tests.codec import kinds
from tests.strategies import stored_values


@given(stored_values)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_stored_value_can_be_shown_as_json(value: object) -> None:
    json.dumps(plain(encode(value)), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": (1, {2})}, {"a": [1, [2]]}),
        (b"ab", "YWI="),
        (2**70, str(2**70)),
        (float("nan"), "nan"),
        ({1: "a", None: (2,)}, {"1": "a", "None": [2]}),
        ({1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        ({"$x": 1}, {"$x": 1}),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00+00:00"),
        (
            datetime(2024, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
            "2024-01-02T00:00:00[Europe/Berlin]",
        ),
        (timedelta(days=1, seconds=3), "P1DT3S"),
        (Decimal("1.10"), "1.10"),
        (Fraction(1, 3), "1/3"),
        (UUID(int=1), str(UUID(int=1))),
        (Path("/a"), "/a"),
        (range(3), "range(0, 3)"),
        (kinds.Colour.RED, "RED"),
        (kinds.Rights(3), 3),
        (kinds.Hit("a"), {"title": "a", "score": 0.5, "tags": []}),
        (kinds.Trio(1), {"a": 1, "b": 2, "c": 3}),
        (kinds.OpenModel(name="a", more=1), {"name": "a", "more": 1}),
    ],
    ids=str,
)
def test_shown_as(value: object, shown: object) -> None:
    assert plain(encode(value)) == shown


def test_a_class_that_is_gone_can_still_be_shown() -> None:
    assert plain(b'{"$dataclass":["gone:Order",{"id":{"$tuple":[1]}}]}') == {"id": [1]}
    assert plain(b'{"$enum":["gone:Colour","RED"]}') == "RED"


def test_damaged_bytes() -> None:
    for data in (b"{", b'{"$range":[]}', b'{"$dataclass":1}'):
        with pytest.raises(Unreadable):
            plain(data)


class Shade(Enum):
    DARK = "dark"


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ('{"a": [1]}', inspect.Signature.empty, {"a": [1]}),
        ("1", Any, 1),
        ("null", None, None),
        ("[1, 2]", tuple[int, int], (1, 2)),
        ("[2, 1]", set[int], {1, 2}),
        ('"2024-01-02T00:00:00Z"', datetime, datetime(2024, 1, 2, tzinfo=UTC)),
        ('"1.10"', Decimal, Decimal("1.10")),
        ('"dark"', Shade, Shade.DARK),
        ('"/a"', Path | None, Path("/a")),
        ('{"title": "a", "tags": [1]}', kinds.Hit, kinds.Hit("a", tags=[1])),
        ('[{"x": 1}]', list[kinds.Point], [kinds.Point(1)]),
        ('{"x": 1, "_hidden": 2}', kinds.AttrsPoint, kinds.AttrsPoint(1, 2)),
        ('{"name": "a"}', kinds.Model, kinds.Model(name="a")),
        ('[{"name": "a"}]', list[kinds.Model] | None, [kinds.Model(name="a")]),
    ],
    ids=str,
)
def test_an_operator_s_json_becomes_the_annotated_type(text: str, annotation, value) -> None:
    made = from_plain(text.encode(), annotation)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "said"),
    [
        ("hello", str, "'hello' is not valid JSON"),
        ("{", kinds.Hit, "expected Hit as an object with title: str"),
        ('{"titel": "a"}', kinds.Hit, "missing required field `title`"),
        ('"1"', int, "Expected `int`, got `str`"),
        ('{"name": 1}', kinds.Model, "name"),
        ('"x"', kinds.Outer, "Outer"),
        ('"1/0"', Fraction, "expected Fraction"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_the_expected_form(text, annotation, said) -> None:
    with pytest.raises(UsageError) as caught:
        from_plain(text.encode(), annotation)
    assert said in str(caught.value)
