"""The answer where a cost cannot be told."""

from dataclasses import dataclass, field

from outlast.records import Usage


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A cost that cannot be told, which is not nothing.

    Attributes:
        why: in words.
        known: the part of it that is known, such as the tokens of a model without a price.
    """

    why: str
    known: Usage = field(default_factory=Usage)
