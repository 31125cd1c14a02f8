"""The rules of an account, one by one. Money of attempts: reserve, charge, settle."""

from decimal import Decimal

import msgspec
import pytest

from outlast.errors import UsageError
from outlast.policy.budget import (
    Account,
    Ask,
    Budget,
    Limits,
    Short,
    Ticket,
    add,
    charge,
    clear_unknown,
    count_turn,
    describe,
    left,
    open_account,
    redeclare,
    refuse_call,
    reserve,
    settle,
    settle_died,
    spend,
    tick,
)
from outlast.policy.budget.account import Part
from outlast.records import Usage


def usd(amount: str, tokens: int | None = 0) -> Usage:
    return Usage(Decimal(amount), tokens)


def ticket(number: int = 0, attempt: int = 1) -> Ticket:
    return Ticket("run", f"main#{number}", attempt)


def ask(
    number: int = 0,
    estimate: Usage | None = None,
    *,
    attempt: int = 1,
    step: str = "think",
    priced: bool = True,
) -> Ask:
    return Ask(ticket(number, attempt), step, attempt == 1, priced, estimate, free(estimate))


def free(estimate: Usage | None) -> tuple[Part, ...]:
    """As if an estimate of nothing were what the step declares."""
    if estimate is None:
        return ()
    usd: tuple[Part, ...] = ("usd",) if estimate.usd == 0 else ()
    return (*usd, *(("tokens",) if estimate.tokens == 0 else ()))


def opened(account: Account, *asks: Ask) -> Account:
    for one in asks:
        after = reserve(account, one)
        assert isinstance(after, Account), after
        account = after
    return account


def refused(account: Account, one: Ask) -> Short:
    short = reserve(account, one)
    assert isinstance(short, Short), short
    return short


def test_a_short_says_what_was_asked_and_what_is_left() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.6")), ask(1, usd("0.3")))
    account = settle(account, ticket(0), usd("0.6"))
    short = refused(account, ask(2, usd("0.3")))
    assert short.text == (
        "step think: asked 0.30 USD; 0.10 of 1.00 USD left (0.60 settled, 0.30 reserved)"
    )
    assert (short.limit, short.asked, short.left) == ("usd", Decimal("0.3"), Decimal("0.1"))


def test_room_that_others_hold_is_worth_waiting_for_and_spent_room_is_not() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.9")))
    short = refused(account, ask(1, usd("0.3")))
    assert short.transient
    assert short.waits_for == (ticket(0),)
    assert not refused(account, ask(1, usd("1.1"))).transient
    spent = settle(account, ticket(0), usd("0.9"))
    assert not refused(spent, ask(1, usd("0.3"))).transient
    cheap = settle(account, ticket(0), usd("0.1"))
    opened(cheap, ask(1, usd("0.3")))


def test_the_limit_that_stands_in_the_way_for_good_is_the_one_that_is_told() -> None:
    account = opened(open_account(Budget(usd=1, tokens=100)), ask(0, usd("0.9", 10)))
    short = refused(account, ask(1, usd("0.5", 200)))
    assert (short.limit, short.transient) == ("tokens", False)
    assert (
        short.text == "step think: asked 200 tokens; 90 of 100 tokens left (0 settled, 10 reserved)"
    )


def test_all_of_a_limit_can_be_used() -> None:
    account = opened(open_account(Budget(usd=1, tokens=10)), ask(0, usd("1.00", 10)))
    assert left(account) == Limits(usd=Decimal(0), tokens=0)
    assert refused(account, ask(1, usd("1e-18"))).limit == "usd"
    assert refused(account, ask(1, usd("0", 1))).limit == "tokens"


def test_without_an_estimate_the_largest_cost_of_the_step_is_set_aside() -> None:
    account = open_account(Budget(usd=1, tokens=1000))
    for number, cost in enumerate([usd("0.1", 30), usd("0.3", 10), usd("0.2", 20)]):
        account = settle(opened(account, ask(number)), ticket(number), cost)
    account = opened(account, ask(9))
    assert account.reserved == usd("0.3", 30)
    # Another step knows nothing of that, and nobody knows of it.
    assert opened(account, ask(10, step="look")).reserved == usd("0.4", 940)


def test_the_first_attempt_of_unknown_cost_gets_all_that_is_left_and_so_goes_alone() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0))
    assert account.reserved.usd == 1
    short = refused(account, ask(1))
    assert short.transient
    assert short.asked is None
    assert "nobody knows yet how many USD it takes" in short.text
    account = settle(account, ticket(0), usd("0.2"))
    account = opened(account, ask(1), ask(2), ask(3), ask(4))
    assert refused(account, ask(5)).transient


