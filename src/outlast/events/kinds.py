"""All kinds of events, by the name that stands in the journal."""

import msgspec

from outlast.events import calls, children, runs, steps, store, waits
from outlast.events.base import Event

_MODULES = (runs, steps, calls, waits, children, store)

ALL: dict[str, type[Event]] = {
    cls.kind: cls
    for module in _MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
}

_DECODERS = {kind: msgspec.json.Decoder(cls) for kind, cls in ALL.items()}


def decode(kind: str, data: bytes) -> Event:
    """Read one event's data.

    Raises:
        msgspec.DecodeError, KeyError: the bytes or the kind are not ours (a newer library, or a
            damaged store).
    """
    return _DECODERS[kind].decode(data)
