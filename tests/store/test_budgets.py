"""Accounts in the store: written with the events, seen by all processes, kept over a crash."""

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import apsw
import pytest

from outlast.budgets import (
    Change,
    Charge,
    CountRefusal,
    CountTurn,
    OverBudget,
    Redeclare,
    Reserve,
    Settle,
    SettleDied,
    Tick,
    TopUp,
    read_account,
)
from outlast.errors import StoreError, UnknownRun, UsageError
from outlast.events import RunBudgeted, RunHeld, decode
from outlast.journal import Becomes, Entry, OwnerWrite, first_altered, to_event
from outlast.policy.budget import Account, Ask, Budget, Limits, Short, Ticket
from outlast.records import StoredEvent, Usage
from outlast.store import Row, SqlValue, Store, Tx, open_store
from tests.store.budget_runs import CENTS_30, Alongside, MakeAccount, opening, start
from tests.store.helpers import output_of, python, query, url_of

RACE = "from tests.store.budget_runs import race; race()"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(url_of(path))
    yield store
    store.close()


def account_of(store: Store, run_id: str = "root") -> Account:
    account = read_account(store, run_id)
    assert account is not None
    return account


def journal(store: Store, run_id: str) -> list[StoredEvent]:
    return [to_event(row) for row in store.read("read_events", run_id=run_id)]


def kinds(store: Store, run_id: str) -> list[str]:
    return [event.kind for event in journal(store, run_id)]


def ask(key: str, *, run_id: str = "root", estimate: Usage | None = CENTS_30) -> Ask:
    return Ask(Ticket(run_id, key, 1), "tool", True, True, estimate)


