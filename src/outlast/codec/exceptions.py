"""Exceptions to records and back, so that a workflow catches the same thing live and on replay."""

import traceback
import types
from collections.abc import Sequence
from typing import cast

import msgspec

from outlast.codec.classes import Refusal, check_findable, display_name, find_class
from outlast.codec.decode import decode
from outlast.codec.encode import encode
from outlast.codec.fields import HEAP_TYPE
from outlast.errors import NotStorable, StepFailed, Unreadable
from outlast.events import ABSENT, ErrorRecord, escape_surrogates

Args = tuple[object, ...]
Attributes = dict[str, object]
Recipe = tuple[str, Args, Args, Attributes, Attributes]
"""Class, `args`, arguments of the C constructor (by position, by keyword), `__dict__`."""

_KEYWORDS: dict[type, tuple[str, ...]] = {
    ImportError: ("name", "path"),
    NameError: ("name",),
    AttributeError: ("name",),
}
"""What C constructors take beside `args`, as far as it is data."""

MAX_TEXT = 16 * 1024
"""Most characters kept of a traceback and of a message."""


def encode_error(exc: BaseException, fault: str) -> ErrorRecord:
    """The record of an exception.

    `rebuild` is filled in if `rebuild_error` gives an equal exception from it: same class, args,
    text and attributes. Never raises for what the exception holds.

    Args:
        exc: the exception, with its traceback.
        fault: the fault class it was given.
    """
    return ErrorRecord(
        type=display_name(type(exc)),
        message=_bounded(_message(exc)),
        fault=fault,
        rebuild=_recipe(exc),
        traceback=_bounded(_traceback(exc)),
    )


def rebuild_error(record: ErrorRecord, *, hints: Sequence[object] = ()) -> Exception:
    """A fresh exception from a record: an equal one, or else `StepFailed` that describes it.

    Args:
        hints: see `decode`.

    Raises:
        Unreadable: the exception's class or a class in its args is gone.
    """
    if record.rebuild == ABSENT:
        return StepFailed(record.type, record.fault, record.message)
    recipe = cast(Recipe, decode(record.rebuild, hints=hints))
    try:
        name, args, inner, details, state = recipe
        cls = find_class(name, hints)
        if cls is None or Exception not in cls.__mro__:
            raise Unreadable(
                f"the exception class {name} is not in an imported module; import the module "
                f"before the run is resumed, or put the class back"
            )
        return _make(cls, args, inner, details, state)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"a stored {record.type} cannot be rebuilt: {error}") from error


def _recipe(exc: BaseException) -> msgspec.Raw:
    """What rebuilds an equal exception; ABSENT if nothing does."""
    cls = type(exc)
    if not isinstance(exc, Exception) or BaseExceptionGroup in cls.__mro__ or _has_slots(cls):
        return ABSENT
    try:
        name = check_findable(cls, ())
        inner = _base(cls).__reduce__(exc)[1]  # with what `args` leaves out, an OSError's file name
        details = _details(exc)
        data = encode([name, exc.args, inner, details, exc.__dict__])
        copy = rebuild_error(ErrorRecord("", "", "", msgspec.Raw(data)))
        stored = encode([name, copy.args, inner, _details(copy), copy.__dict__])
        same = stored == data and str(copy) == str(exc) and type(copy) is cls
    except (Refusal, NotStorable, Unreadable):
        return ABSENT
    except Exception:
        # The class's own code (its __str__) failed, or its C base takes other arguments: the
        # exception is then described instead of rebuilt, which loses nothing of its record.
        return ABSENT
    return msgspec.Raw(data) if same else ABSENT


def _make(
    cls: type[Exception], args: Args, inner: Args, details: Attributes, state: Attributes
) -> Exception:
    """An exception without its class's own `__new__` and `__init__`: those of its C base only."""
    base = _base(cls)
    made = base.__new__(cls, *inner)
    base.__init__(made, *inner, **details)
    vars(BaseException)["args"].__set__(made, args)  # past any `__setattr__` of the class
    made.__dict__.update(state)
    return made


def _details(exc: BaseException) -> Attributes:
    for cls, names in _KEYWORDS.items():
        if isinstance(exc, cls):
            return {name: getattr(exc, name) for name in names if getattr(exc, name) is not None}
    return {}


def _base(cls: type) -> type[Exception]:
    """The nearest class that is made in C."""
    return next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)


def _has_slots(cls: type) -> bool:
    return any(
        type(member) is types.MemberDescriptorType
        for base in cls.__mro__
        if base.__flags__ & HEAP_TYPE
        for member in vars(base).values()
    )


def _message(exc: BaseException) -> str:
    try:
        return escape_surrogates(str(exc))
    except Exception:
        return f"<unprintable {type(exc).__name__}>"


def _traceback(exc: BaseException) -> str:
    try:
        return escape_surrogates("".join(traceback.format_exception(exc)))
    except Exception as error:
        return f"(no traceback: formatting it raised {type(error).__name__})"


def _bounded(text: str) -> str:
    """Head and tail of a long text."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