def test_a_cost_known_in_part_is_set_aside_in_that_part() -> None:
    account = opened(open_account(Budget(usd=1, tokens=100)), ask(0, Usage(usd=Decimal("0.1"))))
    assert account.reserved == usd("0.1", 100)


def test_what_is_declared_free_passes_an_empty_purse_and_what_was_free_by_chance_does_not() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0))
    account = settle(account, ticket(0), usd("0"))
    account = settle(opened(account, ask(1, usd("1"), step="other")), ticket(1), usd("1"))
    opened(account, ask(2, usd("0")))
    assert refused(account, ask(2)).limit == "usd"


def test_a_cost_above_its_estimate_is_charged_in_full_and_stops_the_next() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.5")))
    account = settle(account, ticket(0), usd("3"))
    assert account.spent_usd == 3
    assert left(account).usd == 0
    assert refused(account, ask(1, usd("0.01"))).left == 0


def test_a_step_with_a_cost_needs_a_money_budget() -> None:
    account = open_account(Budget(tokens=1000))
    short = refused(account, ask(0, usd("0.1")))
    assert not short.transient
    assert "Budget(usd=2), or Budget.unlimited()" in short.text
    assert refused(account, ask(0)).limit == "usd"
    opened(account, ask(0, usd("0")))
    opened(account, ask(0, priced=False))


def test_unlimited_money_is_counted() -> None:
    account = opened(open_account(Budget.unlimited()), ask(0), ask(1), ask(2, usd("1000000")))
    account = settle(account, ticket(0), usd("5"))
    account = settle_died(account, ticket(1))
    assert account.spent_usd == 5
    assert account.unknown_usd == 1  # it had nothing to go by, and it is not nothing
    opened(account, ask(3))


def test_steps_are_counted_once_and_calls_each_time() -> None:
    account = open_account(Budget(steps=2, calls=4))
    account = opened(account, ask(0, priced=False), ask(0, priced=False, attempt=2))
    account = opened(account, ask(1, priced=False))
    assert (account.steps, account.calls) == (2, 3)
    assert refused(account, ask(2, priced=False)).text == "2 of 2 steps used; asked 1 more"
    account = opened(account, ask(1, priced=False, attempt=2))
    short = refused(account, ask(1, priced=False, attempt=3))
    assert (short.limit, short.asked, short.left, short.transient) == ("calls", 1, 0, False)


def test_a_refusal_counts_as_a_call_and_not_as_a_step() -> None:
    account = open_account(Budget(calls=1))
    account = refuse_call(account)  # type: ignore[assignment]
    assert (account.calls, account.steps) == (1, 0)
    assert isinstance(refuse_call(account), Short)
    assert refused(account, ask(priced=False)).limit == "calls"


def test_turns_are_counted() -> None:
    account = count_turn(open_account(Budget(turns=1)))
    assert isinstance(account, Account)
    short = count_turn(account)
    assert isinstance(short, Short)
    assert short.text == "1 of 1 turns used; asked 1 more"


def test_asking_again_for_an_open_ticket_changes_nothing() -> None:
    account = opened(open_account(Budget(usd=1, calls=1)), ask(0, usd("1")))
    assert reserve(account, ask(0, usd("1"))) is account


def test_a_ticket_is_settled_once() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.5")))
    settled = settle(account, ticket(0), usd("0.4"))
    assert settled.spent_usd == Decimal("0.4")
    assert settle(settled, ticket(0), usd("0.4")) is settled
    assert settle_died(settled, ticket(0)) is settled
    assert charge(settled, ticket(0), usd("0.4")) is settled


def test_what_a_body_reports_is_settled_at_once_and_is_part_of_the_whole() -> None:
    account = opened(open_account(Budget(usd=1, tokens=100)), ask(0, usd("0.5", 50)))
    account = charge(account, ticket(0), usd("0.2", 10))
    assert (account.settled, account.reserved) == (usd("0.2", 10), usd("0.3", 40))
    account = charge(account, ticket(0), Usage(usd=Decimal("0.4")))
    assert (account.settled, account.reserved) == (usd("0.6", 10), usd("0", 40))
    assert settle(account, ticket(0), usd("0.9", 20)).settled == usd("0.9", 20)
    assert settle(account, ticket(0), usd("0.1", 0)).settled == usd("0.6", 10)
    assert settle(account, ticket(0)).settled == usd("0.6", 10)


def test_an_attempt_that_died_is_charged_what_was_set_aside_and_at_least_what_it_reported() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.5")), ask(1, usd("0.1")))
    account = charge(account, ticket(0), usd("0.2"))
    account = charge(account, ticket(1), usd("0.3"))
    account = settle_died(account, ticket(0))
    assert account.spent_usd == Decimal("0.8")
    assert settle_died(account, ticket(1)).spent_usd == Decimal("0.8")


