"""What a supervisor does about killed runs that do not end in its worker, and about the other runs
in there: a family, or whatever the worker has taken up."""

import contextlib
from typing import cast

import msgspec
from msgspec.structs import replace

from outlast.control import HandBack, NoteStopped
from outlast.errors import StoreError
from outlast.processes import Ended, Found
from outlast.records import Identity
from outlast.store.writer import Store
from outlast.views import read_run


def identity_of(store: Store, worker: Found) -> Identity:
    """The identity of a process of this machine."""
    return replace(store.world.identity(), pid=worker.pid, started=worker.started)


def killed_in(store: Store, worker: Found) -> list[tuple[str, Identity]]:
    """The killed runs that a worker has not let go of, and its claims on them.

    Raises:
        StoreError: the store is in trouble; so below.
    """
    rows = store.read("list_ending")
    found = [(str(one), msgspec.json.decode(str(owner), type=Identity)) for one, owner in rows]
    return [(one, who) for one, who in found if Found(who.pid, who.started) == worker]


def grace_left(store: Store, run_id: str) -> float:
    """Seconds that what executes a killed run has still to end by itself; none if the clock was put
    back since the kill, as nobody could tell."""
    grace, at = cast(tuple[float, float], store.read("read_grace", run_id=run_id)[0])
    passed = store.world.wall() - at
    return max(0.0, grace - passed) if passed >= 0 else 0.0


def hand_back(store: Store, worker: Found, why: str, besides: str = "") -> None:
    """Release what a worker has that is about to be ended, so that it counts as no crash of these
    runs. Where that cannot be written it counts as one: the worker is to end all the same.

    Args:
        besides: id of a run for which somebody else sees to that.
    """
    who = identity_of(store, worker)
    with contextlib.suppress(StoreError):
        rows = store.read("runs_of_process", **_named(who))
        only = {str(row[0]) for row in rows} - {besides}
        store.write(HandBack(who, store.world.wall(), why, only), durable=True)


def _named(who: Identity) -> dict[str, str | int]:
    """A process as queries name it."""
    return {
        "host": who.host,
        "boot": who.boot,
        "namespace": who.namespace,
        "pid": who.pid,
        "started": who.started,
    }


def uids_in(store: Store, worker: Found) -> list[str]:
    """Of the killed runs in a worker: what marks the processes that they have started. None if the
    store is in trouble."""
    with contextlib.suppress(StoreError):
        rows = [read_run(store, run_id) for run_id, _ in killed_in(store, worker)]
        return [row.uid for row in rows if row is not None]
    return []


def note_ended(store: Store, worker: Found, ended: Ended) -> None:
    """Nothing of the killed runs that a worker had is executed any more: it has ended."""
    for run_id, claim in killed_in(store, worker):
        note = NoteStopped(
            run_id,
            claim.nonce,
            store.world.wall(),
            "supervisor",
            ended.ended,
            ended.survivors,
        )
        store.write(note, durable=True)
