"""The operator's commands to runs as a whole: kill, pause, resume, the emergency stop."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from outlast.control import (
    GRACE,
    Allow,
    Ending,
    Kill,
    KillSeveral,
    NoteStopped,
    Pause,
    Resume,
    Revive,
    StopAll,
)
from outlast.emergency import read_stop
from outlast.errors import StoreError, UsageError
from outlast.processes import Ended, end_tagged
from outlast.records import Identity, Killed, RunRow, RunView, Status, StopView
from outlast.store.locks import write_lock_holder
from outlast.store.writer import Store
from outlast.views import kill_view, read_run, run_owner, run_view, workflows
from outlast.worker.ending import end_owner
from outlast.worker.stores import OpenStore

PAUSES = (0.01, 0.2)
"""First and longest pause, in seconds, between two looks at what killed runs still execute."""

UNNOTED = 2.0
"""Seconds that a process which has ended may be named by a killed run: its supervisor clears away
what it has left, and notes the end. Then we do."""

ORPHANS = 0.5
"""Seconds that processes get to end by themselves which a dead one has left."""

BATCH = 100
"""Runs that are killed in one transaction."""


class Steering:
    """The part of `Client` that stops runs and lets them go on. It imports no code of a workflow,
    and a kill reads no journal."""

    _opened: OpenStore
    _store: Store

    def _row(self, run_id: str) -> RunRow:
        raise NotImplementedError

    def _id(self, run_id: str) -> str:
        raise NotImplementedError

    def kill(
        self,
        run_id: str,
        *,
        reason: str = "",
        grace: float = GRACE,
        tree: bool = False,
        hard: bool = False,
        wait: float = 0.0,
        by: str = "",
    ) -> Killed:
        """End a run for good, with the runs that it has started, whatever it does. From the moment
        this is in the store no attempt opens in it and nothing is recorded as done.

        Args:
            run_id: an id, a prefix that only one id has, or `@last`.
            reason: why, for the record.
            grace: seconds that what executes it gets to end by itself.
            tree: the whole family: also the run that has started this one, and all below that.
            hard, wait: whether and how long to wait until nothing of it is executed any more, see
                `await_stop`. With `hard`, also see `end_blocker`.
            by: who, for the record.

        Returns:
            What the store says. A run that had ended before stays as it is. If the record of one
            is damaged it is killed all the same, and `problem` says so.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: `grace` or `wait` is none.
            StoreError: the store is in trouble, or nothing of the run's row can be read; it was not
                killed.
        """
        kill, run_id = self._kills(reason, grace, by), self._id(run_id)
        root = self._row(run_id).root if tree else None
        try:
            ending = self._store.write(kill(root or run_id), durable=True)
        except StoreError as problem:
            if not hard or problem.problem != "busy" or not self.end_blocker(run_id):
                raise
            ending = self._store.write(kill(root or run_id), durable=True)
        answer = self._answer(ending)
        if all(one.run_id != run_id for one in answer.all):  # the one at the top had ended
            answer = self._answer(self._store.write(kill(run_id), durable=True))
        return self.await_stop([answer], wait, hard=hard)[0]

    def end_blocker(self, run_id: str) -> bool:
        """End the process that executes a run if it is the one that keeps everybody from writing to
        the store: code that holds the interpreter may have caught it in a transaction. Only one of
        this machine whose identity is still the recorded one (Linux).

        Returns:
            Whether that was so, and it has ended.

        Raises:
            UnknownRun: no run matches, or several do.
        """
        owner = self._row(run_id).owner
        if owner is None or write_lock_holder(self._store.path) != owner.pid:
            return False
        ended = end_owner(owner, 0.0)
        return bool(ended.ended) and not ended.survivors

    def kill_all(
        self,
        *,
        workflow: str | None = None,
        reason: str = "",
        grace: float = GRACE,
        hard: bool = False,
        wait: float = 0.0,
        by: str = "",
    ) -> list[Killed]:
        """Kill every run that has not ended, as `kill` does, the oldest first.

        Args:
            workflow: only runs of this one.

        Returns:
            One answer for each. Of a run whose row was altered it says so (`refused`); the others
            are killed all the same.

        Raises:
            UsageError: no run is one of that workflow.
        """
        kill = self._kills(reason, grace, by)
        if workflow is not None and workflow not in (known := workflows(self._store)):
            others = ", ".join(known) or "none"
            raise UsageError(f"no run is one of workflow {workflow!r}; known: {others}")
        ids = [str(row[0]) for row in self._store.read("live_run_ids", workflow=workflow)]
        answers: dict[str, Killed] = {}
        for start in range(0, len(ids), BATCH):
            for answer in self._kill_several([kill(one) for one in ids[start : start + BATCH]]):
                answers.setdefault(answer.run_id, answer)
        below = {one.run_id for answer in answers.values() for one in answer.all[1:]}
        tops = [answer for answer in answers.values() if answer.run_id not in below]
        return self.await_stop(tops, wait, hard=hard)

    def await_stop(
        self, killed: Sequence[Killed], seconds: float, *, hard: bool = False
    ) -> list[Killed]:
        """Wait until nothing of killed runs is executed any more.

        Args:
            killed: what `kill` has returned.
            seconds: how long at most.
            hard: end the processes that have not let go of them by then, and not before the grace
                of their kill is over, with all that these processes execute beside. Only those of
                this machine whose identity is still the recorded one, and not this process.

        Returns:
            The answers, as the store has them now.
        """
        _check_seconds(seconds, "wait")
        world = self._store.world
        views = [one.kill for top in killed for one in top.all if one.kill is not None]
        if hard:
            graces = [view.at + view.grace - world.wall() for view in views if not view.stopped]
            longest = max((view.grace for view in views), default=0.0)
            seconds = max([seconds, *(min(grace, longest) for grace in graces)])
        ids = [one.run_id for top in killed for one in top.all if one.kill is not None]
        left = self._outlast(ids, world.boot() + seconds)
        if hard:
            self._end_owners(left)
        return [self._again(one) for one in killed]

    def pause(self, run_id: str, *, reason: str = "", by: str = "") -> RunView:
        """Hold a run, with the runs that it has started, until it is resumed. Nothing more begins
        in it. A step under way may come to its end: until then the run has an `owner`.

        Args:
            reason: why, for the record.
            by: who, for the record.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: it has ended.
        """
        item = Pause(self._row(run_id).run_id, self._store.world.wall(), by, reason)
        return run_view(self._store, self._store.write(item, durable=True).row)

    def resume(self, run_id: str, *, by: str = "") -> RunView:
        """Let a held run go on, with the runs that it has started, without executing it: a process
        that still has it goes on, else whoever takes up runs does.

        Args:
            by: who, for the record.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: it has ended.
        """
        world = self._store.world
        item = Resume(self._row(run_id).run_id, world.wall(), world, by)
        return run_view(self._store, self._store.write(item, durable=True))

    def revive(self, run_id: str, *, by: str = "") -> RunView:
        """Take a kill back: the run is queued, with the runs that were killed with it.

        Args:
            by: who, for the record.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: it was not killed, or a process has not let go of it.
        """
        world = self._store.world
        item = Revive(self._row(run_id).run_id, world.wall(), world, by)
        return run_view(self._store, self._store.write(item, durable=True))

    def stop_all(self, reason: str, *, by: str = "", kill: bool = False) -> StopView:
        """Call an emergency stop for the whole store. From the moment this returns no attempt opens
        in any run and nothing is claimed, also by processes that are started later, until `allow`.
        Steps under way may come to their end; then the processes let go of their runs.

        Args:
            reason: why, which everybody is shown who meets the stop.
            by: who, for the record.
            kill: `kill_all` follows; for the record.
        """
        return self._store.write(StopAll(self._store.world.wall(), by, reason, kill), durable=True)

    def allow(self, *, by: str = "") -> bool:
        """End the emergency stop. Whether there was one.

        Args:
            by: who, for the record.
        """
        return self._store.write(Allow(self._store.world.wall(), by), durable=True)

    def stopped(self) -> StopView | None:
        """The emergency stop that is in force; None if there is none."""
        return read_stop(self._store)

    def executed(self) -> list[tuple[str, str]]:
        """Ids of the unfinished runs that a process has, the oldest first, each with the process,
        such as `process 11 on vm`."""
        rows = [self._readable(str(row[0])) for row in self._store.read("list_executed")]
        owners = [(row.run_id, run_owner(self._store, row)) for row in rows if row is not None]
        return [(run_id, owner) for run_id, owner in owners if owner is not None]

    # ---- how a kill is carried out

    def _kills(self, reason: str, grace: float, by: str) -> partial[Kill]:
        _check_seconds(grace, "grace")
        world, own = self._store.world, self._opened.heart.claims
        return partial(
            Kill, at=world.wall(), world=world, own_claims=own, by=by, why=reason, grace=grace
        )

    def _kill_several(self, kills: Sequence[Kill]) -> Iterable[Killed]:
        try:
            endings = self._store.write(KillSeveral(tuple(kills)), durable=True)
        except StoreError as problem:
            if problem.problem != "damaged":
                raise
            return [self._kill_if_readable(kill) for kill in kills]
        return [self._answer(ending) for ending in endings]

    def _kill_if_readable(self, kill: Kill) -> Killed:
        try:
            return self._answer(self._store.write(kill, durable=True))
        except StoreError as problem:
            if problem.problem != "damaged":
                raise
            ((_, status, _),) = self._store.read(
                "read_standings", run_ids=json.dumps([kill.run_id])
            )
            word = cast(Status, status)
            return Killed(kill.run_id, "refused", word, None, problem=str(problem))

    def _answer(self, ending: Ending) -> Killed:
        row = ending.row
        if ending.orphaned and not ending.unread:
            self._end_orphans(row)
        kill = kill_view(self._store, row) if row.status == "killed" else None
        if kill is not None and ending.unread:  # it cannot be told who executes it
            kill = replace(kill, stopped=False)
        return Killed(
            run_id=row.run_id,
            outcome="killed" if ending.done else "already",
            status=row.status,
            kill=kill,
            children=[self._answer(below) for below in ending.below],
            problem=ending.damage or None,
        )

    def _again(self, killed: Killed) -> Killed:
        """An answer, as things are now."""
        if killed.outcome == "refused":
            return killed
        children = [self._again(child) for child in killed.children]
        row = self._readable(killed.run_id)
        if row is None:
            return replace(killed, children=children)
        kill = kill_view(self._store, row) if row.status == "killed" else None
        return replace(killed, status=row.status, kill=kill, children=children)

    def _end_orphans(self, row: RunRow, before: Ended | None = None) -> None:
        """End what the steps of a run have started on this machine and an ended process has left;
        note that, with what was ended before."""

        world = self._store.world
        did = end_tagged(row.uid, ORPHANS, world)
        ended, survivors = did.ended, did.survivors
        if before is not None:
            ended, survivors = before.ended + ended, before.survivors + survivors
        nonce = "" if row.owner is None else row.owner.nonce
        if row.owner is not None or ended or survivors:
            at = world.wall()
            note = NoteStopped(row.run_id, nonce, at, "operator", ended, survivors)
            self._store.write(note, durable=True)

    def _outlast(self, run_ids: Iterable[str], end: float) -> list[RunRow]:
        """Wait for processes to let go of killed runs, until `end` by the boot clock; the runs that
        they have not let go of then."""
        world = self._store.world
        pause, longest = PAUSES
        gone: dict[str, float] = {}  # since when it is known that the process has ended
        left = self._not_let_go(run_ids)
        while left:
            now = world.boot()
            waiting = []
            for row in left:
                assert row.owner is not None
                if world.liveness(row.owner) != "dead":
                    waiting.append(row)
                elif now >= min(end, gone.setdefault(row.run_id, now) + UNNOTED):
                    self._end_orphans(row)
                else:
                    waiting.append(row)
            if now >= end:
                return waiting
            world.pause(min(pause, end - now))
            pause = min(longest, pause * 1.5)
            left = self._not_let_go([row.run_id for row in waiting])
        return []

    def _not_let_go(self, run_ids: Iterable[str]) -> list[RunRow]:
        ids = json.dumps([*run_ids])
        found = self._store.read("not_let_go", run_ids=ids)
        rows = [self._readable(str(row[0])) for row in found]
        return [row for row in rows if row is not None and row.owner is not None]

    def _readable(self, run_id: str) -> RunRow | None:
        """The row of a run; None if it was altered so that it cannot be read."""
        try:
            return read_run(self._store, run_id)
        except StoreError as problem:
            if problem.problem != "damaged":
                raise
            return None

    def _end_owners(self, rows: Sequence[RunRow]) -> None:
        """End the processes that have not let go of killed runs."""

        did: dict[tuple[str, str, str, int, int], Ended] = {}
        for row in rows:
            assert row.owner is not None
            process = _process(row.owner)
            if process not in did:
                did[process] = end_owner(row.owner, 0.0, self._store.world)
            self._end_orphans(row, did[process])


def _process(owner: Identity) -> tuple[str, str, str, int, int]:
    return owner.host, owner.boot, owner.namespace, owner.pid, owner.started


def _check_seconds(seconds: float, name: str) -> None:
    if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{name}={seconds!r}: a number of seconds, zero or more, is expected")
