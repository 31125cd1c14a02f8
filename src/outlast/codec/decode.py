"""Bytes to values. Imports nothing, and runs no constructor or validator of the user's classes."""

import base64
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from outlast.codec.classes import Refusal, find_class
from outlast.codec.encode import FACTORIES
from outlast.codec.fields import Misfit
from outlast.codec.packing import unpack
from outlast.codec.shapes import ModelShape, Shape, shape_of
from outlast.errors import Unreadable

Hints = Sequence[object]
# A tag's payload comes from the store and may be anything: what does not fit raises a TypeError,
# a ValueError and so on, which `decode` turns into Unreadable.
Payload = Any

_DECODER = msgspec.json.Decoder()
_PATHS: dict[str, type[PurePath]] = {
    cls.__name__: cls for cls in (PosixPath, PurePosixPath, PureWindowsPath, WindowsPath)
}


def decode(data: bytes | msgspec.Raw, *, hints: Hints = ()) -> object:
    """The value of a stored form.

    Args:
        data: as `encode` or `pack` made it.
        hints: annotations; a class that is reachable from them needs no importable name.

    Raises:
        Unreadable: a class is gone, or has other fields now, or the bytes are damaged.
    """
    if type(data) is not bytes:
        data = bytes(data)
    try:
        data = unpack(data)
        tree = _DECODER.decode(data)
        return _value(tree, hints) if b'"$' in data else tree
    except Misfit as misfit:
        raise Unreadable(f"a stored value cannot be read: {misfit}") from misfit
    except Exception as error:
        raise Unreadable(
            f"a stored value cannot be read: {type(error).__name__}: {error}"
        ) from error


def _value(tree: object, hints: Hints) -> object:
    """The value of a JSON tree; lists and dicts are changed in place."""
    if type(tree) is list:
        for index, item in enumerate(tree):
            if type(item) is list or type(item) is dict:
                tree[index] = _value(item, hints)
    elif type(tree) is dict:
        if len(tree) == 1:
            (tag,) = tree
            if tag[:1] == "$":
                read = _READERS.get(tag)
                if read is None:
                    raise Misfit(f"unknown tag {tag!r}; was it written by a newer outlast?")
                return read(tree[tag], hints)
        for key, item in tree.items():
            if type(item) is list or type(item) is dict:
                tree[key] = _value(item, hints)
    return tree


def _values(tree: Payload, hints: Hints) -> list[object]:
    if type(tree) is not list:
        raise TypeError("a list was expected")
    return [_value(item, hints) for item in tree]


def _pairs(tree: Payload, hints: Hints) -> dict[object, object]:
    return {_value(key, hints): _value(item, hints) for key, item in tree}


def _counter(tree: Payload, hints: Hints) -> object:
    counter: Counter[object] = Counter()
    dict[Any, Any].update(counter, _pairs(tree, hints))  # Counter.update would add
    return counter


def _defaultdict(tree: Payload, hints: Hints) -> object:
    name, pairs = tree
    factory = None if name is None else FACTORIES[name]
    return defaultdict(factory, _pairs(pairs, hints))


def _float(tree: Payload) -> float:
    # A fresh nan each time: two different nans may be keys of one dict, one nan twice may not.
    return float(tree["$float"]) if type(tree) is dict else float(tree)


def _int(tree: Payload) -> int:
    return int(tree["$int"], 16) if type(tree) is dict else int(tree)


def _text(tree: Payload) -> str:
    if type(tree) is dict:
        return str(tree["$str"].encode("ascii").decode("unicode_escape"))
    if type(tree) is not str:
        raise TypeError("a text was expected")
    return tree


def _path(tree: Payload, hints: Hints) -> object:
    name, text = tree
    return _PATHS[name](_text(text))


def _datetime(tree: Payload, hints: Hints) -> object:
    if type(tree) is str:
        return datetime.fromisoformat(tree)
    text, fold, zone = tree
    return datetime.fromisoformat(text).replace(fold=fold, tzinfo=_zone(zone, hints))


def _time(tree: Payload, hints: Hints) -> object:
    if type(tree) is str:
        return time.fromisoformat(tree)
    text, fold, zone = tree
    return time.fromisoformat(text).replace(fold=fold, tzinfo=_zone(zone, hints))


