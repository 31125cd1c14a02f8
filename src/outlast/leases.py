"""Who holds a run: creating it, claiming it, keeping it.

A claim is one transaction. It raises the run's epoch, and from then on every write of an earlier
owner is refused (journal.OwnerWrite), however late that owner wakes up.
"""

import dataclasses
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Protocol, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from outlast.budgets import Declared, Redeclare, check_account, create_account, load_account
from outlast.emergency import check_allowed
from outlast.errors import RunMismatch, UnknownRun
from outlast.events import Forked, Parent, RunClaimed, RunCreated, RunResumed
from outlast.journal import (
    Becomes,
    Entry,
    Lease,
    extend,
    put_lease,
    put_owner,
    put_status,
    tail_of,
    to_run,
)
from outlast.policy.budget import Account, Budget
from outlast.records import FINAL, Identity, RunRow, Source
from outlast.store.base import Tx
from outlast.world import World

RETRYABLE_HOLDS = frozenset({"in-doubt", "over-budget", "diverged", "unreadable"})
"""Holds whose cause is looked at again by a plain new start: nothing runs on a guess meanwhile."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run is made from. `args` is the codec's form of the bound arguments; without a
    `budget` the run has no account."""

    run_id: str
    workflow: str
    args: bytes
    digest: str
    source: Source | None = None
    tags: dict[str, str] = field(default_factory=dict)
    preview: str = ""
    budget: Declared | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run is ours.

    Attributes:
        crash: its owner before us died or stalled while it worked on it.
        loop: the turn loop that it stands in; `loop_since`: see `journal.extend`.
        account: what it may spend and has spent; None without a budget.
        alive_until: when its owner before us was certainly alive last, by its last heartbeat, in
            seconds since the epoch.
    """

    row: RunRow
    args: bytes
    created: bool
    crash: bool
    loop: str | None
    loop_since: int
    account: Account | None = None
    alive_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """The run is not to be had: it has ended, is held, or (`owned`) another process has it."""

    row: RunRow
    owned: bool


def lease_from(world: World, seconds: float) -> Lease:
    """A lease that ends so many seconds from now."""
    return Lease(wall=world.wall() + seconds, boot=world.boot() + seconds)


class Held(Protocol):
    """What decides whether a run's owner has it still, such as a `RunRow`."""

    @property
    def owner(self) -> Identity | None: ...
    @property
    def lease_wall(self) -> float | None: ...
    @property
    def lease_boot(self) -> float | None: ...


def is_abandoned(row: Held, world: World, own_claims: Set[str] = frozenset()) -> bool:
    """Whether the run's owner is gone or its lease is over, so that it may be taken.

    Args:
        own_claims: nonces of the claims that this very process still works on.
    """
    owner = row.owner
    if owner is None:
        return True
    here = world.identity()
    if _same_process(owner, here):
        return owner.nonce not in own_claims
    if world.liveness(owner) == "dead":
        return True
    if owner.boot == here.boot:  # the same kernel, so the same boot clock
        return world.boot() >= (row.lease_boot or 0.0)
    return world.wall() >= (row.lease_wall or 0.0)


def _same_process(one: Identity, other: Identity) -> bool:
    return replace(one, nonce="") == replace(other, nonce="")


def _has_crashed(row: RunRow, here: Identity) -> bool:
    """Whether an abandoned run's owner died or stalled while it worked on it.

    Who died while the run only waited, or after it had written how the run ended there, did not die
    of it; and where the owner was this very process, it lives and its store had failed.
    """
    return row.owner is not None and row.status == "running" and not _same_process(row.owner, here)


