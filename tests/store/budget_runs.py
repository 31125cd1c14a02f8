"""Runs that spend from one account, for the tests of budgets and for their child processes."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

from outlast.budgets import OverBudget, Reserve, create_account
from outlast.events import StepStarted
from outlast.journal import Along, Entry, OwnerWrite
from outlast.leases import Claim, Claimed, Create, NewRun, lease_from
from outlast.policy.budget import Account, Ask, Budget, Ticket
from outlast.records import Usage
from outlast.store import Store, Tx, open_store

CENTS_30 = Usage(Decimal("0.30"), 0)


@dataclass(frozen=True)
class MakeAccount:
    """Gives a run an account."""

    run_id: str
    budget: Budget

    def apply(self, tx: Tx) -> Account:
        return create_account(tx, self.run_id, self.budget)


@dataclass(frozen=True)
class Alongside:
    """Writes nothing but what would go along with events."""

    items: tuple[Along, ...]

    def apply(self, tx: Tx) -> None:
        for item in self.items:
            item.check(tx)
        for item in self.items:
            item.apply(tx)


def start(store: Store, run_id: str) -> int:
    """Create a run and claim it; returns its epoch."""
    world = store.world
    create = Create(NewRun(run_id, "flow", b"{}", "digest"), run_id, "trace", world.wall(), "0")
    claim = Claim(
        run_id=run_id,
        workflow="flow",
        world=world,
        owner=world.identity(),
        lease=lease_from(world, 30.0),
        at=world.wall(),
        create=create,
    )
    claimed = store.write(claim, durable=True)
    assert isinstance(claimed, Claimed)
    return claimed.row.epoch


def opening(
    run_id: str, epoch: int, key: str, *, account: str, estimate: Usage | None = CENTS_30
) -> OwnerWrite:
    """Opens an attempt of a step, as an engine does."""
    ask = Ask(Ticket(run_id, key, 1), "tool", True, True, estimate)
    return OwnerWrite(
        run_id=run_id,
        epoch=epoch,
        at=1.0,
        entries=(Entry(StepStarted(attempt=1), key),),
        mode="open",
        along=(Reserve(account, ask),),
    )


def race() -> None:
    """Child: `url run_id account tasks`. Once told to, opens so many attempts, each in a thread of
    its own, prints how many did open, and stays as it is until it is killed or told to end."""
    url, run_id, account, tasks = sys.argv[1:]
    store = open_store(url)
    epoch = start(store, run_id)
    print("ready", flush=True)
    sys.stdin.readline()

    def task(number: int) -> bool:
        write = opening(run_id, epoch, f"tool#{number}", account=account)
        try:
            store.write(write, durable=False)
        except OverBudget:
            return False
        return True

    with ThreadPoolExecutor(int(tasks)) as threads:
        opened = sum(threads.map(task, range(int(tasks))))
    print(opened, flush=True)
    sys.stdin.readline()
