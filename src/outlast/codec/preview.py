"""Short texts about arguments, for people."""

import reprlib
import sys
from collections.abc import Mapping

_VALUE_LIMIT = 80


class _Short(reprlib.Repr):
    """Bounded reprs that survive a broken `__repr__` and say nothing that changes between runs."""

    def __init__(self, longest: int = _VALUE_LIMIT) -> None:
        super().__init__()
        self.fillvalue = "…"
        self.maxlevel = 4
        self.maxstring = self.maxother = self.maxlong = longest

    def repr_bytes(self, x: bytes, level: int) -> str:
        text = repr(x[: self.maxstring])
        return text if len(x) <= self.maxstring else text + "…"

    def repr_instance(self, x: object, level: int) -> str:
        try:
            text = repr(x)
        except Exception:
            return f"<unprintable {type(x).__name__}>"
        return text if len(text) <= self.maxother else text[: self.maxother - 1] + "…"


_SHORT = _Short()


class _Whole(_Short):
    """The same reprs in full."""

    def __init__(self) -> None:
        super().__init__(sys.maxsize - 1)
        self.maxlevel = _LEVELS
        self.maxtuple = self.maxlist = self.maxarray = self.maxdeque = sys.maxsize
        self.maxdict = self.maxset = self.maxfrozenset = sys.maxsize


_LEVELS = 100
"""Deeper than that, a list in lists is shown as `[…]`."""

_WHOLE = _Whole()

_MOST = 20_000
"""Most characters of arguments that are shown to somebody in full."""


def preview(
    arguments: Mapping[str, object], secret: frozenset[str] = frozenset(), limit: int = 200
) -> str:
    """Arguments as one short line, such as `order=Order(id='A-17'), query='x'`. Never raises.

    Args:
        arguments: values by parameter name.
        secret: names whose values are shown as `***`.
        limit: most characters of the text.
    """
    text = _text(arguments, secret, _SHORT)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def in_full(arguments: Mapping[str, object], secret: frozenset[str] = frozenset()) -> str:
    """All of the line whose beginning is `preview`, for somebody who has to decide about it. Text
    of more than 20,000 characters is cut and says so. Never raises."""
    text = _text(arguments, secret, _WHOLE)
    if len(text) <= _MOST:
        return text
    return f"{text[:_MOST]}… (cut: {len(text) - _MOST:,} more characters are not shown)"


def _text(arguments: Mapping[str, object], secret: frozenset[str], form: _Short) -> str:
    shown = (
        f"{name}={'***' if name in secret else _repr(value, form)}"
        for name, value in arguments.items()
    )
    return printable(", ".join(shown))


def printable(text: str) -> str:
    """The text on one line: control characters and lone surrogates become backslash escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _repr(value: object, form: _Short) -> str:
    try:
        return form.repr(value)
    except Exception:
        # A container whose elements cannot be shown or sorted, or an int of too many digits.
        return f"<unprintable {type(value).__name__}>"