@dataclass(frozen=True, slots=True)
class Create:
    """Creates the run unless it exists; returns its row."""

    new: NewRun
    uid: str
    trace_id: str
    at: float
    library: str
    forked: Forked | None = None
    parent: Parent | None = None

    def apply(self, tx: Tx) -> tuple[RunRow, bool]:
        """Returns the row and whether it was created now.

        Raises:
            RunMismatch: the id belongs to another workflow or to other arguments.
        """
        new = self.new
        rows = tx.run("read_run", run_id=new.run_id)
        if rows:
            row = to_run(rows[0])
            _check_same(row, new)
            return row, False
        tx.run(
            "insert_run",
            run_id=new.run_id,
            uid=self.uid,
            workflow=new.workflow,
            source=None if new.source is None else msgspec.json.encode(new.source).decode(),
            args=new.args,
            digest=new.digest,
            tags=msgspec.json.encode(new.tags).decode(),
            trace_id=self.trace_id,
            at=self.at,
        )
        event = RunCreated(
            uid=self.uid,
            workflow=new.workflow,
            args=Raw(new.args),
            digest=new.digest,
            trace_id=self.trace_id,
            source=new.source,
            tags=new.tags,
            library=self.library,
            forked=self.forked,
            parent=self.parent,
        )
        if self.parent is not None:
            above = self.parent
            tx.run(
                "insert_child",
                run_id=new.run_id,
                parent=above.run_id,
                key=above.key,
                root=above.root,
            )
        entries = [Entry(event)]
        if new.budget is not None:
            create_account(tx, new.run_id, new.budget.budget, override=new.budget.override)
            entries.append(Entry(new.budget.event()))
        extend(tx, new.run_id, 0, self.at, entries)
        return self._row(tx), True

    def _row(self, tx: Tx) -> RunRow:
        """The row as it stands in the store now."""
        new, tail = self.new, tail_of(tx, self.new.run_id)
        assert tail is not None
        return RunRow(
            run_id=new.run_id,
            uid=self.uid,
            workflow=new.workflow,
            source=new.source,
            digest=new.digest,
            status="queued",
            reason=None,
            detail=None,
            tags=dict(new.tags),
            trace_id=self.trace_id,
            created_at=self.at,
            updated_at=self.at,
            due_at=None,
            seq=tail.seq,
            head=tail.head,
            epoch=0,
            owner=None,
            lease_wall=None,
            lease_boot=None,
            parent=None if self.parent is None else self.parent.run_id,
            root=None if self.parent is None else self.parent.root,
        )


def _check_workflow(row: RunRow, workflow: str) -> None:
    if row.workflow != workflow:
        raise RunMismatch(
            f"run {row.run_id} belongs to workflow {row.workflow!r}, not to {workflow!r}; "
            f"choose another run id, or start {row.workflow!r}"
        )


