"""A budget against a bookkeeper who writes every bill on a list and adds it up each time."""

from decimal import Decimal
from fractions import Fraction

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

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
    left,
    open_account,
    redeclare,
    refuse_call,
    reserve,
    settle,
    settle_died,
)
from outlast.policy.budget.account import Part
from outlast.records import Usage

MONEY = st.one_of(
    st.integers(0, 40).map(lambda cents: Decimal(cents) / 100),
    st.sampled_from([Decimal("1e-30"), Decimal("0.333333333333333333333333333333333333")]),
)
MAYBE_MONEY = st.none() | MONEY
STEPS = st.sampled_from(["think", "look"])
LIMIT = st.integers(0, 200).map(lambda cents: Decimal(cents) / 100)


FREE: tuple[Part, ...] = ("usd", "tokens")
"""Of a step that declares that it costs nothing."""


class Bill:
    """One attempt under way, as the bookkeeper knows it."""

    def __init__(self, step: str, held: Fraction, guessed: bool) -> None:
        self.step, self.held, self.guessed = step, held, guessed
        self.told = Fraction(0)

    @property
    def still_held(self) -> Fraction:
        return max(Fraction(0), self.held - self.told)


class Budgets(RuleBasedStateMachine):
    """Money only; tokens are kept by the same rules, and unlimited here."""

    def __init__(self) -> None:
        super().__init__()
        self.account = open_account(Budget(usd=1, calls=40))
        self.declared, self.added, self.bound = Fraction(1), Fraction(0), None
        self.paid: list[Fraction] = []
        self.under_way: dict[Ticket, Bill] = {}
        self.most: dict[str, Fraction] = {}
        self.unknown = self.calls = self.steps = 0
        self.keys = 0
        self.closed: list[Ticket] = []

    bound: Fraction | None

    @property
    def limit(self) -> Fraction:
        return self.declared + self.added

    @property
    def spent(self) -> Fraction:
        return sum(self.paid, Fraction(0))

    @property
    def held(self) -> Fraction:
        return sum((bill.still_held for bill in self.under_way.values()), Fraction(0))

    @rule(step=STEPS, estimate=MAYBE_MONEY, again=st.booleans())
    def open(self, step: str, estimate: Decimal | None, again: bool) -> None:
        if not again or not self.keys:
            self.keys += 1
        ticket = Ticket("run", f"{step}#{self.keys}", self.calls + 1)
        first = not again
        cost = None if estimate is None else Usage(estimate, 0)
        after = reserve(
            self.account, Ask(ticket, step, first, True, cost, FREE if estimate == 0 else ())
        )
        room, room_later = self.limit - self.spent - self.held, self.limit - self.spent
        if estimate is not None:
            wanted, guessed = Fraction(estimate), False
            fits, later = (wanted == 0 or wanted <= r for r in (room, room_later))
        elif step in self.most:
            wanted, guessed = self.most[step], False
            fits, later = (r > 0 and wanted <= r for r in (room, room_later))
        else:
            wanted, guessed = max(room, Fraction(0)), True
            fits, later = room > 0, room_later > 0
        if self.calls >= 40:
            self._refused(after, "calls", transient=False)
        elif self.unknown:
            self._refused(after, "unknown", transient=False)
        elif not fits:
            self._refused(after, "usd", transient=later)
        else:
            assert isinstance(after, Account)
            self.account = after
            self.calls, self.steps = self.calls + 1, self.steps + first
            self.under_way[ticket] = Bill(step, wanted, guessed)
            if wanted:
                assert self.spent + self.held <= self.limit

    def _refused(self, after: Account | Short, limit: str, *, transient: bool) -> None:
        assert isinstance(after, Short)
        assert (after.limit, after.transient) == (limit, transient)

    @rule()
    def be_refused_by_a_breaker(self) -> None:
        after = refuse_call(self.account)
        if self.calls >= 40:
            self._refused(after, "calls", transient=False)
            return
        assert isinstance(after, Account)
        self.account, self.calls = after, self.calls + 1

    @rule(data=st.data(), amount=MONEY)
    def report(self, data: st.DataObject, amount: Decimal) -> None:
        if not self.under_way:
            return
        ticket = data.draw(st.sampled_from(sorted(self.under_way)))
        self.account = charge(self.account, ticket, Usage(amount, 0))
        self.under_way[ticket].told += Fraction(amount)
        self.paid.append(Fraction(amount))

    @rule(data=st.data(), amount=MAYBE_MONEY)
    def end(self, data: st.DataObject, amount: Decimal | None) -> None:
        if not self.under_way:
            return
        ticket = data.draw(st.sampled_from(sorted(self.under_way)))
        self.account = settle(self.account, ticket, Usage(amount, 0), "not told")
        bill = self.under_way[ticket]
        if amount is None and self.bound is None:
            self._close(ticket, None)
        else:
            self._close(ticket, self.bound if amount is None else Fraction(amount))
        assert bill.told <= self.spent

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        if not self.under_way:
            return
        ticket = data.draw(st.sampled_from(sorted(self.under_way)))
        self.account = settle_died(self.account, ticket)
        bill = self.under_way[ticket]
        self._close(ticket, self.bound if bill.guessed else max(bill.held, bill.told))

    def _close(self, ticket: Ticket, cost: Fraction | None) -> None:
        bill = self.under_way.pop(ticket)
        self.closed.append(ticket)
        if cost is None:
            self.unknown += 1
            return
        whole = max(cost, bill.told)
        self.paid.append(whole - bill.told)
        self.most[bill.step] = max(whole, self.most.get(bill.step, Fraction(0)))

    @rule(data=st.data(), amount=MAYBE_MONEY)
    def end_again(self, data: st.DataObject, amount: Decimal | None) -> None:
        if self.closed:
            ticket = data.draw(st.sampled_from(self.closed))
            assert settle(self.account, ticket, Usage(amount, 0)) is self.account
            assert settle_died(self.account, ticket) is self.account

    @rule(amount=st.integers(1, 50).map(lambda cents: Decimal(cents) / 100))
    def top_up(self, amount: Decimal) -> None:
        self.account = add(self.account, Limits(usd=amount))
        self.added += Fraction(amount)

    @rule(limit=LIMIT, bound=MAYBE_MONEY)
    def change_the_code(self, limit: Decimal, bound: Decimal | None) -> None:
        on_unknown = "hold" if bound is None else Usage(bound, 0)
        budget = Budget(usd=limit, calls=40, on_unknown=on_unknown)  # type: ignore[arg-type]
        self.account = redeclare(self.account, budget)
        self.declared = Fraction(limit)
        self.bound = None if bound is None else Fraction(bound)
        if self.bound is not None:
            self.paid += [self.bound] * self.unknown
            self.unknown = 0

    @rule(amount=MONEY)
    def tell_the_unknown(self, amount: Decimal) -> None:
        if self.unknown:
            self.account = clear_unknown(self.account, Usage(amount, 0))
            self.paid.append(Fraction(amount))
            self.unknown = 0

    @rule()
    def restart(self) -> None:
        self.account = msgspec.json.decode(msgspec.json.encode(self.account), type=Account)

    @invariant()
    def the_books_agree(self) -> None:
        account = self.account
        assert Fraction(account.spent_usd) == self.spent
        assert Fraction(account.reserved.usd or 0) == self.held
        rest = left(account).usd
        assert rest is not None
        assert Fraction(rest) == max(Fraction(0), self.limit - self.spent - self.held)
        assert (account.calls, account.steps) == (self.calls, self.steps)
        assert account.unknown_usd == self.unknown
        assert {Ticket.parse(id) for id in account.open} == set(self.under_way)


Budgets.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
test_a_budget_agrees_with_the_books = Budgets.TestCase
