"""What an operator sees of breakers, and the commands to close and to open one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from outlast.breakers.rows import Kept, load, moment, put, to_kept, without_dead
from outlast.errors import StoreError, UsageError
from outlast.events import BreakerReset, BreakerTripped, escape_surrogates
from outlast.journal import Entry, extend_store
from outlast.policy.breaker import (
    LONGEST,
    Breaker,
    Phase,
    State,
    lets,
    phase,
    recent,
    reopens,
    reset,
    trip,
)
from outlast.store.base import Row, Tx
from outlast.store.writer import Store
from outlast.world import World


@dataclass(frozen=True, slots=True)
class BreakerView:
    """A breaker as an operator sees it: as it is now, although no call may have arrived since.

    Attributes:
        name: as in its settings, or the name of its step.
        state: `closed`, `open` or `half-open`.
        failures: how many failures still count.
        trips: how often in a row it was opened by failures, without having closed.
        last_fault: what the last failure was, or who tripped it; empty if there was none.
        last_fault_at: when that was, in seconds since the epoch.
        until: when the next call is let through as a probe, in seconds since the epoch; None unless
            it is open.
        probes: ids of the runs whose calls are let through at the moment.
        settings: those that count.
        declared_by: names of the steps that gave it these; empty: the defaults.
    """

    name: str
    state: Phase
    failures: int
    trips: int
    last_fault: str
    last_fault_at: float | None
    until: float | None
    probes: tuple[str, ...]
    settings: Breaker
    declared_by: tuple[str, ...]


class Reset(Struct, frozen=True):
    """An operator closes a breaker and drops its settings; the next step that has any gives them
    anew."""

    name: str
    world: World
    by: str = ""

    def apply(self, tx: Tx) -> BreakerView:
        """Close it, whatever state it is in; returns what it is then.

        Raises:
            UsageError: there is no such breaker.
        """
        now = moment(self.world)
        try:
            kept = load(tx, self.name)
        except StoreError as problem:
            if problem.problem != "damaged":
                raise
            # A row that nobody can read is what a reset has to help against. Its period is not
            # known; this one is later than any.
            kept = Kept(state=State(period=int(now.wall)))
        if kept is None:
            known = ", ".join(str(row[0]) for row in tx.run("list_breakers")) or "none"
            raise UsageError(
                f"there is no breaker {self.name!r} with settings of its own or a failure; "
                f"known: {known}"
            )
        kept = Kept(state=reset(kept.state, now))
        put(tx, self.name, kept)
        extend_store(tx, now.wall, [Entry(BreakerReset(self.by), self.name)])
        return _view(self.name, kept, tx.run, self.world)


class Trip(Struct, frozen=True):
    """An operator opens a breaker, also one that no step has used yet.

    Attributes:
        seconds: the cool-down; None for that of the settings.
    """

    name: str
    world: World
    by: str = ""
    seconds: float | None = None

    def apply(self, tx: Tx) -> BreakerView:
        """Open it; the cool-down counts from now, and probes under way lose their places. Returns
        what it is then.

        Raises:
            UsageError: the name or the seconds are none.
            StoreError: its row was altered.
        """
        if self.seconds is not None and not 0 < self.seconds <= LONGEST:
            raise UsageError(
                f"{self.seconds} is not a cool-down; more than 0 and at most 1e9 seconds is "
                "expected"
            )
        try:
            default = Breaker(self.name)
        except ValueError as problem:
            raise UsageError(str(problem)) from None
        now = moment(self.world)
        kept = load(tx, self.name) or Kept()
        by = escape_surrogates(self.by)
        fault = f"tripped by {by}" if by else "tripped by an operator"
        kept = replace(kept, state=trip(kept.state, now, fault, self.seconds))
        until = reopens(kept.effective(default), kept.state, now)
        assert until is not None
        put(tx, self.name, kept)
        extend_store(tx, now.wall, [Entry(BreakerTripped(until, self.by), self.name)])
        return _view(self.name, kept, tx.run, self.world)


def read_breakers(store: Store) -> list[BreakerView]:
    """The breakers that have settings of their own or whose tools have failed, by name.

    Raises:
        StoreError: the store is in trouble, or a row was altered.
    """
    return [
        _view(cast(str, name), to_kept(cast(str, name), row), store.read, store.world)
        for name, *row in store.read("list_breakers")
    ]


def would_let(store: Store, default: Breaker) -> bool:
    """Whether a breaker would let a call through now.

    Args:
        default: its name, and the settings if it has none of its own.
    """
    assert default.name is not None
    rows = store.read("read_breaker", name=default.name)
    if not rows:
        return True
    kept = to_kept(default.name, rows[0])
    state = without_dead(kept.state, store.read, store.world)
    return lets(kept.effective(default), state, moment(store.world))


def _view(name: str, kept: Kept, read: Callable[..., list[Row]], world: World) -> BreakerView:
    now = moment(world)
    needed = kept.state.needed or Breaker().failures
    settings = kept.effective(Breaker(name, failures=needed))
    state = without_dead(kept.state, read, world)
    return BreakerView(
        name=name,
        state=phase(settings, state, now),
        failures=len(recent(settings, state, now)),
        trips=state.trips,
        last_fault=state.fault,
        last_fault_at=state.faulted,
        until=reopens(settings, state, now),
        probes=tuple(who.run_id for who in state.probes),
        settings=settings,
        declared_by=kept.declared_by,
    )
