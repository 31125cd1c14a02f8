"""Short texts about arguments, for people."""

import reprlib
from collections.abc import Mapping

_VALUE_LIMIT = 80


class _Short(reprlib.Repr):
    """Bounded reprs that survive a broken `__repr__` and say nothing that changes between runs."""

    def __init__(self) -> None:
        super().__init__()
        self.fillvalue = "…"
        self.maxlevel = 4
        self.maxstring = self.maxother = self.maxlong = _VALUE_LIMIT

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


def preview(
    arguments: Mapping[str, object], secret: frozenset[str] = frozenset(), limit: int = 200
) -> str:
    """Arguments as one short line, such as `order=Order(id='A-17'), query='x'`. Never raises.

    Args:
        arguments: values by parameter name.
        secret: names whose values are shown as `***`.
        limit: most characters of the text.
    """
    shown = (f"{name}={'***' if name in secret else _repr(arguments[name])}" for name in arguments)
    text = printable(", ".join(shown))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """The text on one line: control characters and lone surrogates become backslash escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _repr(value: object) -> str:
    try:
        return _SHORT.repr(value)
    except Exception:
        # A container whose elements cannot be shown or sorted, or an int of too many digits.
        return f"<unprintable {type(value).__name__}>"
