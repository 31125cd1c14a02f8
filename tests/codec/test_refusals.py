"""What would not read back exactly is refused, with the place and the type named."""

import collections
import inspect
import io
import socket
import sys
import threading
import types
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import PurePosixPath

import attrs
import msgspec
import pytest

from outlast.codec import decode, digest, encode, walk
from outlast.errors import NotStorable
from tests.codec import kinds


class Text(str):
    pass


class Number(int):
    pass


class Listing(list):
    pass


class MyPath(PurePosixPath):
    pass


class MyDatetime(datetime):
    pass


class MyZone(tzinfo):
    pass


class Opaque:
    pass


@dataclass
class DictDataclass(dict):
    x: int


@dataclass
class ErrorDataclass(Exception):
    x: int


@attrs.define
class HalfAttrs(kinds.Hit):
    more: int = 0


class Meta(type(msgspec.Struct)):
    pass


class MetaStruct(msgspec.Struct, metaclass=Meta):
    x: int


class Slotted(kinds.Hit):
    __slots__ = ("beside",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Text("a"), "type tests.codec.test_refusals.Text cannot be stored: only str itself can"),
        (Number(1), "only int itself can"),
        (Listing(), "only list itself can"),
        (MyPath("a"), "PurePosixPath itself can"),
        (MyDatetime(2024, 1, 1), "only datetime.datetime itself can"),
        (datetime(2024, 1, 1, tzinfo=MyZone()), ".tzinfo: type tests.codec.test_refusals.MyZone"),
        (Opaque(), "type tests.codec.test_refusals.Opaque cannot be stored; return plain data"),
        (Opaque, "type type cannot be stored"),
        (len, "type builtin_function_or_method"),
        (lambda: None, "type function cannot be stored"),
        (..., "type ellipsis cannot be stored"),
        (memoryview(b"a"), "type memoryview cannot be stored"),
        (iter([]), "type list_iterator cannot be stored"),
        (io.StringIO(), "type _io.StringIO cannot be stored"),
        (threading.Lock(), "type _thread.lock cannot be stored"),
        (types.SimpleNamespace(a=1), "type types.SimpleNamespace cannot be stored"),
        (collections.deque([1]), "type collections.deque cannot be stored"),
        (ValueError("x"), "type ValueError cannot be stored"),
        (defaultdict(lambda: 1), "type collections.defaultdict cannot be stored with a factory"),
        (DictDataclass(1), "it extends dict"),
        (ErrorDataclass(1), "it extends Exception"),
        (HalfAttrs("a"), "half dataclass, half attrs"),
        (MetaStruct(1), "metaclass"),
        (Text.__mro__, "[0]: type type"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refused_with_its_type(value: object, text: str) -> None:
    with pytest.raises(NotStorable) as caught:
        encode(value, where="result")
    assert str(caught.value).startswith("result")
    assert text in str(caught.value)


def test_the_whole_path_is_named() -> None:
    hit = kinds.Hit("a", score=socket)
    pair = kinds.Pair(1, kinds.Point(hit))
    model = kinds.Model(name="a", size={"k": [0, pair]})
    with pytest.raises(NotStorable) as caught:
        encode({"hits": [1, (model,)]}, where="result")
    path = "result['hits'][1][0].size['k'][1].right.x.score: type module cannot be stored"
    assert str(caught.value).startswith(path)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({1: Opaque()}, "value[1]: type"),
        ({(1, Opaque()): 2}, "value (key 0)[1]: type"),
        ({Text("k"): 1}, "value (key 0): type"),
        ({"k\n": Opaque()}, r"value['k\n']: type"),
        (defaultdict(list, a=[Opaque()]), "value['a'][0]: type"),
        ({frozenset([len])}, "value{…}{…}: type"),
    ],
)
def test_paths_through_odd_containers(value: object, path: str) -> None:
    with pytest.raises(NotStorable) as caught:
        encode(value)
    assert str(caught.value).startswith(path)


def _with(value: object, **attributes: object) -> object:
    for name, item in attributes.items():
        setattr(value, name, item)
    return value


