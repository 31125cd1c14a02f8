"""Whatever stands in the store, reading it imports nothing and runs nothing of the program."""

import importlib
import importlib.abc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outlast.codec import decode, encode, encode_error, plain, rebuild_error
from outlast.codec.decode import _READERS
from outlast.errors import Unreadable
from tests.codec import kinds
from tests.strategies import stored_values

ran: list[str] = []


class Loud(Exception):
    """An exception with all the code that a careless reader would run."""

    def __init__(self, code: int) -> None:
        ran.append("__init__")
        super().__init__(f"code {code}")
        self.code = code

    def __new__(cls, *args: Any) -> "Loud":
        ran.append("__new__")
        return super().__new__(cls, *args)

    def __reduce__(self) -> Any:
        ran.append("__reduce__")
        return super().__reduce__()

    def __setstate__(self, state: Any) -> None:
        ran.append("__setstate__")

    def __setattr__(self, name: str, value: object) -> None:
        ran.append("__setattr__")
        super().__setattr__(name, value)


class NoImports(importlib.abc.MetaPathFinder):
    """The first finder to be asked for a module that is not imported yet."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if not fullname.startswith("tzdata"):  # data of the standard library's zoneinfo
            self.asked.append(fullname)


@contextmanager
def watched() -> Iterator[None]:
    """Fails if anything within asks for a module or runs a function of kinds.py or of this file."""
    calls: list[str] = []
    own = {kinds.__file__, __file__}
    finder = NoImports()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # Reading a dict or a set needs the hash and the equality of what is in it, as the program
        # itself does; these are the only exception.
        if event == "call" and code.co_filename in own and code.co_name not in ALLOWED:
            calls.append(code.co_qualname)

    before = sys.getprofile()
    sys.meta_path.insert(0, finder)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
        sys.meta_path.remove(finder)
    assert (calls, finder.asked) == ([], [])


ALLOWED = {"__hash__", "__eq__", "watched", "read", "find_spec"}


def read(data: bytes) -> None:
    with watched():
        for reader in (decode, plain):
            with suppress(Unreadable):
                reader(data)


def test_the_watch_works() -> None:
    def user_code() -> None:
        pass

    with pytest.raises(AssertionError, match="user_code"), watched():
        user_code()
    with pytest.raises(AssertionError, match="of_no_package"), watched(), suppress(ImportError):
        importlib.import_module("of_no_package")


@given(stored_values)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_reading_any_value_runs_no_code_of_the_program(value: object) -> None:
    read(encode(value))


@pytest.mark.parametrize(
    "value",
    [kinds.TrapDataclass(1), kinds.TrapStruct(1, [2]), kinds.TrapAttrs(1), kinds.TrapModel(value=1),
     kinds.PairPlus(1, 2), kinds.Derived(1, 2), kinds.Holder(model=kinds.SubModel(name="a")),
     kinds.ModelDataclass(1), kinds.OpenModel(name="a", more=1), kinds.Outer.Inner(1)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_reading_an_object_of_every_kind_runs_no_code_of_its_class(value: object) -> None:
    data = encode(value)
    decode(data)  # what is worked out once per class
    read(data)


def test_rebuilding_an_exception_runs_nothing_of_its_class() -> None:
    record = encode_error(Loud(7), "terminal")
    ran.clear()
    with watched():
        back = rebuild_error(record)
    assert ran == []
    assert type(back) is Loud
    assert (str(back), back.code) == ("code 7", 7)


NAMES = [
    *(f"tests.codec.kinds:{name}" for name in vars(kinds)),
    *("os:system", "subprocess:Popen", "builtins:eval", "builtins:type", "builtins:object"),
    *(
        "antigravity:geohash",
        "turtle:Turtle",
        "ctypes.util:find_library",
        "importlib:import_module",
    ),
    *("tests.codec.kinds:Outer.Inner.__init__", "tests.codec.kinds:trap.__globals__", ":", "a:b:c"),
    *("tests.codec.kinds:Crate[int]", "tests.codec.kinds:Crate[__import__('os')]"),
]
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    | st.dictionaries(st.sampled_from(sorted(_READERS)), inner, min_size=1, max_size=1)
    | st.tuples(st.sampled_from(["$dataclass", "$struct", "$attrs", "$named", "$model", "$enum"]),
                st.sampled_from(NAMES), inner, inner)
        .map(lambda t: {t[0]: [t[1], {"name": t[2], "title": t[3]}]}),
    max_leaves=12,
)  # fmt: skip


@given(_json)
@example({"$dataclass": ["subprocess:Popen", {"args": "true"}]})
@example({"$enum": ["tests.codec.kinds:TrapRights", 9]})
@example({"$flag": ["tests.codec.kinds:TrapRights", 2**40]})
@example({"$zone": "/etc/passwd"})
@example({"$set": [{"$dataclass": ["tests.codec.kinds:TrapDataclass", {"value": []}]}]})
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_forged_value_runs_anything(tree: object) -> None:
    read(json.dumps(tree).encode("utf-8", "surrogatepass"))


@given(stored_values, st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_damaged_value_runs_anything(value: object, data: st.DataObject) -> None:
    bent = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(bent) - 1))
        bent[at] = data.draw(st.integers(0, 255))
    read(bytes(bent))


@pytest.mark.parametrize(
    "recipe",
    [
        ["subprocess:Popen", {"$tuple": ["true"]}, {"$tuple": ["true"]}, {}, {}],
        ["builtins:SystemExit", {"$tuple": []}, {"$tuple": []}, {}, {}],
        ["antigravity:Boom", {"$tuple": []}, {"$tuple": []}, {}, {}],
        ["builtins:object", {"$tuple": []}, {"$tuple": []}, {}, {}],
        ["builtins:UnicodeDecodeError", {"$tuple": []}, {"$tuple": []}, {}, {}],
        ["builtins:ValueError", 1, 2, 3, 4],
        ["builtins:ValueError", {"$tuple": []}, {"$tuple": []}, {"args": 1}, {}],
        [1], {}, None, "builtins:ValueError",
    ],
    ids=json.dumps,
)  # fmt: skip
def test_no_forged_exception_is_built(recipe: object) -> None:
    from msgspec import Raw

    from outlast.events import ErrorRecord

    record = ErrorRecord("x", "", "", Raw(json.dumps(recipe).encode()))
    with watched(), pytest.raises(Unreadable):
        rebuild_error(record)
