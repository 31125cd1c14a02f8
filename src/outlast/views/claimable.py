"""Runs that a worker can take up."""

import contextlib
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import cast

import msgspec

from outlast.events import RunClaimed, decode
from outlast.journal import to_event
from outlast.leases import is_abandoned
from outlast.records import Identity
from outlast.store.writer import Store

_JSON = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class _Held:
    """What decides whether a run's owner has it still."""

    owner: Identity | None
    lease_wall: float | None
    lease_boot: float | None


def ready(
    store: Store, workflows: Collection[str], limit: int, without: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Id and workflow of runs that nobody has and that can go on now, at most `limit`, those first
    that have been so for longest. Cheap, however many others wait.

    Args:
        without: ids of runs that are not asked about.
    """
    rows = store.read(
        "find_ready",
        workflows=_text(workflows),
        without=_text(without),
        now=store.world.wall(),
        limit=limit,
    )
    return [(str(run_id), str(workflow)) for run_id, workflow, _ in rows]


def abandoned(
    store: Store, workflows: Collection[str], own_claims: Set[str], *, released: bool = False
) -> list[tuple[str, str]]:
    """Id and workflow of runs that could go on now and whose owner is gone.

    Args:
        own_claims: see `leases.is_abandoned`.
        released: only those whose owner was to end, and had let go of them. These are few.
    """
    found = []
    now = store.world.wall()
    for run_id, workflow, status, due, owner, wall, boot in store.read(
        "list_owned", workflows=_text(workflows), released=released
    ):
        if status == "waiting" and (due is None or cast(float, due) > now):
            continue
        identity = msgspec.json.decode(str(owner), type=Identity)
        held = _Held(identity, cast(float | None, wall), cast(float | None, boot))
        if is_abandoned(held, store.world, own_claims):
            found.append((str(run_id), str(workflow)))
    return found


def may_end_its_process(store: Store, run_id: str) -> bool:
    """Whether the latest owner of a run had taken it up since the one before had died with it, and
    the run has not come any further since."""
    for raw in store.read("read_last_of_kind", run_id=run_id, kind="run.claimed"):
        row = to_event(raw)
        with contextlib.suppress(msgspec.DecodeError):  # it was altered; whoever claims it says so
            claim = decode(row.kind, row.data)
            died = isinstance(claim, RunClaimed) and claim.crash
            return died and not store.read("find_progress", run_id=run_id, seq=row.seq)
    return False


def _text(names: Collection[str]) -> str:
    return _JSON.encode(sorted(names)).decode()