@pytest.mark.parametrize(
    "value",
    [
        _with(kinds.Hit("a"), beside=1),
        _with(Slotted("a"), beside=1),
        _with(kinds.AttrsDict(1), beside=1),
        _with(kinds.DictStruct(1), beside=1),
        _with(collections.OrderedDict(), beside=1),
        _with(collections.Counter(), beside=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_attributes_that_are_no_fields(value: object) -> None:
    with pytest.raises(NotStorable, match=r"beside|attributes of its own"):
        encode(value)


def test_a_model_with_a_private_attribute_that_is_no_data() -> None:
    model = kinds.Model(name="a")
    model._secret = socket.socket
    with pytest.raises(NotStorable, match=r"value\._secret: type type cannot be stored"):
        encode(model)


def test_fields_that_were_never_set() -> None:
    bare = object.__new__(kinds.SlottedChild)
    for value in (bare, kinds.Model.model_construct(), object.__new__(kinds.Model)):
        with pytest.raises(NotStorable, match=r"not set|never initialised"):
            encode(value)


def test_a_class_inside_a_function_needs_an_annotation() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(NotStorable, match="defined inside a function"):
        encode([Local(1)])
    data = encode([Local(1)], hints=[list[Local]])
    assert decode(data, hints=[list[Local]]) == [Local(1)]


def test_a_class_whose_name_leads_to_another_class() -> None:
    stale = kinds.Hit("a")
    impostor = type("Hit", (kinds.Hit,), {"__module__": kinds.__name__, "__qualname__": "Hit"})
    with pytest.raises(NotStorable, match="belongs to another class"):
        encode(impostor("a"))
    encode(stale)


def test_the_name_of_a_stored_class_is_not_trusted_against_the_annotations() -> None:
    """The annotation wins on reading, so an object of the imported namesake is refused."""
    encode(kinds.Hit("a"))
    namesake = dataclass(type("Hit", (), {"__module__": kinds.__name__, "__annotations__": {}}))
    with pytest.raises(NotStorable, match="belongs to another class"):
        encode(kinds.Hit("a"), hints=[namesake])


def test_cycles_of_every_kind() -> None:
    looped: list[object] = []
    looped.append(looped)
    mapped: dict[object, object] = {}
    mapped[1] = mapped
    hit = kinds.Hit("a")
    hit.score = hit
    for value in (looped, mapped, hit, [looped, looped]):
        with pytest.raises(NotStorable, match="contains itself"):
            encode(value)


def test_too_deep_is_said_and_its_path_stays_readable() -> None:
    value: object = None
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotStorable, match="deeper than 200 levels") as caught:
        encode(value)
    assert len(str(caught.value)) < 2000


def test_a_stack_that_is_nearly_used_up() -> None:
    value: object = None
    for _ in range(190):
        value = [value]

    def sink(levels: int) -> bytes:
        return sink(levels - 1) if levels else encode(value)

    depth = len(inspect.stack(context=0))
    with pytest.raises(NotStorable, match="Python stack"):
        sink(sys.getrecursionlimit() - depth - 60)


def test_the_size_limit_names_size_and_limit() -> None:
    text = "x" * (walk.MAX_BYTES - 2)
    assert decode(encode(text)) == text
    with pytest.raises(NotStorable, match=r"67,108,865 bytes, the limit is 67,108,864 bytes"):
        encode("\n" + text[:-1])
    with pytest.raises(NotStorable, match="the limit is 67,108,864 bytes"):
        encode(b"x" * (walk.MAX_BYTES + 1))


def test_a_small_value_that_unfolds_to_a_huge_one() -> None:
    text = "x" * 1_000_000
    with pytest.raises(NotStorable, match="more than 67,108,864 bytes"):
        encode([text] * 1_000_000)
    with pytest.raises(NotStorable, match="more than 67,108,864 bytes"):
        encode({str(n): text for n in range(1000)})


def test_digest_refuses_the_same() -> None:
    with pytest.raises(NotStorable, match=r"order\[0\]: type .*Opaque"):
        digest([Opaque()], where="order")
