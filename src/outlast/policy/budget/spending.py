"""What an attempt does to an account: room is set aside when it opens, and settled when it ends.

At a reservation, what is settled and what is reserved never pass a limit together. Afterwards
they can: an attempt that costs more than its estimate is charged in full.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec.structs import replace

from outlast.amounts import NOTHING, ZERO, in_words, minus, plus, total
from outlast.events import escape_surrogates
from outlast.policy.budget.account import (
    TOLD,
    Account,
    Open,
    Part,
    Ticket,
    Unknown,
    is_limited,
)
from outlast.policy.budget.limits import LimitName
from outlast.records import Usage

INFINITE = Decimal("Infinity")


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that wants to open.

    Attributes:
        step: name of the step.
        first: nothing was opened under this key before.
        priced: the step declares a cost.
        estimate: what the attempt will cost; None, as a whole or in a part: nobody says.
        free: what it certainly takes nothing of.
    """

    ticket: Ticket
    step: str
    first: bool
    priced: bool = False
    estimate: Usage | None = None
    free: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Short:
    """A limit stands in the way, and nothing was changed.

    Attributes:
        limit: which one; `unknown`: what was spent so far cannot be told.
        text: it in words: what was asked for, and what is left.
        transient: it would fit if attempts under way turned out to cost less than what is set
            aside for them, so asking again once they have ended may help.
        asked: how much was asked for; None: all that is left, as nobody knows how much.
        left: how much there is.
        waits_for: those attempts.
    """

    limit: LimitName | Literal["unknown"]
    text: str
    transient: bool = False
    asked: Decimal | int | float | None = None
    left: Decimal | int | float | None = None
    waits_for: tuple[Ticket, ...] = ()


@dataclass(frozen=True, slots=True)
class _Share:
    """What one part of an attempt would take."""

    part: Part
    amount: Decimal
    basis: Literal["free", "estimate", "largest", "nothing"]
    limit: Decimal
    settled: Decimal
    reserved: Decimal

    def fits(self, *, reserved: Decimal) -> bool:
        """Whether it is to be had, with so much set aside for others."""
        if self.limit == INFINITE or self.basis == "free":
            return True
        # Nobody has said that it is free, so an empty purse is not enough, whatever it cost before.
        room = minus(self.limit, plus(self.settled, reserved))
        return room > 0 and (self.basis == "nothing" or self.amount <= room)


def reserve(account: Account, ask: Ask) -> Account | Short:
    """Open an attempt: count it, and set aside what it may cost.

    That is its estimate, or the most that an attempt of this step has cost; where there is neither,
    all that is left, so that several such attempts do not open side by side. One of a step without
    a cost is only counted. A ticket that is open already changes nothing.
    """
    if ask.ticket.id in account.open:
        return account
    # A step without a declared cost whose body has reported one spends all the same.
    priced = ask.priced or ask.step in account.largest
    short = _too_many(account, ask) or (priced and _cost_unknown(account, ask.step)) or None
    if short is not None:
        return short
    open_ = account.open
    if priced:
        shares = _shares(account, ask)
        short = _too_dear(account, ask.step, shares)
        if short is not None:
            return short
        usd, tokens = shares
        guessed = tuple(one.part for one in shares if one.basis == "nothing")
        reserved = Usage(usd.amount, int(tokens.amount))
        entry = Open(step=ask.step, reserved=reserved, priced=True, guessed=guessed)
        open_ = open_ | {ask.ticket.id: entry}
    return replace(
        account,
        calls=account.calls + 1,
        steps=account.steps + ask.first,
        open=open_,
        metered=account.metered or priced,
    )


def refuse_call(account: Account) -> Account | Short:
    """Count a call that was refused before it opened, as by a breaker."""
    return _limit(account, "calls") or replace(account, calls=account.calls + 1)


def count_turn(account: Account) -> Account | Short:
    """Count a turn of an agent loop."""
    return _limit(account, "turns") or replace(account, turns=account.turns + 1)


def charge(account: Account, ticket: Ticket, usage: Usage) -> Account:
    """Take what the body of an attempt reports while it runs, on top of what it reported before. A
    part that it leaves out is nothing. If the ticket is not open, nothing changes."""
    entry = account.open.get(ticket.id)
    if entry is None:
        return account
    usd, tokens = usage.usd or ZERO, usage.tokens or 0
    reserved_usd, reserved_tokens = entry.reserved.usd or ZERO, entry.reserved.tokens or 0
    entry = replace(
        entry,
        reserved=Usage(max(ZERO, minus(reserved_usd, usd)), max(0, reserved_tokens - tokens)),
        charged=Usage(plus(entry.charged.usd or ZERO, usd), (entry.charged.tokens or 0) + tokens),
    )
    return replace(
        account,
        settled=Usage(plus(account.spent_usd, usd), account.spent_tokens + tokens),
        open=account.open | {ticket.id: entry},
    )


