"""What all kinds of events have in common."""

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all event payloads. `kind` is the value of the column of that name."""

    kind: ClassVar[str]

    def encode(self) -> bytes:
        """The event's data. Lone surrogates in its texts (messages, reasons: words for people) are
        escaped, so that whatever a tool or an operator says can be recorded."""
        try:
            return _ENCODER.encode(self)
        except UnicodeEncodeError:
            return _ENCODER.encode(_escaped(self))


_ENCODER = msgspec.json.Encoder()


def _escaped(value: msgspec.Struct) -> msgspec.Struct:
    fields: dict[str, object] = {}
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if isinstance(item, str):
            fields[name] = escape_surrogates(item)
        elif isinstance(item, msgspec.Struct):
            fields[name] = _escaped(item)
    return msgspec.structs.replace(value, **fields)


def escape_surrogates(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes its backslash escape."""
    return text.encode("utf-8", "backslashreplace").decode()
