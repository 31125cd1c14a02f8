"""The accounts of runs in the store: each change is written in the transaction of what it is for.

An account is one row, read and decoded when this process first meets it or another one may have
written. Items that refuse do so before anything is written.
"""

import shlex
from dataclasses import dataclass, field
from typing import ClassVar, cast

import msgspec
from msgspec import Raw, Struct

from outlast.amounts import NOTHING, cost, minus
from outlast.errors import OutlastError, StoreError, UnknownRun, UsageError
from outlast.events import ABSENT, RunBudgeted
from outlast.journal import Entry, check_seal, extend, to_run
from outlast.policy import budget
from outlast.policy.budget import Account, Ask, Budget, Limits, Short, Ticket
from outlast.records import FINAL, Usage
from outlast.store.base import Row, Tx
from outlast.store.writer import Store

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Account)


class Declared(Struct, frozen=True):
    """A budget, and whether it was given when the run was started (`override`) or stands in the
    code."""

    budget: Budget
    override: bool = False

    def event(self, before: Account | None = None, after: Account | None = None) -> RunBudgeted:
        """How the run's journal tells of it, and of what a new upper bound has charged."""
        charged = None
        if before is not None and after is not None and before.settled != after.settled:
            charged = Usage(
                minus(after.spent_usd, before.spent_usd), after.spent_tokens - before.spent_tokens
            )
        return RunBudgeted(
            declared=encode_limits(self.budget.limits),
            on_unknown=self.budget.bound,
            override=self.override,
            charged=charged,
        )


class OverBudget(OutlastError):
    """A limit of a run's budget stands in the way; nothing was written.

    Attributes:
        short: which one, and by how much.
    """

    def __init__(self, short: Short) -> None:
        super().__init__(short)
        self.short = short

    def __str__(self) -> str:
        return self.short.text


def load_account(tx: Tx, run_id: str) -> Account | None:
    """The account that a run owns; None if it owns none.

    Raises:
        StoreError: its row was altered so that it cannot be read.
    """
    known = tx.memo.get(_memo_key(run_id))
    if known is None:
        rows = tx.run("read_budget", run_id=run_id)
        if not rows:
            return None
        known = tx.memo[_memo_key(run_id)] = _decode(run_id, rows[0])
    return cast(Account, known)


def check_account(tx: Tx, run_id: str) -> None:
    """For a run that has no account: it must never have had one.

    Raises:
        StoreError: its journal tells of one, so somebody has removed it.
    """
    if tx.run("had_budget", run_id=run_id):
        raise StoreError(
            f"the budget of run {run_id} is gone from the store, so nobody can tell what it has "
            "spent. Nothing was run; bring back the store from a copy, then: outlast resume "
            f"{shlex.quote(run_id)}",
            "damaged",
        )


def read_account(store: Store, run_id: str) -> Account | None:
    """The account that a run owns, as last committed; None if it owns none.

    Raises:
        StoreError: the store is in trouble, or the row was altered so that it cannot be read.
    """
    rows = store.read("read_budget", run_id=run_id)
    return _decode(run_id, rows[0]) if rows else None


def create_account(tx: Tx, run_id: str, budget_: Budget, *, override: bool = False) -> Account:
    """Give a new run its account, in the transaction that makes the run.

    Args:
        override: see `policy.budget.open_account`.
    """
    account = budget.open_account(budget_, override=override)
    _insert(tx, run_id, account)
    return account


@dataclass(slots=True, eq=False)
class Change:
    """A change of the account of the run `account`, written along with events (`journal.Along`).

    Several of them in one transaction see what those before them did. They may all pass `check` and
    only together be too much: `apply` then raises, and with it the whole write is undone.

    Attributes:
        must_count: without the account nothing is written. What tells of something that has
            happened is written all the same, or an altered account would undo the outcome of a
            step; the next attempt that asks it for room says what is wrong with it.
        result: the account as `apply` left it. It counts once the transaction is committed.
    """

    must_count: ClassVar[bool] = True

    account: str
    result: Account | None = field(default=None, init=False)
    _planned: tuple[Account, Account] | None = field(default=None, init=False, repr=False)

    def change(self, account: Account) -> Account | Short:
        """What becomes of the account, or which limit stands in the way."""
        raise NotImplementedError

    def foresee(self, account: Account) -> Account:
        """What becomes of an account that the store most probably has, and that need not be found
        out again if it has.

        Raises:
            OverBudget: a limit stands in the way.
        """
        after = self.change(account)
        if isinstance(after, Short):
            raise OverBudget(after)
        self._planned = (account, after)
        return after

    def check(self, tx: Tx) -> None:
        """See `journal.Along.check`.

        Raises:
            OverBudget: a limit stands in the way.
            StoreError: the run has no account, or it cannot be read.
        """
        self._plan(tx)

    def apply(self, tx: Tx) -> None:
        """See `journal.Along.apply`; raises as `check` does."""
        planned = self._plan(tx)
        if planned is None:
            return
        before, after = planned
        if after is not before:
            _put(tx, self.account, after)
        self.result = after

    def _plan(self, tx: Tx) -> tuple[Account, Account] | None:
        try:
            before = load_account(tx, self.account)
            if before is None:
                raise StoreError(f"run {self.account} has no row in table budgets", "damaged")
        except StoreError:
            if self.must_count:
                raise
            return None
        planned = self._planned
        # An account is never changed in place, so the same object means that nothing has changed.
        if planned is None or planned[0] is not before:
            planned = (before, self.foresee(before))
        return planned


