"""Turn state in few bytes: what has changed since the turn before, and a whole record now and then.

Fields are compared in their stored form, never by object identity, since elements change in place.
A field that is the same is left out. A list or a text that has grown at its end, so that the old
bytes are a prefix of the new ones, stores its tail. Anything else is stored anew.

A whole record is stored when the deltas since the last one have become large beside it, when one
delta is half of the state, or when the state has shrunk: so n turns cost O(n) bytes, and a resume
reads at most about three times the state, however small its deltas and many its turns are.
"""

from collections.abc import Mapping

from msgspec import Raw, Struct

from outlast import codec
from outlast.events import ABSENT, TurnField, TurnSaved

LEAST = 64 * 1024
"""Bytes of deltas that are always worth less than a whole record."""

EVENT = 300
"""Bytes that a delta counts for beside its own: about what an event takes in a store."""


class TurnState(Struct):
    """What is stored of one loop's record.

    Attributes:
        turn: the last saved turn.
        fields: each field in its stored form.
    """

    turn: int = 0
    fields: dict[str, bytes] = {}
    _since_full: int = 0
    _size_at_full: int = 0

    def advance(self, turn: int, new: Mapping[str, bytes]) -> TurnSaved:
        """Move on to the next turn; returns the event that stores it.

        Args:
            turn: number of the turn that begins.
            new: each field in its stored form.
        """
        size = sum(map(len, new.values()))
        changed = {n: _change(self.fields.get(n), v) for n, v in new.items()}
        delta = sum(len(bytes(c.value)) + len(bytes(c.tail)) for c in changed.values() if c)
        full = (
            not self.fields
            or new.keys() != self.fields.keys()
            or 2 * delta >= size
            or self._since_full + EVENT + delta >= max(LEAST, 2 * self._size_at_full)
            or 2 * size < self._size_at_full
        )
        if full:
            stored = {n: TurnField(value=Raw(codec.pack(value))) for n, value in new.items()}
            self._since_full, self._size_at_full = 0, size
        else:
            stored = {name: change for name, change in changed.items() if change is not None}
            self._since_full += EVENT + delta
        self.turn, self.fields = turn, dict(new)
        return TurnSaved(turn, stored, full)


def replayed(saved: list[TurnSaved]) -> TurnState:
    """The state that a loop's events add up to, oldest event first."""
    start = max((i for i, event in enumerate(saved) if event.full), default=0)
    parts: dict[str, list[bytes]] = {}
    since = 0
    for event in saved[start:]:
        for name, change in event.fields.items():
            value, tail = bytes(change.value), bytes(change.tail)
            if value:
                parts[name] = [codec.unpack(value)]
            elif tail:
                parts[name].append(tail)
            since += 0 if event.full else len(value) + len(tail)
        since += 0 if event.full else EVENT
    fields = {name: _join(part) for name, part in parts.items()}
    size = sum(len(codec.unpack(bytes(f.value))) for f in saved[start].fields.values())
    return TurnState(saved[-1].turn, fields, since, size)


def _change(old: bytes | None, new: bytes) -> TurnField | None:
    """How a field changed; None if it did not.

    Lists and texts in JSON end with one closing byte. If all before it stands at the beginning of
    the new form too, the rest of that is the tail: for a list only behind a comma, or `[1]` would
    pass for the beginning of `[12]`; inside a text a cut never falls into an escape, as the old
    text ended there.
    """
    if old == new:
        return None
    if old is not None and len(new) > len(old) > 2 and new.startswith(old[:-1]):
        at = len(old) - 1
        if old[:1] == b"[" and new[at : at + 1] == b",":
            return TurnField(value=ABSENT, tail=Raw(b"[" + new[at + 1 :]))
        if old[:1] == b'"':
            return TurnField(value=ABSENT, tail=Raw(b'"' + new[at:]))
    return TurnField(value=Raw(new))


def _join(parts: list[bytes]) -> bytes:
    """A value and its tails, put together."""
    if len(parts) == 1:
        return parts[0]
    between = b"," if parts[0][:1] == b"[" else b""
    return between.join([parts[0][:-1], *(p[1:-1] for p in parts[1:])]) + parts[0][-1:]
