"""The account of a run: what it may spend, what it has spent, what is set aside for attempts under
way. Frozen, and stored as JSON; every change makes a new one."""

from decimal import Decimal
from typing import Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from outlast.amounts import NOTHING, ZERO, in_words, minus, plus, total
from outlast.errors import UsageError
from outlast.policy.budget.limits import Budget, LimitName, Limits, sum_of, together
from outlast.records import Usage

NONE_ADDED = Limits()

Part = Literal["usd", "tokens"]

TOLD = 10
"""How many unknown costs are kept with their reasons; all of them are counted."""


class Ticket(NamedTuple):
    """One attempt of one step of one run: what a reservation is made for."""

    run_id: str
    key: str
    attempt: int

    @property
    def id(self) -> str:
        """It as one text; no run id has a line break in it."""
        return f"{self.run_id}\n{self.key}\n{self.attempt}"

    @classmethod
    def parse(cls, id: str) -> Self:
        """The ticket with this id."""
        run_id, _, rest = id.partition("\n")
        key, _, attempt = rest.rpartition("\n")
        return cls(run_id, key, int(attempt))


class Open(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is set aside for an attempt under way.

    Attributes:
        step: name of the step.
        reserved: what is still set aside; it shrinks as `charged` grows, which is what the body
            has reported so far and which is settled already.
        priced: the step has a cost.
        guessed: which parts have nothing to go by, no estimate and no earlier cost.
    """

    step: str
    reserved: Usage = NOTHING
    charged: Usage = NOTHING
    priced: bool = False
    guessed: tuple[Part, ...] = ()


class Unknown(msgspec.Struct, frozen=True):
    """A cost that could not be told: of which attempt, which parts of it, and why."""

    ticket: str
    parts: tuple[Part, ...]
    why: str


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a run has been worked on: under its latest claim, and under all before it."""

    epoch: int
    seconds: float = 0.0
    before: float = 0.0


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """See the module.

    Attributes:
        declared: the limits as the code, or whoever started the run (`override`), gave them;
            `added`: what operators added to them.
        bound: what is charged where a cost cannot be told; None: no more is spent then.
        settled: what was spent, as far as it is known.
        calls, steps, turns: how many there were.
        open: by the ids of their tickets.
        largest: by the names of steps, the most that one attempt has cost.
        unknown: the first costs that could not be told and for which nothing was charged;
            `unknown_usd`, `unknown_tokens`: how many there are.
        metered: a step with a cost was ever called.
        running: by run id.
    """

    declared: Limits
    override: bool = False
    bound: Usage | None = None
    added: Limits = NONE_ADDED
    settled: Usage = NOTHING
    calls: int = 0
    steps: int = 0
    turns: int = 0
    open: dict[str, Open] = {}
    largest: dict[str, Usage] = {}
    unknown: tuple[Unknown, ...] = ()
    unknown_usd: int = 0
    unknown_tokens: int = 0
    metered: bool = False
    running: dict[str, Running] = {}

    @property
    def limits(self) -> Limits:
        """What holds: as declared, and what operators added."""
        if self.added == NONE_ADDED:
            return self.declared
        return together(self.declared, self.added)

    @property
    def spent_usd(self) -> Decimal:
        """US dollars, settled."""
        return self.settled.usd or ZERO

    @property
    def spent_tokens(self) -> int:
        """Tokens, settled."""
        return self.settled.tokens or 0

    @property
    def reserved(self) -> Usage:
        """All that is set aside."""
        usd, tokens = ZERO, 0
        for one in self.open.values():  # `total` would make a Usage for each
            usd, tokens = plus(usd, one.reserved.usd or ZERO), tokens + (one.reserved.tokens or 0)
        return Usage(usd, tokens)

    @property
    def spent_seconds(self) -> float:
        """Running time, of all claims together."""
        return sum(one.before + one.seconds for one in self.running.values())


def open_account(budget: Budget, *, override: bool = False) -> Account:
    """The account of a new run.

    Args:
        override: the budget was given when the run was started, and the code's counts no more.
    """
    return Account(declared=budget.limits, override=override, bound=budget.bound)


def redeclare(account: Account, budget: Budget, *, override: bool = False) -> Account:
    """The account under the budget that the code has now; the same one if that changes nothing.

    What was spent stays, and what operators added comes on top. A budget that was given when the
    run was started is changed only by another one of that kind.
    """
    if account.override and not override:
        return account
    limits, bound = budget.limits, budget.bound
    if (account.declared, account.bound, account.override) == (limits, bound, override):
        return account
    account = replace(account, declared=limits, bound=bound, override=override)
    return account if bound is None else _charge_bound(account, bound)


def add(account: Account, added: Limits) -> Account:
    """The account after an operator raised its limits.

    Raises:
        UsageError: an amount is not above 0, or there is no such limit to raise.
    """
    for name in Limits.__struct_fields__:
        amount = getattr(added, name)
        if amount is None:
            continue
        if not 0 < amount < Decimal("Infinity"):
            raise UsageError(f"{name}={amount} cannot be added: a number above 0 is expected")
        limit = getattr(account.limits, name)
        if limit == Decimal("Infinity") or (limit is None and name != "usd"):
            raise UsageError(f"{name}={amount} cannot be added: the run has no limit of {name}")
    return replace(account, added=sum_of(account.added, added))


def clear_unknown(account: Account, charged: Usage) -> Account:
    """The account after an operator told what the unknown costs came to.

    Raises:
        UsageError: there are none, or a part of what is unknown is not told.
    """
    if not (account.unknown_usd or account.unknown_tokens):
        raise UsageError("no cost of the run is unknown, so there is none to charge")
    parts: tuple[tuple[Part, int], ...] = (
        ("usd", account.unknown_usd),
        ("tokens", account.unknown_tokens),
    )
    for name, count in parts:
        if count and getattr(charged, name) is None and is_limited(account, name):
            raise UsageError(f"{name} of {count} attempts are unknown; say what they came to")
    settled = total((account.settled, Usage(charged.usd or ZERO, charged.tokens or 0)))
    return replace(account, settled=settled, unknown=(), unknown_usd=0, unknown_tokens=0)


def _charge_bound(account: Account, bound: Usage) -> Account:
    """Charge the bound for each cost that was unknown before there was one."""
    usd, tokens = account.spent_usd, account.spent_tokens
    left_usd, left_tokens = account.unknown_usd, account.unknown_tokens
    if bound.usd is not None:
        for _ in range(left_usd):
            usd = plus(usd, bound.usd)
        left_usd = 0
    if bound.tokens is not None:
        tokens, left_tokens = tokens + left_tokens * bound.tokens, 0
    known = {p for p, left in (("usd", left_usd), ("tokens", left_tokens)) if not left}
    unknown = (
        replace(one, parts=tuple(part for part in one.parts if part not in known))
        for one in account.unknown
    )
    return replace(
        account,
        settled=Usage(usd, tokens),
        unknown=tuple(one for one in unknown if one.parts),
        unknown_usd=left_usd,
        unknown_tokens=left_tokens,
    )


def tick(account: Account, run_id: str, epoch: int, seconds: float) -> Account:
    """The account once a claim of a run has worked on it for `seconds` in all. Saying so twice, or
    saying less later, changes nothing."""
    known = account.running.get(run_id)
    if known is None:
        now = Running(epoch, seconds)
    elif epoch > known.epoch:
        now = Running(epoch, seconds, known.before + known.seconds)
    elif epoch == known.epoch and seconds > known.seconds:
        now = replace(known, seconds=seconds)
    else:
        return account
    return replace(account, running=account.running | {run_id: now})


def is_limited(account: Account, name: LimitName) -> bool:
    """Whether there is a limit of this kind. No money at all is one."""
    limit = getattr(account.limits, name)
    return name == "usd" if limit is None else bool(limit < Decimal("Infinity"))


def left(account: Account) -> Limits:
    """What may still be spent or set aside; None where there is no limit. Never below 0."""
    limits, reserved = account.limits, account.reserved
    usd = minus(limits.usd or ZERO, plus(account.spent_usd, reserved.usd or ZERO))
    tokens = account.spent_tokens + (reserved.tokens or 0)
    seconds = limits.seconds
    return Limits(
        usd=max(ZERO, usd),
        tokens=_rest(limits.tokens, tokens),
        calls=_rest(limits.calls, account.calls),
        steps=_rest(limits.steps, account.steps),
        turns=_rest(limits.turns, account.turns),
        seconds=None if seconds is None else max(0.0, seconds - account.spent_seconds),
    )


def describe(account: Account) -> list[str]:
    """The account in words, one line for each limit and for each unknown cost."""
    limits, rest, reserved = account.limits, left(account), account.reserved
    lines = []
    if is_limited(account, "usd"):
        assert rest.usd is not None
        usd = f"{in_words(rest.usd)} of {in_words(limits.usd or ZERO)} USD left"
    else:
        usd = "any amount of USD"
    if limits.usd is not None or account.metered:
        set_aside = in_words(reserved.usd or ZERO)
        lines.append(f"{usd} ({in_words(account.spent_usd)} settled, {set_aside} reserved)")
    if limits.tokens is not None:
        lines.append(
            f"{rest.tokens} of {limits.tokens} tokens left "
            f"({account.spent_tokens} settled, {reserved.tokens} reserved)"
        )
    counted: tuple[LimitName, ...] = ("calls", "steps", "turns")
    for name in counted:
        if (limit := getattr(limits, name)) is not None:
            lines.append(f"{getattr(rest, name)} of {limit} {name} left")
    if limits.seconds is not None:
        lines.append(f"{rest.seconds:g} of {limits.seconds:g} seconds left")
    for one in account.unknown:
        ticket = Ticket.parse(one.ticket)
        parts = " and ".join("cost" if part == "usd" else part for part in one.parts)
        lines.append(f"{ticket.key}, attempt {ticket.attempt}: {parts} unknown ({one.why})")
    return lines


def _rest(limit: int | None, spent: int) -> int | None:
    return None if limit is None else max(0, limit - spent)