def test_ten_tasks_in_two_processes_start_as_often_as_can_be_paid(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    children = [python(RACE, store.url, run_id, "root", 5) for run_id in ("one", "two")]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    opened = [int(output_of(child)) for child in children]
    assert sum(opened) == 3
    account = account_of(store)
    assert (account.reserved.usd, account.calls) == (Decimal("0.90"), 3)
    # Who was refused has written nothing at all.
    started = [kinds(store, run_id).count("step.started") for run_id in ("one", "two")]
    assert started == opened


def test_what_a_killed_process_had_set_aside_stays_so_until_it_is_settled(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    child = python(RACE, store.url, "one", "root", 3)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "3\n"
    child.kill()
    child.communicate()
    assert account_of(store).reserved.usd == Decimal("0.90")
    epoch = start(store, "two")
    with pytest.raises(OverBudget) as refused:
        store.write(opening("two", epoch, "tool#0", account="root"), durable=False)
    assert refused.value.short.transient
    assert kinds(store, "two") == ["run.created", "run.claimed"]
    for id in account_of(store).open:
        store.write(Alongside((SettleDied("root", Ticket.parse(id)),)), durable=False)
    account = account_of(store)
    assert (account.spent_usd, account.open) == (Decimal("0.90"), {})
    with pytest.raises(OverBudget, match=r"0\.10 of 1\.00 USD left \(0\.90 settled, 0\.00"):
        store.write(opening("two", epoch, "tool#0", account="root"), durable=False)


def test_reservations_of_one_write_that_are_too_much_together_are_undone_together(
    store: Store,
) -> None:
    store.write(MakeAccount("root", Budget(usd="0.50")), durable=True)
    epoch = start(store, "root")
    one = opening("root", epoch, "tool#0", account="root")
    both = OwnerWrite(
        run_id="root",
        epoch=epoch,
        at=1.0,
        entries=one.entries,
        mode="open",
        along=(*one.along, Reserve("root", ask("tool#1"))),
    )
    with pytest.raises(OverBudget):
        store.write(both, durable=False)
    assert kinds(store, "root") == ["run.created", "run.claimed"]
    assert account_of(store).open == {}
    store.write(one, durable=False)
    assert list(account_of(store).open) == [Ticket("root", "tool#0", 1).id]


def test_in_a_group_only_those_fail_that_are_too_much(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    epoch = start(store, "root")
    writes = [opening("root", epoch, f"tool#{n}", account="root") for n in range(5)]
    results = store._database.transact(writes)
    assert results is not None
    assert [isinstance(result, OverBudget) for result in results] == [False] * 3 + [True] * 2
    assert kinds(store, "root").count("step.started") == 3
    assert account_of(store).calls == 3


def test_an_account_is_read_once_as_long_as_nobody_else_writes(path: Path, store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=10)), durable=True)
    first, second, third, fourth = (Spied(Reserve("root", ask(f"tool#{n}"))) for n in range(4))
    with closing(open_store(url_of(path))) as other:
        other.write(first, durable=False)
        other.write(second, durable=False)
        assert (first.queries, second.queries) == (["read_budget", "set_budget"], ["set_budget"])
        # This store has not seen those yet; what it knows from before must not count.
        store.write(third, durable=False)
        assert third.queries == ["read_budget", "set_budget"]
        other.write(fourth, durable=False)
        assert fourth.queries == ["read_budget", "set_budget"]
    assert account_of(store).calls == 4


class Spied:
    """Applies a change and notes what that asks of the database."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.queries: list[str] = []

    def apply(self, tx: Tx) -> None:
        self.queries.clear()
        spy = SpyTx(tx, self.queries)
        self.change.check(spy)
        self.change.apply(spy)


class SpyTx:
    def __init__(self, tx: Tx, queries: list[str]) -> None:
        self._tx, self._queries, self.memo = tx, queries, tx.memo

    def run(self, query: str, /, **params: SqlValue) -> list[Row]:
        self._queries.append(query)
        return self._tx.run(query, **params)

    def append(self, event: Row) -> None:
        self._tx.append(event)


def test_a_change_that_changes_nothing_writes_nothing(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    settle = Settle("root", Ticket("root", "tool#0", 1), CENTS_30)
    for change in (settle, Redeclare("root", Budget(usd=1))):
        spied = Spied(change)
        store.write(spied, durable=False)
        assert spied.queries == []
    assert settle.result == account_of(store)


def test_the_life_of_an_attempt(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1, calls=9, turns=2, seconds=100)), durable=True)
    ticket = Ticket("root", "tool#0", 1)
    reserve = Reserve("root", ask("tool#0"), ran=("root", 1, 2.5))
    for changes in (
        (CountTurn("root"), reserve),
        (Charge("root", ticket, Usage(Decimal("0.1"), 5)),),
        (Settle("root", ticket, Usage(Decimal("0.2"), 7)),),
        (Tick("root", "root", 1, 4.0), CountRefusal("root")),
    ):
        store.write(Alongside(changes), durable=False)
    account = account_of(store)
    assert account.settled == Usage(Decimal("0.2"), 7)
    assert (account.calls, account.steps, account.turns) == (2, 1, 1)
    assert account.spent_seconds == 4.0
    assert reserve.result is not None
    assert reserve.result.spent_seconds == 2.5


def test_time_that_has_run_counts_before_the_attempt_that_tells_of_it(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1, seconds=5)), durable=True)
    item = Reserve("root", ask("tool#0"), ran=("root", 1, 5.0))
    with pytest.raises(OverBudget) as refused:
        store.write(Alongside((item,)), durable=False)
    assert refused.value.short == Short("seconds", "ran for 5 of 5 seconds", left=0.0)


def test_a_run_without_an_account_and_an_altered_one(store: Store) -> None:
    reserve = Alongside((Reserve("root", ask("tool#0")),))
    assert read_account(store, "root") is None
    with pytest.raises(StoreError, match="no row in table budgets"):
        store.write(reserve, durable=False)
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    connection = apsw.Connection(store.path)
    connection.execute("UPDATE budgets SET account = '{\"declared\": 5}'")
    connection.close()
    with pytest.raises(StoreError, match="was altered"):
        store.write(reserve, durable=False)
    with pytest.raises(StoreError, match="was altered"):
        read_account(store, "root")


def hold(store: Store, run_id: str, epoch: int) -> None:
    write = OwnerWrite(
        run_id=run_id,
        epoch=epoch,
        at=2.0,
        entries=(Entry(RunHeld("over-budget", "too dear")),),
        mode="record",
        becomes=Becomes("held", "over-budget"),
        release=True,
    )
    store.write(write, durable=True)


def test_a_top_up_is_journaled_and_leaves_the_run_as_it_is(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1, calls=5)), durable=True)
    epoch = start(store, "root")
    hold(store, "root", epoch)
    account = store.write(
        TopUp("root", Limits(usd=Decimal("0.5"), calls=1), 3.0, by="ann"), durable=True
    )
    assert account.limits == Limits(usd=Decimal("1.5"), calls=6)
    assert account_of(store) == account
    events = journal(store, "root")
    event = decode(events[-1].kind, events[-1].data)
    assert isinstance(event, RunBudgeted)
    assert bytes(event.added) == b'{"usd":"0.5","calls":1}'
    assert (event.by, event.charged) == ("ann", None)
    assert first_altered(events) is None
    ((status, reason),) = query(Path(store.path), "SELECT status, reason FROM runs")
    assert (status, reason) == ("held", "over-budget")


def test_a_top_up_while_the_run_is_being_executed_does_not_disturb_its_owner(
    path: Path, store: Store
) -> None:
    store.write(MakeAccount("root", Budget(usd="0.30")), durable=True)
    epoch = start(store, "root")
    store.write(opening("root", epoch, "tool#0", account="root"), durable=False)
    with closing(open_store(url_of(path))) as operator:
        operator.write(TopUp("root", Limits(usd=Decimal("0.30")), 3.0), durable=True)
    store.write(opening("root", epoch, "tool#1", account="root"), durable=False)
    assert kinds(store, "root")[-3:] == ["step.started", "run.budgeted", "step.started"]
    assert first_altered(journal(store, "root")) is None


def test_an_operator_says_what_an_unknown_cost_came_to(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    epoch = start(store, "root")
    ticket = Ticket("root", "tool#0", 1)
    store.write(opening("root", epoch, "tool#0", account="root"), durable=False)
    store.write(Alongside((Settle("root", ticket, Usage(), "a \ud800 in it"),)), durable=False)
    with pytest.raises(OverBudget, match="is unknown"):
        store.write(opening("root", epoch, "tool#1", account="root"), durable=False)
    told = Usage(usd=Decimal("0.2"))
    account = store.write(TopUp("root", Limits(), 3.0, charged=told), durable=True)
    assert (account.spent_usd, account.unknown) == (Decimal("0.2"), ())
    event = decode("run.budgeted", journal(store, "root")[-1].data)
    assert event == RunBudgeted(charged=told)
    store.write(opening("root", epoch, "tool#1", account="root"), durable=False)


def test_a_child_tops_up_the_account_of_its_family(store: Store) -> None:
    store.write(MakeAccount("root", Budget(usd=1)), durable=True)
    start(store, "child")
    store.write(TopUp("child", Limits(usd=Decimal(1)), 3.0, account="root"), durable=True)
    assert account_of(store).limits.usd == 2
    assert kinds(store, "child")[-1] == "run.budgeted"


@pytest.mark.parametrize(
    ("top_up", "said"),
    [
        (TopUp("root", Limits(usd=Decimal(0)), 3.0), "usd=0 cannot be added"),
        (TopUp("root", Limits(usd=Decimal(-1)), 3.0), "usd=-1 cannot be added"),
        (TopUp("root", Limits(turns=1), 3.0), "no limit of turns"),
        (TopUp("root", Limits(), 3.0), "nothing is added"),
        (TopUp("root", Limits(), 3.0, charged=Usage(Decimal(1))), "no cost of the run is unknown"),
        (TopUp("root", Limits(), 3.0, charged=Usage(Decimal(-1))), "is negative"),
        (TopUp("poor", Limits(usd=Decimal(1), calls=1), 3.0), "no limit of calls"),
        (TopUp("ended", Limits(usd=Decimal(1)), 3.0), "run ended is completed"),
    ],
)
def test_a_top_up_that_makes_no_sense_is_refused_and_writes_nothing(
    store: Store, top_up: TopUp, said: str
) -> None:
    for run_id in ("root", "ended"):
        store.write(MakeAccount(run_id, Budget(usd=1)), durable=True)
    epochs = {run_id: start(store, run_id) for run_id in ("root", "poor", "ended")}
    end = OwnerWrite("ended", epochs["ended"], 2.0, (), "record", Becomes("completed"))
    store.write(end, durable=True)
    before = query(Path(store.path), "SELECT * FROM budgets"), journal(store, top_up.run_id)
    with pytest.raises(UsageError, match=said):
        store.write(top_up, durable=True)
    after = query(Path(store.path), "SELECT * FROM budgets"), journal(store, top_up.run_id)
    assert after == before


def test_money_can_be_given_to_a_run_that_has_no_budget(store: Store) -> None:
    start(store, "poor")
    store.write(TopUp("poor", Limits(usd=Decimal(1)), 3.0), durable=True)
    assert account_of(store, "poor").limits == Limits(usd=Decimal(1))


def test_a_top_up_of_no_run_is_refused(store: Store) -> None:
    with pytest.raises(UnknownRun):
        store.write(TopUp("nobody", Limits(usd=Decimal(1)), 3.0), durable=True)
