"""What a run may spend, as its code declares it, an operator adds it or a command line says it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal, Self, TypeVar

import msgspec

from outlast.amounts import ZERO, cost, count, dollars, plus
from outlast.errors import UsageError
from outlast.records import Usage

LimitName = Literal["usd", "tokens", "calls", "steps", "turns", "seconds"]

V = TypeVar("V")


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """So much and no more; what each number counts is told in `Budget`. None: no limit, except for
    money, of which none may be spent then. An infinite `usd` allows any amount."""

    usd: Decimal | None = None
    tokens: int | None = None
    calls: int | None = None
    steps: int | None = None
    turns: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run and its children may spend together, over all resumes.

    Attributes:
        usd: US dollars, exactly as written. None: no money, so a step that declares a cost is
            refused. For any amount, see `unlimited`.
        tokens: tokens of models, in and out together. None, here and below: no limit.
        calls: attempts of steps, and calls that a breaker refused.
        steps: different step calls, however often each of them is tried.
        turns: turns of its agent loops.
        seconds: running time, without the time in which it waits and no process has it.
        on_unknown: what to do once a cost cannot be told: `hold` the run before it spends more, or
            go on and charge this upper bound for it, a number of dollars or a `Usage`.

    Raises:
        ValueError: a limit is negative or not a number.
    """

    usd: Decimal | int | float | str | None = None
    tokens: int | None = None
    calls: int | None = None
    steps: int | None = None
    turns: int | None = None
    seconds: float | None = None
    on_unknown: Literal["hold"] | Usage | Decimal | int | float = "hold"

    def __post_init__(self) -> None:
        # Frozen, so the checked forms go past __setattr__.
        if self.usd is not None:
            object.__setattr__(self, "usd", _checked("usd", self.usd, _money))
        for name in ("tokens", "calls", "steps", "turns"):
            if (value := getattr(self, name)) is not None:
                _checked(name, value, count)
        if self.seconds is not None:
            object.__setattr__(self, "seconds", _checked("seconds", self.seconds, _duration))
        if self.on_unknown != "hold":
            object.__setattr__(
                self, "on_unknown", _checked("on_unknown", self.on_unknown, _upper_bound)
            )

    @classmethod
    def unlimited(
        cls,
        *,
        tokens: int | None = None,
        calls: int | None = None,
        steps: int | None = None,
        turns: int | None = None,
        seconds: float | None = None,
    ) -> Self:
        """Any amount of money; what is spent is counted all the same. The other limits hold."""
        made = cls(tokens=tokens, calls=calls, steps=steps, turns=turns, seconds=seconds)
        object.__setattr__(made, "usd", Decimal("Infinity"))
        return made

    @property
    def limits(self) -> Limits:
        """Its numbers alone."""
        assert self.usd is None or isinstance(self.usd, Decimal)
        return Limits(self.usd, self.tokens, self.calls, self.steps, self.turns, self.seconds)

    @property
    def bound(self) -> Usage | None:
        """What is charged where a cost cannot be told; None to hold the run."""
        return self.on_unknown if isinstance(self.on_unknown, Usage) else None


def together(declared: Limits, added: Limits) -> Limits:
    """What the code declares and what operators added. Money that is added to none is a limit of
    its own; what has no limit keeps none."""
    usd = added.usd if declared.usd is None else declared.usd
    if declared.usd is not None and added.usd is not None:
        usd = plus(declared.usd, added.usd)
    return Limits(
        usd=usd,
        tokens=_more(declared.tokens, added.tokens),
        calls=_more(declared.calls, added.calls),
        steps=_more(declared.steps, added.steps),
        turns=_more(declared.turns, added.turns),
        seconds=None if declared.seconds is None else declared.seconds + (added.seconds or 0.0),
    )


def sum_of(one: Limits, other: Limits) -> Limits:
    """What operators have added in two commands."""
    return Limits(
        usd=one.usd if other.usd is None else plus(one.usd or ZERO, other.usd),
        tokens=_sum(one.tokens, other.tokens),
        calls=_sum(one.calls, other.calls),
        steps=_sum(one.steps, other.steps),
        turns=_sum(one.turns, other.turns),
        seconds=one.seconds if other.seconds is None else (one.seconds or 0.0) + other.seconds,
    )


def parse_limits(text: str) -> Limits:
    """Limits as written on a command line: `usd=5,calls=100`.

    Raises:
        UsageError: a name is unknown or stands there twice, or a value is no number or negative.
    """
    known = ", ".join(Limits.__struct_fields__)
    found: dict[str, Decimal | int | float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in Limits.__struct_fields__ or not equals:
            raise UsageError(
                f"{part.strip()!r} is no limit; write NAME=NUMBER, with a comma between two of "
                f"them, NAME being one of {known}"
            )
        if name in found:
            raise UsageError(f"{name} is given twice in {text!r}")
        read: Callable[[str], Decimal | int | float] = _READERS.get(name, _read_count)
        try:
            found[name] = read(value)
        except ValueError as problem:
            raise UsageError(f"{part.strip()!r}: {problem}") from None
    return msgspec.convert(found, Limits)


def _checked(name: str, value: V, check: Callable[[V], object]) -> object:
    try:
        return check(value)
    except ValueError as problem:
        raise ValueError(f"Budget({name}={value!r}): {problem}") from None


def _money(value: object) -> Decimal:
    amount = value
    if isinstance(value, str):
        try:
            amount = Decimal(value)
        except InvalidOperation:
            raise ValueError(f"{value!r} is not a number of US dollars") from None
    if str(amount) in ("inf", "Infinity"):  # a signaling NaN cannot be compared with anything
        raise ValueError("for any amount of money write Budget.unlimited()")
    return dollars(amount)


def _duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number of seconds")
    if not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a finite number of seconds, 0 or more")
    return float(value)


def _upper_bound(value: object) -> Usage:
    # A number says nothing about tokens: if those are limited too, they stay unknown.
    return cost(value) if isinstance(value, Usage) else Usage(usd=dollars(value))


def _more(declared: int | None, added: int | None) -> int | None:
    return None if declared is None else declared + (added or 0)


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else (one or 0) + other


def _read_count(text: str) -> int:
    if not (text.isascii() and text.lstrip("-").isdigit()):
        raise ValueError(f"{text!r} is not a whole number")
    return count(int(text))


def _read_seconds(text: str) -> float:
    try:
        return _duration(float(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a finite number of seconds, 0 or more") from None


_READERS: dict[str, Callable[[str], Decimal | int | float]] = {
    "usd": _money,
    "seconds": _read_seconds,
}
