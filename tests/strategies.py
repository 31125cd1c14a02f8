"""Hypothesis strategies over everything that the codec stores, and the equality it promises."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.codec import kinds

_ZONES = st.one_of(
    st.none(),
    st.just(timezone.utc),  # noqa: UP017
    st.builds(
        timezone,
        st.timedeltas(timedelta(hours=-23), timedelta(hours=23)),
    ),
    st.builds(timezone, st.timedeltas(timedelta(hours=-9), timedelta(hours=9)), st.text()),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("UTC")]),
)

# Lone surrogates included: file names and broken model output hold them.
texts = st.text(st.characters(exclude_categories=())) | st.from_regex(
    r"\$[a-z]{0,8}", fullmatch=True
)

hashable_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    texts,
    st.binary(),
    st.complex_numbers(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.datetimes(timezones=_ZONES, allow_imaginary=True),
    st.dates(),
    st.times(timezones=_ZONES),
    st.timedeltas(),
    st.builds(range, st.integers(), st.integers(), st.integers(min_value=1)),
    st.sampled_from([*kinds.Colour, *kinds.Level, kinds.Word.YES, kinds.Rights.READ]),
    st.sampled_from([kinds.Rights.READ | kinds.Rights.WRITE, kinds.Rights(0), kinds.IntRights(3)]),
    st.builds(PurePosixPath, st.text(st.characters(exclude_characters="\0"))),
    st.builds(PureWindowsPath, st.text(st.characters(exclude_characters="\0"))),
)


def _made(
    make: Callable[..., object], *parts: st.SearchStrategy[object]
) -> st.SearchStrategy[object]:
    return st.tuples(*parts).map(lambda values: make(*values))


hashables = st.recursive(
    hashable_scalars,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=4),
        _made(lambda *v: kinds.Frozen(key=v[0], other=v[1]), inner, inner),
        _made(kinds.Trio, inner, inner),
    ),
    max_leaves=6,
)

scalars = hashable_scalars | st.binary().map(bytearray) | st.decimals()


def _containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(texts, inner, max_size=5),
        st.dictionaries(hashables, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4).map(OrderedDict),
        st.dictionaries(hashables, inner, max_size=4).map(lambda d: defaultdict(list, d)),
        st.dictionaries(hashables, st.integers(), max_size=4).map(Counter),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=5),
        st.frozensets(hashables, max_size=5),
        _made(kinds.Hit, texts, inner, st.lists(inner, max_size=3)),
        _made(kinds.Best, texts, inner, st.just([]), inner),
        _made(kinds.SlottedChild, inner, inner),
        _made(kinds.Point, inner, inner),
        _made(kinds.TrapStruct, inner),
        _made(kinds.AttrsPoint, inner, inner),
        _made(lambda *v: kinds.SubModel(name="m", size=v[0], extra_field=v[1]), inner, inner),
        _made(kinds.Pair, inner, inner),
    )


stored_values = st.recursive(scalars, _containers, max_leaves=15)
"""Values that the codec must give back exactly."""


def assert_same(left: object, right: object) -> None:
    """Same types throughout, equal content (a NaN equals a NaN), same order of dicts, same repr of
    whatever is no set (whose repr depends on hashes)."""
    assert type(left) is type(right)
    if isinstance(left, Enum):
        assert left is right
    elif isinstance(left, int):
        assert left == right  # the repr of a very large one is refused by Python
    elif isinstance(left, float | Decimal):
        assert repr(left) == repr(right)
    elif isinstance(left, complex):
        for one, other in ((left.real, right.real), (left.imag, right.imag)):
            assert repr(one) == repr(other)
    elif isinstance(left, set | frozenset):
        _assert_same_sets(left, right)
    elif isinstance(left, Mapping):
        assert getattr(left, "default_factory", None) is getattr(right, "default_factory", None)
        assert_same(list(left.keys()), list(right.keys()))
        assert_same(list(left.values()), list(right.values()))
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif (names := _field_names(left)) is not None:
        for name in names:
            assert_same(getattr(left, name), getattr(right, name))
    else:
        assert left == right or left != left
        assert repr(left) == repr(right)
        for attribute in ("tzinfo", "fold"):
            if hasattr(left, attribute):
                assert_same(getattr(left, attribute), getattr(right, attribute))


def _assert_same_sets(left: set[object], right: set[object]) -> None:
    assert len(left) == len(right)
    rest = list(right)
    for one in left:
        match = next(index for index, other in enumerate(rest) if _is_same(one, other))
        del rest[match]


def _is_same(left: object, right: object) -> bool:
    try:
        assert_same(left, right)
    except (AssertionError, StopIteration):
        return False
    return True


def _field_names(value: object) -> list[str] | None:
    if isinstance(value, PurePath):
        return None
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    for attribute in ("__struct_fields__", "__pydantic_fields__"):
        if hasattr(value, attribute):
            return list(getattr(type(value), attribute))
    if hasattr(value, "__attrs_attrs__"):
        return [field.name for field in value.__attrs_attrs__]
    return None
