"""Money and tokens as exact numbers. No sum of them is ever rounded, and nothing odd gets in."""

from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation

from outlast.records import Usage

GREATEST = Decimal(10) ** 18
FINEST = -400
"""Exponent of the last decimal place that is kept, beyond what any float has."""

# Wide enough for the sum of any two amounts, so that the trap for rounding never closes.
_EXACT = Context(prec=1_000, traps=[Inexact, InvalidOperation])

ZERO = Decimal(0)
NOTHING = Usage(usd=ZERO, tokens=0)
"""What something costs that is declared to be free."""


def plus(one: Decimal, other: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(one, other)


def minus(one: Decimal, other: Decimal) -> Decimal:
    """The exact difference."""
    return _EXACT.subtract(one, other)


def dollars(value: object) -> Decimal:
    """An amount of money, exactly as it was written: the float 0.1 is one tenth.

    Raises:
        ValueError: it is no number, or negative, NaN, infinite or far beyond any bill.
    """
    # bool is an int: `cost=True` is a slip, not a dollar.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{value!r} is {_kind(value)}, not a number of US dollars")
    amount = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    if not amount.is_finite():
        raise ValueError(f"{value!r} is not a finite number of US dollars")
    if amount < 0:
        raise ValueError(f"{value!r} is negative, and money is not")
    exponent = amount.as_tuple().exponent
    if amount >= GREATEST or (isinstance(exponent, int) and exponent < FINEST):
        raise ValueError(f"{value!r} is no amount of money that anybody pays")
    return amount.copy_abs()  # not -0; abs() would round it


def count(value: object) -> int:
    """A number of tokens or of anything else that is counted.

    Raises:
        ValueError: it is no whole number, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is {_kind(value)}, not a whole number")
    if value < 0:
        raise ValueError(f"{value!r} is negative, and a count is not")
    if value >= GREATEST:
        raise ValueError(f"{value!r} is more than can be counted")
    return value


def cost(value: object) -> Usage:
    """A cost as people write it: a number of US dollars, or a `Usage`, whose numbers are checked.

    Raises:
        ValueError: it is neither, see `dollars` and `count`.
    """
    if not isinstance(value, Usage):
        return Usage(usd=dollars(value), tokens=0)
    return Usage(
        usd=None if value.usd is None else dollars(value.usd),
        tokens=None if value.tokens is None else count(value.tokens),
    )


def total(costs: Iterable[Usage]) -> Usage:
    """The sum of some costs. A part that is unknown in one of them is unknown in it."""
    usd: Decimal | None = ZERO
    tokens: int | None = 0
    for one in costs:
        usd = None if usd is None or one.usd is None else plus(usd, one.usd)
        tokens = None if tokens is None or one.tokens is None else tokens + one.tokens
    return Usage(usd=usd, tokens=tokens)


def in_words(amount: Decimal) -> str:
    """An amount for people: `0.30`, `0.000125`, `1200.00`."""
    if not amount.is_finite():
        return "unlimited"
    whole, _, places = f"{amount:f}".partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