def spend(account: Account, usage: Usage, step: str = "", so_far: Usage = NOTHING) -> Account:
    """Settle what belongs to no attempt that is open. A part that is left out is nothing.

    Args:
        step: whose body has reported it, `so_far` all that this attempt of it has: from now on the
            step has a cost.
    """
    settled = total((account.settled, Usage(usage.usd or ZERO, usage.tokens or 0)))
    account = replace(account, settled=settled)
    return _learn(account, step, so_far.usd or ZERO, so_far.tokens or 0) if step else account


def settle(
    account: Account,
    ticket: Ticket,
    actual: Usage | None = None,
    why: str = "",
    *,
    worked: bool = True,
) -> Account:
    """Close an attempt whose cost is known, or known to be unknown. What it reported before is part
    of it, and is never paid back. If the ticket is not open, nothing changes.

    Args:
        actual: all that it cost. A part that is None is unknown: the account's bound is charged
            for it, or no more is spent until an operator has said what it was. None as a whole:
            what it has reported is all.
        why: why something is unknown.
        worked: the tool did what it is paid for. What an attempt costs that it refused says nothing
            about others.
    """
    entry = account.open.get(ticket.id)
    if entry is None:
        return account
    cost = entry.charged if actual is None else actual
    return _close(account, ticket, entry, cost, why, learns=worked)


def settle_died(
    account: Account, ticket: Ticket, why: str = "the attempt ended without telling"
) -> Account:
    """Close an attempt that cannot tell any more what it cost: what was set aside for it is
    charged, and at least what it had reported. Where nobody had an idea how much to set aside, the
    cost is unknown (see `settle`). If the ticket is not open, nothing changes."""
    entry = account.open.get(ticket.id)
    if entry is None:
        return account
    usd = plus(entry.charged.usd or ZERO, entry.reserved.usd or ZERO)
    tokens = (entry.charged.tokens or 0) + (entry.reserved.tokens or 0)
    actual = Usage(
        usd=None if "usd" in entry.guessed else usd,
        tokens=None if "tokens" in entry.guessed else tokens,
    )
    return _close(account, ticket, entry, actual, why)


def _close(
    account: Account,
    ticket: Ticket,
    entry: Open,
    actual: Usage,
    why: str,
    *,
    learns: bool = True,
) -> Account:
    bound = account.bound or Usage()
    usd = bound.usd if actual.usd is None else actual.usd
    tokens = bound.tokens if actual.tokens is None else actual.tokens
    charged_usd, charged_tokens = entry.charged.usd or ZERO, entry.charged.tokens or 0
    usd = None if usd is None else max(usd, charged_usd)
    tokens = None if tokens is None else max(tokens, charged_tokens)
    more_usd = ZERO if usd is None else minus(usd, charged_usd)
    more_tokens = 0 if tokens is None else tokens - charged_tokens
    account = replace(
        account,
        settled=Usage(
            plus(account.spent_usd, more_usd),
            account.spent_tokens + more_tokens,
        ),
        open={id: one for id, one in account.open.items() if id != ticket.id},
    )
    if learns or usd or tokens:
        account = _learn(account, entry.step, usd if learns or usd else None, tokens)
    return _note_unknown(account, ticket, usd, tokens, why or "it was not told")


def _note_unknown(
    account: Account, ticket: Ticket, usd: Decimal | None, tokens: int | None, why: str
) -> Account:
    """Note what has no number, for which nothing was charged."""
    if usd is not None and tokens is not None:
        return account
    parts: list[Part] = ["usd"] if usd is None else []
    if tokens is None and is_limited(account, "tokens"):  # otherwise nobody asks for them
        parts.append("tokens")
    unknown = account.unknown
    if parts and len(unknown) < TOLD:
        unknown = (*unknown, Unknown(ticket.id, tuple(parts), escape_surrogates(why)))
    return replace(
        account,
        unknown=unknown,
        unknown_usd=account.unknown_usd + (usd is None),
        unknown_tokens=account.unknown_tokens + (tokens is None),
    )


def _learn(account: Account, step: str, usd: Decimal | None, tokens: int | None) -> Account:
    known = account.largest.get(step, Usage())
    dearer = usd is not None and (known.usd is None or usd > known.usd)
    longer = tokens is not None and (known.tokens is None or tokens > known.tokens)
    if not (dearer or longer):
        return account
    largest = Usage(usd if dearer else known.usd, tokens if longer else known.tokens)
    return replace(account, largest=account.largest | {step: largest})


