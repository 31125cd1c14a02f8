"""Stored values as plain JSON data for people and programs, and such data as values."""

import inspect
import math
import sys
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from pathlib import PurePath
from typing import Any, cast

import msgspec

from outlast.codec.classes import display_name, field_hints, reachable_classes
from outlast.codec.decode import decode
from outlast.codec.packing import unpack
from outlast.errors import Unreadable, UsageError

Payload = Any  # of a tag, see decode.py


def plain(data: bytes | msgspec.Raw) -> object:
    """A stored value as JSON data for display: the tags flattened, no class looked up.

    Tuples and sets become lists, objects become dicts of their fields, enum members their names,
    bytes base64 text, everything else text. What was what cannot be told any more.

    Raises:
        Unreadable: the bytes are damaged.
    """
    try:
        return _flat(msgspec.json.decode(unpack(bytes(data))))
    except Exception as error:
        raise Unreadable(f"a stored value is damaged: {error}") from error


def _flat(tree: object) -> object:
    if isinstance(tree, list):
        return [_flat(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((tag, payload),) = tree.items()
        if tag[:1] == "$":
            return _FLATTEN.get(tag, _flat)(payload)
    return {key: _flat(item) for key, item in tree.items()}


def _pairs(tree: Payload) -> object:
    pairs = [(_flat(key), _flat(item)) for key, item in tree]
    texts = {str(key) for key, _ in pairs if not isinstance(key, list | dict)}
    if len(texts) == len(pairs):
        return {str(key): item for key, item in pairs}
    return [[key, item] for key, item in pairs]


def _model(tree: Payload) -> object:
    _, fields, _, extra, _ = tree
    return {**cast(dict[str, object], _flat(fields)), **cast(dict[str, object], _flat(extra) or {})}


def _moment(tree: Payload) -> object:
    if isinstance(tree, str):
        return tree
    text, _, zone = tree
    return text if zone is None else f"{text}[{_flat(zone)}]"


def _by_value(tag: str) -> Callable[[Payload], object]:
    """The text of a built-in value, by way of the value."""
    return lambda tree: _text(decode(msgspec.json.encode({tag: tree})))


def _text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than `sys.get_int_max_str_digits()` lets Python print
        if isinstance(value, Fraction):
            return f"{_text(value.numerator)} / {_text(value.denominator)}"
        if isinstance(value, int):
            return f"a number of {_digits(abs(value)):,} digits"
        return f"a {type(value).__name__} of numbers that are too long to show"


def _digits(number: int) -> int:
    """How many decimal digits a number above 0 has. Quick, and exact but for the neighbours of
    a power of ten so large that a float does not tell them apart from it."""
    digits = int(math.log10(number)) + 1
    if digits < EXACT:
        digits += (number >= 10**digits) - (number < 10 ** (digits - 1))
    return digits


EXACT = 100_000
"""Digits up to which they are counted for certain; powers of ten take long to compute."""


_FLATTEN: dict[str, Callable[[Payload], object]] = {
    **dict.fromkeys(("$dict", "$ordered", "$counter"), _pairs),
    "$defaultdict": lambda tree: _pairs(tree[1]),
    "$model": _model,
    **dict.fromkeys(
        ("$dataclass", "$struct", "$attrs", "$named", "$enum", "$flag", "$path"),
        lambda tree: _flat(tree[1]),
    ),
    **dict.fromkeys(("$datetime", "$time"), _moment),
    "$timedelta": lambda tree: msgspec.to_builtins(timedelta(*tree)),
    **{tag: _by_value(tag) for tag in ("$int", "$complex", "$range", "$fraction", "$timezone")},
}


def from_plain(data: bytes | msgspec.Raw, annotation: object) -> object:
    """What an operator typed, as a value of the annotated type. Validators and constructors run.

    Args:
        data: JSON text.
        annotation: the type that is expected; `inspect.Signature.empty`, `Any` or `object` for
            any JSON value.

    Raises:
        UsageError: not JSON, or JSON that does not fit; the text names the expected form.
    """
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        shown = bytes(data)[:60].decode("utf-8", "backslashreplace")
        raise UsageError(
            f"{shown!r} is not valid JSON ({error}); expected {_form(annotation)} as JSON "
            f"(a text needs double quotes)"
        ) from error
    if annotation in (inspect.Signature.empty, Any, object):
        return value
    try:
        return _convert(bytes(data), annotation)
    except (ValueError, TypeError, NotImplementedError, ArithmeticError) as error:
        form = _form(annotation)
        expected = "" if f"Expected `{form}`" in str(error) else f"; expected {form}"
        raise UsageError(f"the JSON does not fit: {error}{expected}") from error


def no_form(annotation: object) -> str:
    """Why no JSON can ever be read as an annotation, in words; empty if some can, as far as this
    can be told without any."""
    if annotation in (inspect.Signature.empty, Any, object):
        return ""
    try:
        if is_modelled(annotation):
            sys.modules["pydantic"].TypeAdapter(annotation)
        else:
            msgspec.json.Decoder(cast(Any, annotation), dec_hook=_from_text)
    except Exception as problem:  # classes of the user's may raise anything
        return str(problem)
    return ""


def is_modelled(annotation: object) -> bool:
    """Whether a pydantic model is among what an annotation mentions."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    return any(pydantic.BaseModel in cls.__mro__ for cls in reachable_classes([annotation]))


def _convert(data: bytes, annotation: object) -> object:
    if is_modelled(annotation):
        return sys.modules["pydantic"].TypeAdapter(annotation).validate_json(data)
    return msgspec.json.decode(data, type=cast(Any, annotation), dec_hook=_from_text)


def _from_text(cls: type, value: object) -> object:
    """Types that msgspec does not know."""
    if isinstance(cls, type) and issubclass(cls, PurePath | Fraction) and isinstance(value, str):
        return cls(value)
    raise TypeError(f"a {display_name(cls)} cannot be given as JSON")


def _form(annotation: object) -> str:
    """The expected form in words: the fields of a data class, else the annotation itself."""
    if annotation in (inspect.Signature.empty, Any, object):
        return "any value"
    if not isinstance(annotation, type):
        return str(annotation)
    try:
        fields = inspect.signature(annotation).parameters.values()
    except (TypeError, ValueError):
        return annotation.__name__
    if annotation.__module__ == "builtins" or not field_hints(annotation):
        return annotation.__name__
    return f"{annotation.__name__} as an object with {', '.join(str(field) for field in fields)}"
