"""What every part of the encoder shares: one walk over a value, and its limits."""

from collections.abc import Sequence

from outlast.codec.classes import Refusal

MAX_BYTES = 64 * 1024 * 1024
"""Largest stored form of one value, in bytes and before compression, unless told otherwise."""

MAX_DEPTH = 200
"""Deepest nesting of containers in one value."""


class Walk:
    """One walk over a value.

    Attributes:
        hints: annotations through which classes may be found.
        canonical: whether equal values must give equal bytes (the order of dicts is left out, and
            classes need a name but need not be found by it).
        limit: most bytes that may be written.
        left: bytes that may still be written, roughly. It stops a small value that refers to
            itself many times over from filling the memory.
    """

    __slots__ = ("canonical", "hints", "left", "limit")

    def __init__(self, hints: Sequence[object], canonical: bool, limit: int) -> None:
        self.hints = hints
        self.canonical = canonical
        self.limit = self.left = limit

    def spend(self, size: int) -> None:
        """Count bytes to be written. Raises Refusal if they are too many."""
        self.left -= size
        if self.left < 0:
            raise Refusal(too_large(f"more than {self.limit:,} bytes", self.limit))

    def enter(self, depth: int, size: int) -> None:
        """Go into a container of `size` items. Raises Refusal if it is too deep or too large."""
        if depth >= MAX_DEPTH:
            raise Refusal(f"it contains itself, or is nested deeper than {MAX_DEPTH} levels")
        self.spend(2 + 2 * size)


def too_large(size: str, limit: int) -> str:
    """The reason for refusing a value of that size."""
    return (
        f"its stored form takes {size}, the limit is {limit:,} bytes; store the data elsewhere "
        f"and keep a reference to it, or raise outlast.Settings(max_value_bytes=...)"
    )
