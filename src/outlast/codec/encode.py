"""Values to bytes. Whatever would not read back exactly as it is gets refused here.

The stored form is JSON. What JSON says natively stays native; everything else is an object with a
single key that starts with "$", the tag:

    {"$tuple": [1, 2]}    {"$decimal": "1.10"}    {"$dataclass": ["desk:Hit", {"title": "a"}]}
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, Flag
from typing import Any

import msgspec

from outlast.codec.classes import Refusal, check_findable, display_name
from outlast.codec.scalars import SCALARS, write_int
from outlast.codec.shapes import ModelShape, shape_of
from outlast.codec.walk import MAX_BYTES, Walk, too_large
from outlast.errors import NotStorable

FACTORIES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(bool, int, float, complex, str, bytes, bytearray),
        *(list, dict, tuple, set, frozenset),
    )
}
"""The factories that a stored defaultdict may have."""

_ENCODER = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")


def encode(
    value: object,
    *,
    where: str = "value",
    hints: Sequence[object] = (),
    limit: int = MAX_BYTES,
) -> bytes:
    """The stored form of a value, as JSON.

    Args:
        value: None, bool, int, float, complex, str, bytes, list, dict, tuple, set and their kin in
            `collections`, `datetime`, `decimal`, `fractions`, `uuid`, `pathlib` and `enum`;
            dataclasses, msgspec Structs, attrs classes, pydantic models, named tuples; nested.
        where: what the value is, for the error text.
        hints: annotations; a class that is reachable from them needs no importable name.
        limit: most bytes of the stored form.

    Raises:
        NotStorable: the value would not read back exactly, or is too large; the text names the
            place and the type.
    """
    return _bytes(value, where, Walk(hints, canonical=False, limit=limit))


def encode_canonical(value: object, *, where: str, limit: int) -> bytes:
    """Bytes that are the same for equal values, in every process. Not meant to be read back.

    Raises:
        NotStorable: as `encode`.
    """
    return _bytes(value, where, Walk((), canonical=True, limit=limit))


def _bytes(value: object, where: str, walk: Walk) -> bytes:
    try:
        tree = _tree(value, walk, 0)
        data = (_SORTED if walk.canonical else _ENCODER).encode(tree)
    except Refusal as refusal:
        path = "".join(reversed(refusal.path))
        raise NotStorable(f"{where}{path}: {refusal.reason}") from refusal.__cause__
    except RecursionError as error:
        raise NotStorable(
            f"{where}: nested too deeply for what is left of the Python stack; return a flatter "
            f"value or call from a shallower place"
        ) from error
    except RuntimeError as error:
        raise NotStorable(
            f"{where}: {error} (another thread or task changed it while it was being stored; "
            f"pass a copy)"
        ) from error
    check_size(len(data), where, walk.limit)
    return data


def check_size(size: int, where: str, limit: int) -> None:
    """Raise NotStorable if a stored form of `size` bytes is above the limit."""
    if size > limit:
        raise NotStorable(f"{where}: {too_large(f'{size:,} bytes', limit)}")


def _tree(value: object, walk: Walk, depth: int) -> object:
    return (_WRITERS.get(type(value)) or _write_class)(value, walk, depth)


def _write_list(value: list[object], walk: Walk, depth: int) -> object:
    return _items(value, walk, depth)


def _items(value: Sequence[object], walk: Walk, depth: int) -> list[object]:
    walk.enter(depth, len(value))
    items: list[object] = []
    writers = _WRITERS
    try:
        for item in value:
            items.append((writers.get(type(item)) or _write_class)(item, walk, depth + 1))
    except Refusal as refusal:
        refusal.path.append(f"[{len(items)}]")
        raise
    return items


def _write_dict(value: dict[str, object], walk: Walk, depth: int) -> object:
    for key in value:
        if type(key) is not str:
            return {"$dict": _pairs(value, walk, depth)}
    joined = "".join(value)  # one look at all keys, as most dicts have plain ones
    walk.spend(len(joined))
    if ("$" in joined or not joined.isascii()) and not all(map(_is_plain_key, value)):
        return {"$dict": _pairs(value, walk, depth)}
    return _mapping(value, walk, depth, "[{!r}]")


def _is_plain_key(key: str) -> bool:
    return key[:1] != "$" and not any("\ud800" <= char <= "\udfff" for char in key)


def _mapping(value: dict[str, object], walk: Walk, depth: int, path: str) -> dict[str, object]:
    """A dict with plain keys. `path` is the form of a step towards one of its items."""
    walk.enter(depth, len(value))
    items: dict[str, object] = {}
    writers = _WRITERS
    size = 0
    key = ""
    try:
        for key, item in value.items():
            kind = type(item)
            if kind is str and item.isascii():  # type: ignore[attr-defined]
                items[key] = item  # by far the most frequent kind, so without a call
                size += len(item)  # type: ignore[arg-type]
            else:
                items[key] = (writers.get(kind) or _write_class)(item, walk, depth + 1)
    except Refusal as refusal:
        refusal.path.append(path.format(key[:60]))
        raise
    walk.spend(size)
    return items


def _pairs(value: Mapping[Any, object], walk: Walk, depth: int) -> list[object]:
    """A dict whose keys are not plain text: in its own order, or sorted in the canonical form."""
    walk.enter(depth, 3 * len(value))
    pairs: list[object] = []
    step = ""
    try:
        for key, item in value.items():
            step = f" (key {len(pairs)})"
            written = _tree(key, walk, depth + 1)
            step = f"[{_short(key)}]"
            pairs.append([written, _tree(item, walk, depth + 1)])
    except Refusal as refusal:
        refusal.path.append(step)
        raise
    if walk.canonical and type(value) is not OrderedDict:
        pairs.sort(key=_SORTED.encode)
    return pairs


def _short(key: object) -> str:
    """A key in a path. Only built-in scalars are shown by their own repr: it is never user code."""
    plain = type(key) in (int, float, str, bool, bytes, type(None))
    text = repr(key) if plain else type(key).__name__
    return text if len(text) <= 60 else text[:59] + "…"


def _write_ordered(value: OrderedDict[object, object], walk: Walk, depth: int) -> object:
    _no_attributes(value)
    return {"$ordered": _pairs(value, walk, depth)}


def _write_counter(value: Counter[object], walk: Walk, depth: int) -> object:
    _no_attributes(value)
    return {"$counter": _pairs(value, walk, depth)}


def _write_defaultdict(value: defaultdict[object, object], walk: Walk, depth: int) -> object:
    factory = value.default_factory
    if factory is None:
        name = None
    elif isinstance(factory, type) and FACTORIES.get(factory.__name__) is factory:
        name = factory.__name__
    else:
        raise Refusal(
            "type collections.defaultdict cannot be stored with a factory that is not one of "
            f"{', '.join(FACTORIES)}; convert it to a dict"
        )
    return {"$defaultdict": [name, _pairs(value, walk, depth)]}


def _no_attributes(value: object) -> None:
    if value.__dict__:
        raise Refusal(
            f"type {display_name(type(value))} cannot be stored with attributes of its own"
        )


def _write_tuple(value: tuple[object, ...], walk: Walk, depth: int) -> object:
    return {"$tuple": _items(value, walk, depth)}


def _write_set(value: set[object], walk: Walk, depth: int) -> object:
    return {"$set": _elements(value, walk, depth)}


def _write_frozenset(value: frozenset[object], walk: Walk, depth: int) -> object:
    return {"$frozenset": _elements(value, walk, depth)}


def _elements(value: Iterable[object], walk: Walk, depth: int) -> list[object]:
    """The elements of a set in an order that does not depend on their hashes."""
    walk.enter(depth, 0)
    elements: list[object] = []
    try:
        for item in value:
            elements.append(_tree(item, walk, depth + 1))
    except Refusal as refusal:
        refusal.path.append("{…}")
        raise
    elements.sort(key=_SORTED.encode)
    return elements


def _write_class(value: object, walk: Walk, depth: int) -> object:
    """Enum members, objects of data classes, and everything that is refused."""
    cls: type = type(value)
    if isinstance(value, Enum) and Enum in cls.__mro__:
        return _write_enum(value, walk)
    shape = shape_of(cls)
    if shape is None:
        raise Refusal(_unknown(value))
    name = cls.__qualname__ if walk.canonical else check_findable(cls, walk.hints)
    if isinstance(shape, ModelShape):
        fields, names, extra, private = shape.take(value)
        written = None if private is None else _mapping(private, walk, depth, ".{}")
        state = [_items(names, walk, depth), _tree(extra, walk, depth), written]
        return {shape.tag: [name, _mapping(fields, walk, depth, ".{}"), *state]}
    return {shape.tag: [name, _mapping(shape.take(value), walk, depth, ".{}")]}


def _write_enum(value: Enum, walk: Walk) -> object:
    cls = type(value)
    name = cls.__qualname__ if walk.canonical else check_findable(cls, walk.hints)
    if cls._member_map_.get(value._name_) is value:
        return {"$enum": [name, value._name_]}
    if not isinstance(value, Flag):
        raise Refusal(
            f"type {display_name(cls)} cannot be stored: {value!r} is not one of its members"
        )
    return {"$flag": [name, write_int(value._value_, walk, 0)]}


def _unknown(value: object) -> str:
    cls = type(value)
    text = f"type {display_name(cls)} cannot be stored"
    base = next((base for base in cls.__mro__ if base in _WRITERS), None)
    if base is not None:
        return f"{text}: only {display_name(base)} itself can, not a subclass; convert it"
    return f"{text}; return plain data (JSON values, dataclasses, pydantic models, ...) instead"


_Writer = Callable[..., object]

_WRITERS: dict[type, _Writer] = {
    **SCALARS,
    list: _write_list,
    dict: _write_dict,
    tuple: _write_tuple,
    set: _write_set,
    frozenset: _write_frozenset,
    OrderedDict: _write_ordered,
    Counter: _write_counter,
    defaultdict: _write_defaultdict,
}