def test_an_attempt_that_died_with_the_largest_set_aside_is_charged_that() -> None:
    account = settle(opened(open_account(Budget(usd=1)), ask(0)), ticket(0), usd("0.2"))
    account = settle_died(opened(account, ask(1)), ticket(1))
    assert account.spent_usd == Decimal("0.4")
    assert account.unknown == ()


def test_an_attempt_that_died_before_anybody_knew_a_cost_is_unknown() -> None:
    account = opened(open_account(Budget(usd=1, on_unknown="hold")), ask(0))
    account = settle_died(account, ticket(0), "its process died")
    assert account.spent_usd == 0
    short = refused(account, ask(0, attempt=2))
    assert short.limit == "unknown"
    assert "its process died" in short.text
    bounded = opened(open_account(Budget(usd=1, on_unknown=0.25)), ask(0))
    bounded = settle_died(bounded, ticket(0))
    assert bounded.spent_usd == Decimal("0.25")
    opened(bounded, ask(0, attempt=2))


@pytest.mark.parametrize("with_estimate", [True, False])
def test_an_unknown_cost_holds_whatever_has_a_cost_and_nothing_else(with_estimate: bool) -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.5")))
    account = settle(account, ticket(0), Usage(tokens=7), "the model has no price")
    assert account.spent_usd == 0
    assert account.reserved.usd == 0
    short = refused(account, ask(1, usd("0.1") if with_estimate else None))
    assert (short.limit, short.transient) == ("unknown", False)
    assert "1 attempt (first main#0, attempt 1: the model has no price) is unknown" in short.text
    opened(account, ask(1, step="send", priced=False))


def test_an_unknown_part_matters_only_if_it_is_limited() -> None:
    no_tokens, no_price = Usage(usd=Decimal("0.1")), Usage(tokens=5)
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.5")))
    opened(settle(account, ticket(0), no_tokens), ask(1, usd("0.1")))
    account = opened(open_account(Budget(usd=1, tokens=100)), ask(0, usd("0.5", 1)))
    short = refused(settle(account, ticket(0), no_tokens, "not told"), ask(1, usd("0.1", 1)))
    assert "the use of tokens of 1 attempt" in short.text
    account = opened(open_account(Budget.unlimited(tokens=100)), ask(0, usd("0.5", 1)))
    opened(settle(account, ticket(0), no_price), ask(1, usd("0.1", 1)))


def test_a_bound_is_charged_for_what_is_unknown() -> None:
    account = opened(open_account(Budget(usd=1, on_unknown=0.1)), ask(0, usd("0.5")))
    account = settle(account, ticket(0), Usage(tokens=3), "no price")
    assert account.settled == usd("0.1", 3)
    assert account.unknown == ()
    opened(account, ask(1, usd("0.9")))


def test_a_bound_is_no_less_than_what_was_reported() -> None:
    account = opened(open_account(Budget(usd=1, on_unknown=0.1)), ask(0, usd("0.5")))
    account = charge(account, ticket(0), usd("0.3"))
    assert settle(account, ticket(0), Usage(tokens=0)).spent_usd == Decimal("0.3")


def test_a_bound_that_the_code_has_now_is_charged_for_what_was_unknown_before() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.1")), ask(1, usd("0.1")))
    account = settle(settle(account, ticket(0), Usage(tokens=0)), ticket(1), Usage(tokens=0))
    account = redeclare(account, Budget(usd=1, on_unknown=0.2))
    assert account.spent_usd == Decimal("0.4")
    opened(account, ask(2, usd("0.6")))


def test_an_operator_can_say_what_the_unknown_came_to() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, usd("0.5")))
    with pytest.raises(UsageError, match="no cost of the run is unknown"):
        clear_unknown(account, usd("0.1"))
    account = settle(account, ticket(0), Usage(tokens=0))
    with pytest.raises(UsageError, match="say what they came to"):
        clear_unknown(account, Usage(tokens=5))
    account = clear_unknown(account, Usage(usd=Decimal("0.3")))
    assert account.spent_usd == Decimal("0.3")
    opened(account, ask(1, usd("0.7")))


def test_a_step_that_reported_a_cost_without_declaring_one_is_bounded_from_then_on() -> None:
    account = opened(open_account(Budget(usd=1)), ask(0, priced=False))
    account = spend(account, usd("0.7"), "think", usd("0.7"))
    assert account.spent_usd == Decimal("0.7")
    assert refused(account, ask(1, priced=False)).asked == Decimal("0.7")
    assert open_account(Budget()).metered is False
    assert opened(open_account(Budget()), ask(1, priced=False)).metered is False


