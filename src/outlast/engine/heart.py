"""Keeping the leases of this process's runs, from a thread that no step and no loop can block."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from outlast.engine.run import Run
from outlast.engine.stop import Broken, Lost
from outlast.errors import LostRun, StoreError
from outlast.leases import Renew, lease_from
from outlast.store.writer import Store

BEATS_PER_LEASE = 3
"""A lease survives two missed heartbeats."""


class Heart:
    """Renews the leases of all runs that this process executes on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[Run, float] = {}  # and until when its lease is known to hold
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def keep(self, run: Run) -> Iterator[None]:
        """Keep a run's lease until the block ends."""
        with self._changed:
            self._runs[run] = self._store.world.boot() + run.settings.lease
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._beat, name="outlast-heart", daemon=True
                )
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._runs[run]
                self._changed.notify()

    def claims(self) -> frozenset[str]:
        """The nonces of the claims that this process works on."""
        with self._changed:
            return frozenset(run.row.owner.nonce for run in self._runs if run.row.owner)

    def _beat(self) -> None:
        while True:
            with self._changed:
                if not self._runs:
                    self._thread = None
                    return
                lease = min(run.settings.lease for run in self._runs)
                self._changed.wait(lease / BEATS_PER_LEASE)
                runs = dict(self._runs)
            if runs:
                self._renew(runs, lease)

    def _renew(self, runs: dict[Run, float], lease: float) -> None:
        world = self._store.world
        until = world.boot() + lease
        ids = tuple((run.run_id, run.epoch) for run in runs)
        try:
            lost = self._store.write(Renew(ids, lease_from(world, lease)), durable=False)
        except StoreError as problem:
            # The lease may still be saved by a later beat; by our own clock it must not be
            # outlived.
            for run, end in runs.items():
                if world.boot() >= end - lease / BEATS_PER_LEASE:
                    run.request_stop(Broken(problem))
            return
        with self._changed:
            for run in self._runs:
                if run.run_id not in lost and run in runs:
                    self._runs[run] = until
        for run in runs:
            if run.run_id in lost:
                message = f"run {run.run_id} was taken over by another process"
                run.request_stop(Lost(LostRun(run.run_id, message)))
