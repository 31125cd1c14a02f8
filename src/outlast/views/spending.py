"""What a run may spend and has spent."""

from dataclasses import replace
from decimal import Decimal

from msgspec.structs import asdict

from outlast.budgets import read_account
from outlast.errors import StoreError
from outlast.policy.budget import Account, Ticket, describe, left
from outlast.records import RunView, Spending
from outlast.store.writer import Store


def with_budget(store: Store, view: RunView, owner: str) -> RunView:
    """A run with what its budget says, if it has one; that of a child is its root's.

    Args:
        owner: the run whose account it is.

    Raises:
        StoreError: its account was altered so that it cannot be read.
    """
    account = read_account(store, owner)
    if account is None:
        return view
    try:
        return replace(view, budget=describe(account), spending=_numbers(account))
    except (ValueError, ArithmeticError) as problem:
        raise StoreError(
            f"the budget of run {owner} makes no sense: it was altered ({problem!r})",
            "damaged",
        ) from problem


def _numbers(account: Account) -> Spending:
    limits: dict[str, Decimal | int | float | None] = asdict(account.limits)
    given = {name: limit for name, limit in limits.items() if limit is not None}
    rest = asdict(left(account))
    tickets = [(Ticket.parse(one.ticket), one.why) for one in account.unknown]
    return Spending(
        limits=given,
        left={name: rest[name] for name in given},
        settled=account.settled,
        reserved=account.reserved,
        calls=account.calls,
        steps=account.steps,
        turns=account.turns,
        seconds=account.spent_seconds,
        unknown=[f"{ticket.key}, attempt {ticket.attempt}: {why}" for ticket, why in tickets],
        unknown_usd=account.unknown_usd,
        unknown_tokens=account.unknown_tokens,
    )
