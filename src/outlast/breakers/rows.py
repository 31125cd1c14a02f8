"""The rows of table `breakers`, and which of the places in them are still held."""

import shlex
from collections.abc import Callable
from typing import cast

import msgspec
from msgspec import Struct

from outlast.errors import StoreError
from outlast.journal import to_run
from outlast.leases import is_abandoned
from outlast.policy.breaker import Breaker, Moment, State, Who, free
from outlast.records import FINAL
from outlast.store.base import Row, SqlValue, Tx
from outlast.world import World

_UNREAD = object()


class Kept(Struct, frozen=True):
    """The row of a breaker.

    Attributes:
        settings: None if nobody gave it any.
        declared_by: names of the steps that gave it these.
    """

    settings: Breaker | None = None
    declared_by: tuple[str, ...] = ()
    state: State = State()

    def effective(self, default: Breaker) -> Breaker:
        """The settings that count for a step that has none of its own."""
        return default if self.settings is None else self.settings


def moment(world: World) -> Moment:
    """Now."""
    return Moment(world.wall(), world.boot(), world.identity().boot)


def load(tx: Tx, name: str) -> Kept | None:
    """The row of a breaker; None if it has none.

    Raises:
        StoreError: see `to_kept`.
    """
    key = f"@breaker {name}"  # no run has such an id
    known = tx.memo.get(key, _UNREAD)
    if known is _UNREAD:
        rows = tx.run("read_breaker", name=name)
        known = tx.memo[key] = to_kept(name, rows[0]) if rows else None
    return cast("Kept | None", known)


def put(tx: Tx, name: str, kept: Kept) -> None:
    """Write the row of a breaker."""
    encode = msgspec.json.encode
    tx.run(
        "put_breaker",
        name=name,
        settings=None if kept.settings is None else encode(kept.settings).decode(),
        declared_by=None if not kept.declared_by else encode(kept.declared_by).decode(),
        state=encode(kept.state).decode(),
    )
    tx.memo[f"@breaker {name}"] = kept


def to_kept(name: str, row: Row | list[SqlValue]) -> Kept:
    """The columns of a row, without its name, as a record.

    Raises:
        StoreError: it was altered so that it cannot be read.
    """
    settings, declared_by, state = cast("tuple[str | None, str | None, str]", row)
    decode = msgspec.json.decode
    try:
        return Kept(
            None if settings is None else decode(settings, type=Breaker),
            () if declared_by is None else decode(declared_by, type=tuple[str, ...]),
            decode(state, type=State),
        )
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise StoreError(
            f"the row of breaker {name} cannot be read: it was altered ({problem}); start it "
            f"anew with: outlast breakers reset {shlex.quote(name)}",
            "damaged",
        ) from problem


def without_dead(state: State, read: Callable[..., list[Row]], world: World) -> State:
    """The state without the places of attempts that will not report any more."""
    for who in state.probes:
        if _is_dead(who, read, world):
            state = free(state, who)
    return state


def _is_dead(who: Who, read: Callable[..., list[Row]], world: World) -> bool:
    """Whether an attempt's run is not executed any more by who opened it. Should that owner only
    have been stalled, its report changes nothing: the place is not its own any more."""
    rows = read("read_run", run_id=who.run_id)
    if not rows:
        return True
    try:
        row = to_run(rows[0])
    except StoreError:
        return True  # nobody goes on with it, and a tool is not left alone for good because of it
    if row.epoch != who.epoch or row.status in FINAL or row.owner is None:
        return True
    # This process knows best what it still works on: that reports when it ends.
    return is_abandoned(row, world, frozenset({row.owner.nonce}))
