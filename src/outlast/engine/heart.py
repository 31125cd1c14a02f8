"""Keeping the leases of this process's runs, from a thread that no step and no loop can block."""

import threading
from collections.abc import Sequence, Set
from functools import partial

from msgspec import Struct

from outlast.engine.ear import Ear
from outlast.engine.ending import begin_ending
from outlast.engine.run import KILLED, Run
from outlast.engine.stop import Broken, Lost
from outlast.errors import LostRun, StoreError
from outlast.leases import LetGo, Renew, lease_from
from outlast.records import Identity
from outlast.store.writer import Store

BEATS_PER_LEASE = 3
"""A lease survives a missed heartbeat."""

PATIENCE = 0.25
"""How long a renewal may take, as part of the lease."""


class _Kept(Struct):
    """A lease, by the boot clock: until when it is known to hold, when renewal was last asked."""

    end: float
    asked: float


class Heart:
    """Renews the leases of all runs that this process executes on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[Run, _Kept] = {}
        self._claims: set[str] = set()
        self._kept_claims: set[str] = set()  # those that outlive the execution of their run
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes = 0.0  # when the thread looks again, by the boot clock
        self._problem: Exception | None = None  # why the last renewal failed
        self._ear = Ear(store)

    @property
    def claims(self) -> Set[str]:
        """The nonces of this process's claims. It is not a copy: a thread that is about to take a
        run sees the claim that another one made a moment ago."""
        return self._claims

    def claiming(self) -> "_Claiming":
        """A new claim, known as this process's own before it can be seen in the store."""
        return _Claiming(self)

    def keep(self, run: Run) -> "_Keeping":
        """Keep a run's lease until the block ends, or the last of its bodies, if the run could not
        be let go of before."""
        return _Keeping(self, run)

    def _claim(self) -> Identity:
        identity = self._store.world.identity()
        self._claims.add(identity.nonce)
        return identity

    def _end_claim(self, identity: Identity) -> None:
        if identity.nonce not in self._kept_claims:
            self._claims.discard(identity.nonce)

    def _keep(self, run: Run) -> None:
        self._ear.add(run)
        with self._changed:
            now = self._store.world.boot()
            kept = self._runs[run] = _Kept(end=run.row.lease_boot or now, asked=now)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._beat, name="outlast-heart", daemon=True
                )
                self._thread.start()
            elif _next(run, kept) < self._wakes:
                # Only then: it looks at all runs, and thousands may begin one after the other.
                self._changed.notify()

    def _end_keeping(self, run: Run) -> None:
        if run.keeps_owner:
            assert run.row.owner is not None
            self._kept_claims.add(run.row.owner.nonce)
            run.when_alone(partial(self._let_go, run, run.row.owner))
        else:
            self._ear.remove(run)
            with self._changed:
                del self._runs[run]

    def _let_go(self, run: Run, owner: Identity) -> None:
        self._ear.remove(run)
        with self._changed:
            del self._runs[run]
        try:
            if self._store.write_now(LetGo(run.run_id, run.epoch)):
                begin_ending(run).left()
        except StoreError as problem:
            self._problem = problem  # the lease runs out by itself
        self._kept_claims.discard(owner.nonce)
        self._claims.discard(owner.nonce)

    def _beat(self) -> None:
        while True:
            with self._changed:
                if not self._runs:
                    self._thread = None
                    return
                self._changed.wait(self._rest())
                now = self._store.world.boot()
                due: dict[float, list[Run]] = {}
                for run, kept in self._runs.items():
                    if now >= _beat(run, kept):
                        kept.asked = now
                        due.setdefault(run.settings.lease, []).append(run)
                late = [run for run, kept in self._runs.items() if now >= _limit(run, kept)]
            for lease, runs in due.items():
                self._renew(runs, lease)
            for run in late:
                self._give_up(run)

    def _rest(self) -> float:
        """Seconds until something is to be done."""
        self._wakes = min(_next(run, kept) for run, kept in self._runs.items())
        return max(0.0, self._wakes - self._store.world.boot())

    def _renew(self, runs: Sequence[Run], lease: float) -> None:
        """Ask for a renewal. It is not waited for: a store that does not answer must not keep
        this thread from seeing that a lease comes to its end."""
        ids = tuple((run.run_id, run.epoch) for run in runs)
        item = Renew(ids, lease_from(self._store.world, lease))

        def done(lost: dict[tuple[str, int], bool] | Exception) -> None:
            if isinstance(lost, Exception):
                self._problem = lost  # a later beat may still save the lease
                return
            self._problem = None
            with self._changed:
                for run in runs:
                    if (kept := self._runs.get(run)) is not None:
                        kept.end = item.lease.boot
            for run in runs:
                killed = lost.get((run.run_id, run.epoch))
                if killed:  # which the ear is about to hear
                    run.request_stop(KILLED)
                elif killed is not None and run.stop != KILLED:
                    message = f"run {run.run_id} was taken over by another process"
                    run.request_stop(Lost(LostRun(run.run_id, message)))

        try:
            self._store.submit(item, durable=False, done=done)
        except StoreError as problem:
            self._problem = problem

    def _give_up(self, run: Run) -> None:
        why = self._problem or "it does not answer"
        message = f"store {self._store.path}: the lease of run {run.run_id} could not be renewed"
        problem = self._problem.problem if isinstance(self._problem, StoreError) else "busy"
        run.request_stop(Broken(StoreError(f"{message} ({why})", problem)))


class _Claiming:
    """See `Heart.claiming`. With `_Keeping`, a class for the same reason as `watchers.Watch`."""

    __slots__ = ("_heart", "_identity")

    def __init__(self, heart: Heart) -> None:
        self._heart = heart

    def __enter__(self) -> Identity:
        self._identity = self._heart._claim()
        return self._identity

    def __exit__(self, *exc: object) -> None:
        self._heart._end_claim(self._identity)


class _Keeping:
    """See `Heart.keep`."""

    __slots__ = ("_heart", "_run")

    def __init__(self, heart: Heart, run: Run) -> None:
        self._heart, self._run = heart, run

    def __enter__(self) -> None:
        self._heart._keep(self._run)

    def __exit__(self, *exc: object) -> None:
        self._heart._end_keeping(self._run)


def _next(run: Run, kept: _Kept) -> float:
    """When something is to be done about a lease."""
    beat = _beat(run, kept)
    return beat if run.stop is not None else min(beat, _limit(run, kept))


def _beat(run: Run, kept: _Kept) -> float:
    """When the next renewal is to be asked for."""
    return kept.asked + run.settings.lease / BEATS_PER_LEASE


def _limit(run: Run, kept: _Kept) -> float:
    """When the run must stop unless its lease is renewed: before another process may take it.
    After a suspend the lease is over already, and the renewal tells whether somebody has."""
    patience = run.settings.lease * PATIENCE
    return max(kept.end - patience, kept.asked + patience)
