"""What a run may spend, and what becomes of that with each attempt."""

from outlast.policy.budget.account import (
    Account,
    Open,
    Ticket,
    Unknown,
    add,
    clear_unknown,
    describe,
    left,
    open_account,
    redeclare,
    tick,
)
from outlast.policy.budget.limits import Budget, LimitName, Limits, parse_limits
from outlast.policy.budget.spending import (
    Ask,
    Short,
    charge,
    count_turn,
    refuse_call,
    reserve,
    settle,
    settle_died,
)

__all__ = [
    "Account",
    "Ask",
    "Budget",
    "LimitName",
    "Limits",
    "Open",
    "Short",
    "Ticket",
    "Unknown",
    "add",
    "charge",
    "clear_unknown",
    "count_turn",
    "describe",
    "left",
    "open_account",
    "parse_limits",
    "redeclare",
    "refuse_call",
    "reserve",
    "settle",
    "settle_died",
    "tick",
]