@dataclass(slots=True, eq=False)
class Reserve(Change):
    """Opens an attempt, see `policy.budget.reserve`. `ran`: which claim, by run and epoch, has
    worked for how many seconds by now, to be noted before the limit of seconds is asked."""

    ask: Ask
    ran: tuple[str, int, float] | None = None

    def change(self, account: Account) -> Account | Short:
        if self.ran is not None:
            account = budget.tick(account, *self.ran)
        return budget.reserve(account, self.ask)


@dataclass(slots=True, eq=False)
class CountRefusal(Change):
    """Counts a call that a breaker refused."""

    def change(self, account: Account) -> Account | Short:
        return budget.refuse_call(account)


@dataclass(slots=True, eq=False)
class CountTurn(Change):
    """Counts a turn of an agent loop."""

    def change(self, account: Account) -> Account | Short:
        return budget.count_turn(account)


@dataclass(slots=True, eq=False)
class Charge(Change):
    """Takes what a body reports while it runs, see `policy.budget.charge`."""

    must_count = False

    ticket: Ticket
    usage: Usage

    def change(self, account: Account) -> Account:
        return budget.charge(account, self.ticket, self.usage)


@dataclass(slots=True, eq=False)
class Spend(Change):
    """Takes what was spent beside any attempt that is open, see `policy.budget.spend`."""

    must_count = False

    usage: Usage
    step: str = ""
    so_far: Usage = NOTHING

    def change(self, account: Account) -> Account:
        return budget.spend(account, self.usage, self.step, self.so_far)


@dataclass(slots=True, eq=False)
class Settle(Change):
    """Closes an attempt, see `policy.budget.settle`."""

    must_count = False

    ticket: Ticket
    actual: Usage | None = None
    why: str = ""
    worked: bool = True

    def change(self, account: Account) -> Account:
        return budget.settle(account, self.ticket, self.actual, self.why, worked=self.worked)


@dataclass(slots=True, eq=False)
class SettleDied(Change):
    """Closes an attempt that cannot tell its cost any more, see `policy.budget.settle_died`."""

    must_count = False

    ticket: Ticket
    why: str = "the attempt ended without telling"

    def change(self, account: Account) -> Account:
        return budget.settle_died(account, self.ticket, self.why)


@dataclass(slots=True, eq=False)
class Tick(Change):
    """Notes for how many seconds the claim `epoch` has worked on run `run_id` in all."""

    must_count = False

    run_id: str
    epoch: int
    seconds: float

    def change(self, account: Account) -> Account:
        return budget.tick(account, self.run_id, self.epoch, self.seconds)


@dataclass(slots=True, eq=False)
class Redeclare(Change):
    """Takes over the budget that the code has now, see `policy.budget.redeclare`."""

    budget: Budget
    override: bool = False

    def change(self, account: Account) -> Account:
        return budget.redeclare(account, self.budget, override=self.override)


class TopUp(Struct, frozen=True):
    """An operator's command: raises limits of a run that has not ended. A run that is held stays
    held until it is resumed.

    Attributes:
        added: by how much.
        charged: what the costs came to that are unknown.
        at: seconds since the epoch.
        account: the run that owns the account, if that is another one; a child's is its root's.
    """

    run_id: str
    added: Limits
    at: float
    charged: Usage | None = None
    by: str = ""
    account: str = ""

    def apply(self, tx: Tx) -> Account:
        """Change the account and note it in the run's journal; returns the new account.

        Raises:
            UnknownRun: there is no such run.
            UsageError: the run is over, an amount is not above 0, there is no such limit (but money
                can be given to a run that has none), or nothing would change.
        """
        rows = tx.run("read_run", run_id=self.run_id)
        if not rows:
            raise UnknownRun(f"there is no run {self.run_id!r} in this store; see: outlast ls")
        row = to_run(rows[0])
        if row.root is not None:  # a child spends from the account of the run at the top
            row = to_run(tx.run("read_run", run_id=row.root)[0])
        if row.status in FINAL:
            raise UsageError(f"run {row.run_id} is {row.status}; it spends nothing any more")
        owner = self.account or row.run_id
        account = load_account(tx, owner)
        if account is None:
            check_account(tx, owner)
            account = create_account(tx, owner, Budget())
        check_seal(tx, row.run_id)
        charged = self._charged()
        after = self._change(account, charged)
        if after == account:
            raise UsageError(f"nothing is added to the budget of run {row.run_id}")
        added = encode_limits(self.added) if self.added != Limits() else ABSENT
        event = RunBudgeted(added=added, charged=charged, by=self.by)
        extend(tx, row.run_id, row.epoch, self.at, [Entry(event)])
        _put(tx, owner, after)
        return after

    def _charged(self) -> Usage | None:
        try:
            return None if self.charged is None else cost(self.charged)
        except ValueError as problem:
            raise UsageError(f"what the unknown costs came to: {problem}") from None

    def _change(self, account: Account, charged: Usage | None) -> Account:
        after = account if charged is None else budget.clear_unknown(account, charged)
        return budget.add(after, self.added)


def encode_limits(limits: Limits) -> Raw:
    """Limits as `events.RunBudgeted` has them."""
    return Raw(_ENCODER.encode(limits))


def _insert(tx: Tx, run_id: str, account: Account) -> None:
    tx.run("insert_budget", run_id=run_id, account=_ENCODER.encode(account).decode())
    tx.memo[_memo_key(run_id)] = account


def _put(tx: Tx, run_id: str, account: Account) -> None:
    tx.run("set_budget", run_id=run_id, account=_ENCODER.encode(account).decode())
    tx.memo[_memo_key(run_id)] = account


def _decode(run_id: str, row: Row) -> Account:
    try:
        return _DECODER.decode(cast(str, row[0]))
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise StoreError(
            f"the budget of run {run_id} cannot be read: it was altered ({problem})", "damaged"
        ) from problem


def _memo_key(run_id: str) -> str:
    return f"@budget {run_id}"  # no run id begins with "@"