def test_what_operators_added_stays_on_top_of_what_the_code_declares() -> None:
    account = add(open_account(Budget(usd=1, calls=10)), Limits(usd=Decimal("0.5"), calls=2))
    account = add(account, Limits(usd=Decimal("0.25")))
    assert account.limits == Limits(usd=Decimal("1.75"), calls=12)
    assert redeclare(account, Budget(usd=3)).limits == Limits(usd=Decimal("3.75"))
    assert redeclare(account, Budget(usd=1, calls=10)) is account


def test_a_budget_given_at_the_start_is_not_changed_by_the_codes_own() -> None:
    account = open_account(Budget(usd=9), override=True)
    assert redeclare(account, Budget(usd=1)) is account
    assert redeclare(account, Budget(usd=12), override=True).limits.usd == 12
    assert redeclare(open_account(Budget(usd=1)), Budget(usd=9), override=True).override


def test_money_can_be_given_to_a_run_that_had_none() -> None:
    account = add(open_account(Budget()), Limits(usd=Decimal(5)))
    opened(account, ask(0, usd("5")))


@pytest.mark.parametrize(
    "added",
    [
        Limits(usd=Decimal(0)),
        Limits(usd=Decimal(-1)),
        Limits(usd=Decimal("Infinity")),
        Limits(calls=0),
        Limits(calls=-1),
        Limits(tokens=5),
        Limits(seconds=1.0),
    ],
)
def test_what_cannot_be_added_is_refused(added: Limits) -> None:
    with pytest.raises(UsageError, match="cannot be added"):
        add(open_account(Budget(usd=1, calls=1)), added)


def test_unlimited_money_cannot_be_raised() -> None:
    with pytest.raises(UsageError, match="no limit of usd"):
        add(open_account(Budget.unlimited()), Limits(usd=Decimal(1)))


def test_running_time_is_the_sum_over_claims_and_never_shrinks() -> None:
    account = tick(open_account(Budget(seconds=10)), "run", 1, 3.0)
    assert tick(account, "run", 1, 3.0) is account
    assert tick(account, "run", 1, 2.0) is account
    account = tick(account, "run", 2, 1.5)
    account = tick(account, "run", 2, 4.0)
    assert tick(account, "run", 1, 9.0) is account  # of a claim that is over
    account = tick(account, "child", 1, 2.0)
    assert account.spent_seconds == 9.0
    opened(account, ask(0, priced=False))
    account = tick(account, "child", 1, 3.0)
    short = refused(account, ask(0, priced=False))
    assert (short.limit, short.text) == ("seconds", "ran for 10 of 10 seconds")


def test_an_account_is_described_in_words() -> None:
    account = opened(
        open_account(Budget(usd=1, tokens=100, calls=5, steps=4, turns=3, seconds=60)),
        ask(0, usd("0.6", 30)),
        ask(1, usd("0.3", 10)),
    )
    account = tick(settle(account, ticket(0), Usage(tokens=30), "no price"), "run", 1, 1.5)
    assert describe(account) == [
        "0.70 of 1.00 USD left (0.00 settled, 0.30 reserved)",
        "60 of 100 tokens left (30 settled, 10 reserved)",
        "3 of 5 calls left",
        "2 of 4 steps left",
        "3 of 3 turns left",
        "58.5 of 60 seconds left",
        "main#0, attempt 1: cost unknown (no price)",
    ]
    assert describe(open_account(Budget())) == []
    assert describe(open_account(Budget.unlimited())) == [
        "any amount of USD (0.00 settled, 0.00 reserved)"
    ]


def test_an_account_reads_back_from_json_as_it_was() -> None:
    account = opened(open_account(Budget.unlimited(calls=9), override=True), ask(0), ask(1))
    account = charge(account, ticket(0), usd("0.000000000000000000000000000001", 1))
    account = settle(account, ticket(1), Usage(), "a lone \ud800 surrogate")
    account = tick(account, "run", 1, 0.5)
    assert msgspec.json.decode(msgspec.json.encode(account), type=Account) == account


def test_no_sum_of_money_is_rounded() -> None:
    account = open_account(Budget(usd=10**17))
    tiny = Usage(Decimal("1e-300"), 0)
    account = opened(account, ask(0, Usage(Decimal(10) ** 16, 0)), ask(1, tiny))
    account = settle(settle(account, ticket(0), Usage(Decimal(10) ** 16, 0)), ticket(1), tiny)
    assert account.spent_usd == Decimal(f"1{'0' * 16}.{'0' * 299}1")
    tenths = open_account(Budget(usd=1))
    for number in range(10):
        tenths = settle(opened(tenths, ask(number, usd("0.1"))), ticket(number), usd("0.1"))
    assert left(tenths).usd == 0