def _shares(account: Account, ask: Ask) -> tuple[_Share, _Share]:
    """What an attempt would take of the money and of the tokens."""
    limits, reserved = account.limits, account.reserved
    estimate = ask.estimate or Usage()
    largest = account.largest.get(ask.step, Usage())
    free = set(ask.free)
    if not ask.priced:  # it has said what it takes, so of the other kind it takes nothing
        free |= {"usd"} if not largest.usd else set()
        free |= {"tokens"} if not largest.tokens else set()
    usd = _share(
        "usd",
        "usd" in free,
        estimate.usd,
        largest.usd,
        ZERO if limits.usd is None else limits.usd,
        account.spent_usd,
        reserved.usd or ZERO,
    )
    tokens = _share(
        "tokens",
        "tokens" in free,
        _decimal(estimate.tokens),
        _decimal(largest.tokens),
        INFINITE if limits.tokens is None else Decimal(limits.tokens),
        Decimal(account.spent_tokens),
        Decimal(reserved.tokens or 0),
    )
    return usd, tokens


def _share(
    part: Part,
    free: bool,
    estimate: Decimal | None,
    largest: Decimal | None,
    limit: Decimal,
    settled: Decimal,
    reserved: Decimal,
) -> _Share:
    if free:
        return _Share(part, ZERO, "free", limit, settled, reserved)
    if estimate is not None:
        return _Share(part, estimate, "estimate", limit, settled, reserved)
    if largest is not None:
        return _Share(part, largest, "largest", limit, settled, reserved)
    # All that is left of something without a limit is no amount.
    rest = ZERO if limit == INFINITE else max(ZERO, minus(limit, plus(settled, reserved)))
    return _Share(part, rest, "nothing", limit, settled, reserved)


def _too_dear(account: Account, step: str, shares: tuple[_Share, _Share]) -> Short | None:
    """Why there is not enough left. What stands in the way for good comes first."""
    lacking = [one for one in shares if not one.fits(reserved=one.reserved)]
    if not lacking:
        return None
    final = [one for one in lacking if not one.fits(reserved=ZERO)]
    one, transient = (final or lacking)[0], not final
    if one.part == "usd" and account.limits.usd is None:
        text = (
            f"step {step} costs money, and the run has none to spend: give it a budget, such as "
            "Budget(usd=2), or Budget.unlimited()"
        )
        return Short("usd", text, asked=None if one.basis == "nothing" else one.amount, left=ZERO)
    rest = max(ZERO, minus(one.limit, plus(one.settled, one.reserved)))
    words, unit, number = (in_words, "USD", Decimal) if one.part == "usd" else (str, "tokens", int)
    asked = {
        "free": "asked nothing",
        "estimate": f"asked {words(one.amount)} {unit}",
        "largest": f"asked {words(one.amount)} {unit}, the most it has cost so far",
        "nothing": f"nobody knows yet how many {unit} it takes",
    }[one.basis]
    text = (
        f"step {step}: {asked}; {words(rest)} of {words(one.limit)} {unit} left "
        f"({words(one.settled)} settled, {words(one.reserved)} reserved)"
    )
    return Short(
        one.part,
        text,
        transient=transient,
        asked=None if one.basis == "nothing" else number(one.amount),
        left=number(rest),
        waits_for=tuple(map(Ticket.parse, account.open)) if transient else (),
    )


def _cost_unknown(account: Account, step: str) -> Short | None:
    """Refuses to spend more while something that was spent cannot be told."""
    usd = bool(account.unknown_usd) and is_limited(account, "usd")
    tokens = bool(account.unknown_tokens) and is_limited(account, "tokens")
    if not (usd or tokens):
        return None
    first = next(
        (one for one in account.unknown if ("usd" if usd else "tokens") in one.parts), None
    )
    number = max(account.unknown_usd * usd, account.unknown_tokens * tokens)
    which = f"{number} attempt" + ("s" if number > 1 else "")
    if first is not None:
        ticket = Ticket.parse(first.ticket)
        which += f" (first {ticket.key}, attempt {ticket.attempt}: {first.why})"
    what = "cost" if usd else "use of tokens"
    return Short(
        "unknown",
        f"step {step} has a cost, and the {what} of {which} is unknown, so nobody can tell what "
        "is left",
    )


def _too_many(account: Account, ask: Ask) -> Short | None:
    """Why no attempt may open, whatever it costs."""
    short = _limit(account, "calls") or (_limit(account, "steps") if ask.first else None)
    limit, spent = account.limits.seconds, account.spent_seconds
    if short is None and limit is not None and spent >= limit:
        return Short("seconds", f"ran for {spent:.6g} of {limit:g} seconds", left=0.0)
    return short


def _limit(account: Account, name: Literal["calls", "steps", "turns"]) -> Short | None:
    """Whether there is none left of what is counted one by one."""
    limit, spent = getattr(account.limits, name), getattr(account, name)
    if limit is None or spent < limit:
        return None
    return Short(name, f"{spent} of {limit} {name} used; asked 1 more", asked=1, left=0)


def _decimal(count: int | None) -> Decimal | None:
    return None if count is None else Decimal(count)
