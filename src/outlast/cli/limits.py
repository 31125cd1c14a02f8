"""Limits and costs as they are typed."""

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import asdict, replace

from outlast.errors import UsageError
from outlast.policy.budget import Budget, Limits, parse_limits
from outlast.records import Usage

UNLIMITED = "usd=unlimited"


def parse_budget(given: Sequence[str]) -> Limits:
    """The values of `--budget` together; `usd=unlimited` allows any amount of money.

    Raises:
        UsageError: see `parse_limits`.
    """
    text = ",".join(given)
    parts = [part.strip() for part in text.split(",")]
    others = [part for part in parts if part != UNLIMITED]
    if others == parts:
        return parse_limits(text)
    limits = parse_limits(",".join(others)) if others else Limits()
    if limits.usd is not None or len(parts) > len(others) + 1:
        raise UsageError(f"usd is given twice in {text!r}")
    return replace(limits, usd=Decimal("Infinity"))


def parse_added(given: Sequence[str]) -> Budget:
    """The values of `--add` together.

    Raises:
        UsageError: see `parse_limits`; or one of them is 0.
    """
    limits = parse_limits(",".join(given))
    for name in Limits.__struct_fields__:
        if getattr(limits, name) == 0:
            raise UsageError(f"--add {name}=0 adds nothing; a number above 0 is expected")
    return Budget(**asdict(limits))


def parse_charged(given: Sequence[str]) -> Usage:
    """The values of `--charge` together: what unknown costs came to.

    Raises:
        UsageError: see `parse_limits`; or it is about something else than money and tokens.
    """
    limits = parse_limits(",".join(given))
    usage = Usage(limits.usd, limits.tokens)
    if limits != Limits(usd=limits.usd, tokens=limits.tokens):
        raise UsageError(f"--charge {','.join(given)}: what can be unknown is usd and tokens")
    return usage