def _check_same(row: RunRow, new: NewRun) -> None:
    _check_workflow(row, new.workflow)
    if row.digest != new.digest:
        raise RunMismatch(
            f"run {row.run_id} of {row.workflow!r} was started with other arguments "
            f"(fingerprint {row.digest[:12]}); these are: {new.preview or new.digest[:12]}. "
            f"See the first ones with: outlast journal {row.run_id}; choose another run id"
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Takes a run: creates it first if `create` is given.

    Attributes:
        workflow: name of the workflow that is about to be executed.
        resume: an operator asked for it, so any hold is lifted and crash counts start again.
        source: where the workflow was found now, which the run remembers; None if it has no place
            of its own.
        budget: what the code at hand, or whoever starts the run, says that it may spend.
    """

    run_id: str
    workflow: str
    world: World
    owner: Identity
    lease: Lease
    at: float
    own_claims: Set[str] = frozenset()
    create: Create | None = None
    resume: bool = False
    source: Source | None = None
    budget: Declared | None = None

    def apply(self, tx: Tx) -> Claimed | Refused:
        """Claim, create or refuse.

        Raises:
            UnknownRun: there is no such run and nothing to create it from.
            StoreStopped: the emergency stop is in force.
            RunMismatch: the run belongs to another workflow, or see `Create`.
        """
        created = False
        if self.create is not None:
            row, created = self.create.apply(tx)
        else:
            rows = tx.run("read_run", run_id=self.run_id)
            if not rows:
                raise UnknownRun(f"there is no run {self.run_id!r} in this store; see: outlast ls")
            row = to_run(rows[0])
            _check_workflow(row, self.workflow)
        if row.status in FINAL:
            return Refused(row, owned=False)
        if row.status == "held" and not (self.resume or row.reason in RETRYABLE_HOLDS):
            return Refused(row, owned=False)
        if not is_abandoned(row, self.world, self.own_claims):
            return Refused(row, owned=True)
        check_allowed(tx)
        crash = _has_crashed(row, self.owner)
        moved = None if self.source == row.source else self.source
        entries = [Entry(RunClaimed(self.owner, row.owner, crash, moved))]
        if self.resume and row.status == "held":
            entries.insert(0, Entry(RunResumed()))
        if self.resume:
            lift_holds_below(tx, row.run_id, self.at, self.world)
        account, news = self._account(tx, row, created)
        entries += news
        epoch = row.epoch + 1
        extend(tx, row.run_id, epoch, self.at, entries)
        put_status(tx, row.run_id, Becomes("running"))
        put_owner(tx, row.run_id, epoch, self.owner, self.lease)
        if moved is not None:
            tx.run("set_source", run_id=row.run_id, source=msgspec.json.encode(moved).decode())
        if self.create is not None and created:
            args = self.create.new.args
            return Claimed(self._ours(row, tx), args, created, crash, None, 0, account)
        ((args, loop, since),) = cast(
            list[tuple[bytes, str | None, int]], tx.run("read_claimed", run_id=row.run_id)
        )
        alive = (row.lease_wall or 0.0) - (self.lease.wall - self.at)
        return Claimed(self._ours(row, tx), args, created, crash, loop, since, account, alive)

    def _account(self, tx: Tx, row: RunRow, created: bool) -> tuple[Account | None, list[Entry]]:
        """The run's account under the budget that counts now, and the event of a change. A child
        has none of its own."""
        if row.root is not None:
            root = load_account(tx, row.root)
            if root is None:
                check_account(tx, row.root)
            return root, []
        if created and self.budget is None:
            return None, []
        known = load_account(tx, self.run_id)
        said = self.budget
        if known is None and not created:
            check_account(tx, self.run_id)
        if known is None and said is None:
            return None, []
        if known is None and said is not None:
            account = create_account(tx, self.run_id, said.budget, override=said.override)
            return account, [Entry(said.event())]
        assert known is not None
        said = said or Declared(Budget())  # the code has no budget any more
        change = Redeclare(self.run_id, said.budget, said.override)
        change.apply(tx)
        if change.result is known:
            return known, []
        return change.result, [Entry(said.event(known, change.result))]

    def _ours(self, row: RunRow, tx: Tx) -> RunRow:
        """The row as it stands in the store now."""
        tail = tail_of(tx, row.run_id)
        assert tail is not None
        return dataclasses.replace(
            row,
            source=self.source or row.source,
            status="running",
            reason=None,
            detail=None,
            updated_at=self.at,
            due_at=None,
            seq=tail.seq,
            head=tail.head,
            epoch=tail.epoch,
            owner=self.owner,
            lease_wall=self.lease.wall,
            lease_boot=self.lease.boot,
        )


def lift_hold(tx: Tx, row: RunRow, at: float, world: World, by: str = "") -> None:
    """Let a held run go on."""
    extend(tx, row.run_id, row.epoch, at, [Entry(RunResumed(by))])
    # Who still lets a step of a paused run come to its end may not have heard of the pause.
    owner = row.owner if row.reason == "paused" else None
    held_here = owner is not None and world.liveness(owner) != "dead"
    put_status(tx, row.run_id, Becomes("running") if held_here else Becomes("queued", "resumed"))


def live_below(tx: Tx, run_id: str) -> Iterator[str]:
    """Ids of the runs below a run that have not ended: its children, each before its own. Not by
    recursion, since a workflow that calls itself without end makes a tree of any depth."""
    waiting = [run_id]
    while waiting:
        rows = cast(list[tuple[str, str]], tx.run("children_of", parent=waiting.pop()))
        for child, status in rows:
            if status not in FINAL:
                waiting.append(child)
                yield child


def lift_holds_below(tx: Tx, run_id: str, at: float, world: World, by: str = "") -> None:
    """Let the held runs below a run go on: an operator's resume is meant for the whole of it."""
    for child in live_below(tx, run_id):
        row = to_run(tx.run("read_run", run_id=child)[0])
        if row.status == "held":
            lift_hold(tx, row, at, world, by)


@dataclass(frozen=True, slots=True)
class Renew:
    """Heartbeat of an owner for all its runs at once; returns those that it has lost, by run id
    and epoch (the process may hold a run anew while an earlier claim of its own still unwinds), and
    whether it was by a kill."""

    runs: tuple[tuple[str, int], ...]
    lease: Lease

    def apply(self, tx: Tx) -> dict[tuple[str, int], bool]:
        return {
            (run_id, epoch): _is_killed(tx, run_id)
            for run_id, epoch in self.runs
            if not put_lease(tx, run_id, epoch, self.lease)
        }


@dataclass(frozen=True, slots=True)
class LetGo:
    """An owner that had kept a run beyond its end there, since a body still ran, does so no
    longer. Returns whether the run was killed meanwhile; then it has a word to say about that."""

    run_id: str
    epoch: int

    def apply(self, tx: Tx) -> bool:
        tail = tail_of(tx, self.run_id)
        if tail is not None and tail.epoch == self.epoch:
            put_owner(tx, self.run_id, self.epoch, None, None)
            return False
        return _is_killed(tx, self.run_id)


def _is_killed(tx: Tx, run_id: str) -> bool:
    tail = tail_of(tx, run_id)
    return tail is not None and tail.status == "killed"


@dataclass(frozen=True, slots=True)
class RenewForProcess:
    """Heartbeat of a supervisor for what its worker process holds; the nonce does not matter."""

    process: Identity
    lease: Lease

    def apply(self, tx: Tx) -> None:
        who = self.process
        tx.run(
            "renew_leases_of_process",
            host=who.host,
            boot=who.boot,
            namespace=who.namespace,
            pid=who.pid,
            started=who.started,
            lease_wall=self.lease.wall,
            lease_boot=self.lease.boot,
        )