def _zone(tree: Payload, hints: Hints) -> timezone | ZoneInfo | None:
    zone = _value(tree, hints)
    if zone is None or isinstance(zone, timezone | ZoneInfo):
        return zone
    raise TypeError("a time zone was expected")


def _timezone(tree: Payload, hints: Hints) -> object:
    days, seconds, microseconds, *name = tree
    return timezone(timedelta(days, seconds, microseconds), *map(_text, name))


def _class(name: str, hints: Hints) -> type:
    cls = find_class(name, hints)
    if cls is None:
        raise Misfit(
            f"its type {name} is neither in the annotations nor in an imported module; import the "
            f"module before the run is resumed, or put the class back"
        )
    return cls


def _record(tag: str) -> Callable[[Payload, Hints], object]:
    def read(tree: Payload, hints: Hints) -> object:
        name, fields, *state = tree
        shape = _shape(name, tag, hints)
        values: dict[str, object] = {key: _value(item, hints) for key, item in fields.items()}
        if isinstance(shape, ModelShape):
            names, extra, private = _values(state, hints)
            return shape.make(values, names, extra, private)  # type: ignore[arg-type]
        return shape.make(values)

    return read


def _shape(name: str, tag: str, hints: Hints) -> Shape | ModelShape:
    cls = _class(name, hints)
    try:
        shape = None if Enum in cls.__mro__ else shape_of(cls)
    except Refusal as refusal:
        raise Misfit(refusal.reason) from refusal
    if shape is None or shape.tag != tag:
        raise Misfit(f"its type {name} is not a {tag[1:]} class any more")
    return shape


def _enum_class(name: str, hints: Hints) -> type[Enum]:
    cls = _class(name, hints)
    if Enum not in cls.__mro__:
        raise Misfit(f"its type {name} is not an enum any more")
    return cls


def _enum(tree: Payload, hints: Hints) -> object:
    name, member = tree
    members = _enum_class(name, hints)._member_map_
    if member not in members:
        raise Misfit(f"its type {name} has no member {member!r} any more")
    return members[member]


def _flag(tree: Payload, hints: Hints) -> object:
    name, number = tree
    cls = _enum_class(name, hints)
    value = _int(number)
    if value in cls._value2member_map_:
        return cls._value2member_map_[value]
    # Flag's own way to make a combination; a class may have put its own `_missing_` before it.
    return Flag._missing_.__func__(cls, value)  # type: ignore[attr-defined]


def _unset(tree: Payload, hints: Hints) -> object:
    return msgspec.UNSET


_READERS: dict[str, Callable[[Payload, Hints], object]] = {
    "$str": lambda tree, hints: _text({"$str": tree}),
    "$int": lambda tree, hints: int(tree, 16),
    "$float": lambda tree, hints: float(tree),
    "$tuple": lambda tree, hints: tuple(_values(tree, hints)),
    "$set": lambda tree, hints: set(_values(tree, hints)),
    "$frozenset": lambda tree, hints: frozenset(_values(tree, hints)),
    "$dict": _pairs,
    "$ordered": lambda tree, hints: OrderedDict(_pairs(tree, hints)),
    "$counter": _counter,
    "$defaultdict": _defaultdict,
    "$bytes": lambda tree, hints: base64.b64decode(tree, validate=True),
    "$bytearray": lambda tree, hints: bytearray(base64.b64decode(tree, validate=True)),
    "$complex": lambda tree, hints: complex(*map(_float, tree)),
    "$range": lambda tree, hints: range(*map(_int, tree)),
    "$decimal": lambda tree, hints: Decimal(tree),
    "$fraction": lambda tree, hints: Fraction(*map(_int, tree)),
    "$uuid": lambda tree, hints: UUID(tree),
    "$path": _path,
    "$datetime": _datetime,
    "$date": lambda tree, hints: date.fromisoformat(tree),
    "$time": _time,
    "$timedelta": lambda tree, hints: timedelta(*tree),
    "$timezone": _timezone,
    "$zone": lambda tree, hints: ZoneInfo(tree),
    "$unset": _unset,
    "$enum": _enum,
    "$flag": _flag,
    **{tag: _record(tag) for tag in ("$dataclass", "$attrs", "$struct", "$named", "$model")},
}
