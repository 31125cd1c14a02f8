"""What goes wrong with budgets elsewhere, played through on the pure account."""

from decimal import Decimal

import pytest

from outlast.policy.budget import (
    Account,
    Ask,
    Budget,
    Short,
    Ticket,
    add,
    charge,
    open_account,
    parse_limits,
    redeclare,
    refuse_call,
    reserve,
    settle,
    settle_died,
)
from outlast.policy.budget.account import Part
from outlast.policy.cost import Unpriced, actual_of, cost_spec
from outlast.records import Usage

CENTS_30 = Usage(Decimal("0.30"), 0)
TOKENS_100 = Usage(Decimal(0), 100)


def attempt(
    account: Account, key: str, *, number: int = 1, cost: Usage | None = None
) -> Account | Short:
    free: tuple[Part, ...] = ("usd",) if cost is not None and cost.usd == 0 else ()
    asked = Ask(Ticket("run", key, number), "tool", number == 1, True, cost, free)
    return reserve(account, asked)


def attempts(account: Account, keys: range) -> tuple[Account, int]:
    """Open what may open, and tell how many that were."""
    before = len(account.open)
    for key in keys:
        after = attempt(account, f"tool#{key}", cost=CENTS_30)
        account = after if isinstance(after, Account) else account
    return account, len(account.open) - before


def test_of_ten_parallel_calls_those_open_that_can_be_paid_for() -> None:
    account, count = attempts(open_account(Budget(usd=1)), range(10))
    assert count == 3
    assert account.reserved.usd == Decimal("0.90")


def test_of_a_batch_of_eight_calls_the_first_six_open() -> None:
    account, count = attempts(open_account(Budget.unlimited(calls=6)), range(8))
    assert count == 6
    assert [Ticket.parse(id).key for id in account.open] == [f"tool#{n}" for n in range(6)]


def test_what_a_dead_process_had_set_aside_stays_so_until_it_is_settled() -> None:
    account, _ = attempts(open_account(Budget(usd=1)), range(3))
    assert attempts(account, range(3, 6))[1] == 0
    for key in range(3):
        account = settle_died(account, Ticket("run", f"tool#{key}", 1))
    assert account.spent_usd == Decimal("0.90")
    short = attempt(account, "tool#3", cost=CENTS_30)
    assert isinstance(short, Short)
    assert not short.transient


@pytest.mark.parametrize(
    ("budget", "cost"),
    [
        (Budget.unlimited(calls=10), Usage(Decimal(0), 0)),
        (Budget(usd=10), Usage(Decimal(1), 0)),
        (Budget.unlimited(tokens=10), Usage(Decimal(0), 1)),
    ],
    ids=["calls", "usd", "tokens"],
)
def test_counts_go_on_over_resumes_and_a_higher_limit_lets_the_rest_through(
    budget: Budget, cost: Usage
) -> None:
    (name,) = (n for n in ("calls", "usd", "tokens") if getattr(budget, n) == 10)

    def with_limit(limit: int) -> Budget:
        return Budget(usd=limit) if name == "usd" else Budget.unlimited(**{name: limit})

    def spend(account: Account, first: int, count: int) -> tuple[Account, int]:
        for number in range(first, first + count):
            after = attempt(account, f"tool#{number}", cost=cost)
            if isinstance(after, Short):
                assert after.limit == name
                return account, number
            account = settle(after, Ticket("run", f"tool#{number}", 1), cost)
        return account, first + count

    account, done = spend(open_account(budget), 0, 6)
    account, done = spend(redeclare(account, budget), done, 2)  # the process was killed in between
    account, done = spend(redeclare(account, budget), done, 5)
    assert done == 10
    for useless in (with_limit(8), with_limit(10), budget):
        assert spend(redeclare(account, useless), done, 1)[1] == 10
    assert spend(redeclare(account, with_limit(12)), done, 5)[1] == 12
    more = parse_limits(f"{name}=2")
    assert spend(add(account, more), done, 5)[1] == 12


@pytest.mark.parametrize(
    "told",
    [None, float("nan"), -1, "0.1", Usage(tokens=50), True, float("inf"), object()],
)
@pytest.mark.parametrize("bound", [None, Decimal("0.4")])
def test_a_price_that_is_not_told_is_not_nothing(told: object, bound: Decimal | None) -> None:
    budget = Budget(usd=1, on_unknown="hold" if bound is None else bound)
    account = attempt(open_account(budget), "tool#0", cost=CENTS_30)
    assert isinstance(account, Account)
    actual = actual_of(cost_spec(lambda result: told), "result")
    known, why = (actual.known, actual.why) if isinstance(actual, Unpriced) else (actual, "")
    account = settle(account, Ticket("run", "tool#0", 1), known, why)
    after = attempt(account, "tool#1", cost=CENTS_30)
    if bound is None:
        assert isinstance(after, Short)
        assert after.limit == "unknown"
    else:
        assert isinstance(after, Account)
        assert after.spent_usd == bound


def test_a_real_nothing_is_nothing() -> None:
    account = attempt(open_account(Budget(usd=1)), "tool#0", cost=Usage(Decimal(0), 0))
    assert isinstance(account, Account)
    actual = actual_of(cost_spec(0), "result")
    assert isinstance(actual, Usage)
    account = settle(account, Ticket("run", "tool#0", 1), actual)
    assert isinstance(attempt(account, "tool#1", cost=Usage(Decimal(1), 0)), Account)
    assert account.spent_usd == 0


def test_failed_attempts_that_were_billed_are_booked_once() -> None:
    account = open_account(Budget(usd=0, tokens=1000))
    for number in (1, 2, 3):
        ticket = Ticket("run", "tool#0", number)
        after = attempt(account, "tool#0", number=number, cost=TOKENS_100)
        assert isinstance(after, Account)
        account = charge(after, ticket, TOKENS_100)
        account = settle(account, ticket, TOKENS_100) if number == 3 else settle(account, ticket)
    assert (account.spent_tokens, account.calls, account.steps) == (300, 3, 1)
    # The process dies after it has reported the next charge, and a resume finds it open.
    ticket = Ticket("run", "tool#1", 1)
    after = attempt(account, "tool#1", cost=TOKENS_100)
    assert isinstance(after, Account)
    account = charge(after, ticket, TOKENS_100)
    account = settle_died(account, ticket)
    assert (account.spent_tokens, account.calls) == (400, 4)
    assert settle_died(account, ticket) is account


def test_a_loop_of_failing_calls_ends_though_a_breaker_refuses_them() -> None:
    account = open_account(Budget(usd="0.50", calls=20))
    ended = None
    for number in range(1000):
        after = (
            attempt(account, f"tool#{number}", cost=Usage(Decimal("0.01"), 0))
            if number < 5
            else refuse_call(account)
        )
        if isinstance(after, Short):
            ended = after
            break
        account = after
    assert ended is not None
    assert (ended.limit, account.calls) == ("calls", 20)
    assert isinstance(refuse_call(redeclare(account, Budget(usd="0.50", calls=20))), Short)
