"""The operator's API. The command line is a thin face on it."""

import json
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from outlast.api.inbox import Inbox
from outlast.api.steering import Steering
from outlast.api.undoing import Undoing
from outlast.breakers import BreakerView as BreakerView
from outlast.breakers import Reset, Trip, read_breakers
from outlast.budgets import TopUp
from outlast.errors import NotDone, StoreError, UnknownRun, UsageError
from outlast.events import escape_surrogates
from outlast.journal import STORE
from outlast.leases import NewRun, is_abandoned
from outlast.policy.budget import Budget, Limits
from outlast.records import FINAL, Done, RunRow, RunView, Status, StepView, StoredEvent, Usage
from outlast.verification import Verdict as Verdict
from outlast.verification import verify_all, verify_run, verify_store
from outlast.views import list_runs, read_events, read_run, run_view, unfinished, upcoming
from outlast.worker.execution import MAX_RUN_ID, check_run_id, creation
from outlast.worker.outcome import result_of_row
from outlast.worker.stores import get_store

T = TypeVar("T")

POLL = (0.02, 1.0)
"""First and longest pause, in seconds, while waiting for a run."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A decision about a step in doubt: let it fail in the workflow, with this text."""

    text: str


class Client(Steering, Inbox, Undoing):
    """Looks at runs and decides about them, from any process. It executes nothing.

    Args:
        store: URL of the store; `$OUTLAST_STORE` by default, else `sqlite:///outlast.db`.

    Raises:
        StoreError, UsageError: the store cannot be opened.
    """

    def __init__(self, store: str | None = None) -> None:
        self._opened = opened = get_store(store)
        self._store, self._heart = opened.store, opened.heart
        self.url = self._store.url

    def runs(
        self, *, status: Status | None = None, workflow: str | None = None, limit: int = 100
    ) -> list[RunView]:
        """Runs, newest first, without their steps. Of a damaged one, what is known (`damaged`)."""
        return list_runs(self._store, status, workflow, limit)

    def run(self, run_id: str) -> RunView:
        """One run with its steps.

        Args:
            run_id: an id, a prefix that only one id has, or `@last` for the newest run.

        Raises:
            UnknownRun: no run matches, or several do.
        """
        return run_view(self._store, self._row(run_id))

    def journal(self, run_id: str) -> list[StoredEvent]:
        """All events of a run, oldest first; of `@store`: what concerned the store as a whole, such
        as its breakers. Raises as `run` does."""
        chosen = STORE if run_id == STORE else self._row(run_id).run_id
        return read_events(self._store, chosen)

    def unfinished(self) -> list[str]:
        """Ids of the runs that could go on now and that nobody executes, oldest first."""
        return [row.run_id for row in unfinished(self._store, self._heart.claims)]

    def upcoming(self) -> list[tuple[str, float]]:
        """Ids of the runs that nobody executes and that go on by themselves, each with the time
        from which on it can, in seconds since the epoch; the soonest first."""
        rows = upcoming(self._store, self._heart.claims)
        found = [(r.run_id, r.created_at if r.due_at is None else r.due_at) for r in rows]
        return sorted(found, key=lambda one: one[1])

    def verify(self, run_id: str | None = None, head: str | None = None) -> list[Verdict]:
        """Check the hash chain of one run, or of all and of what concerned the store as a whole.

        Args:
            run_id: as for `run`, or `@store`.
            head: hexadecimal hash, kept elsewhere, that the run's chain must contain.

        Raises:
            UsageError: `head` is not a hash, or is given without a run.
        """
        if run_id is None:
            if head is not None:
                raise UsageError("a head hash belongs to one run; name the run too")
            return verify_all(self._store)
        try:
            expected = None if head is None else bytes.fromhex(head)
        except ValueError:
            expected = b""
        if expected is not None and len(expected) != 32:
            raise UsageError(f"{head!r} is not a head hash; expected 64 hexadecimal digits")
        if run_id == STORE:
            return [verify_store(self._store, expected)]
        return [verify_run(self._store, self._row(run_id), expected)]

    def settle(
        self, run_id: str, step: str, decision: Done[object] | NotDone | Failed, by: str = ""
    ) -> RunView:
        """Decide about a step that is in doubt.

        Args:
            step: the step's key.
            decision: `Done(value)` with plain JSON data, `NotDone()` to let it run again, or
                `Failed(text)` to let it fail.
            by: who decided, for the record.

        Raises:
            UsageError: nothing is in doubt there, or the run is being executed.
        """
        from outlast.control import Settle  # not needed for `import outlast`; so below

        row, world = self._row(run_id), self._store.world
        settle = partial(
            Settle, row.run_id, step, at=world.wall(), world=world, own_claims=self._heart.claims
        )
        match decision:
            case Done(value):
                try:
                    data = json.dumps(value, allow_nan=False).encode()
                except (TypeError, ValueError) as problem:
                    raise UsageError(f"settle takes plain JSON data: {problem}") from None
                item = settle(decision="done", value=data, by=by)
            case Failed(text):
                item = settle(decision="failed", text=text, by=by)
            case _:
                item = settle(decision="not-done", by=by)
        return run_view(self._store, self._store.write(item, durable=True))

    def accept_from(self, run_id: str, step: str, by: str = "") -> list[StepView]:
        """Drop what is recorded from a step on, since the code at hand counts. The run can go on
        afterwards, and the journal keeps what was dropped.

        Calls that began before the step keep their results, even later ones.

        Args:
            step: key of a step, timer, recorded value or turn loop.
            by: who decided, for the record.

        Returns:
            The steps that count no longer. Those that the code still calls run again: a step with
            the same arguments has the same idempotency key, wherever the code calls it now; with
            others it has a new one.

        Raises:
            UsageError: the run is over or being executed, has no such step, or something that a
                `once` step did or may have done would be dropped. Nothing was written.
            StoreError: the run's journal was altered, or cannot be written.
        """
        from outlast.rewriting import Accept

        row, world = self._row(run_id), self._store.world
        item = Accept(row.run_id, step, world.wall(), world, self._heart.claims, by)
        return self._store.write(item, durable=True).steps

    def fork(
        self,
        run_id: str,
        step: str,
        *,
        new_id: str | None = None,
        repeat_effects: bool = False,
        by: str = "",
    ) -> RunView:
        """Make a new run of what another one has done before a step; it can be resumed then.

        Calls that began before the step and have ended are copied with their results; all others
        are made again, under new idempotency keys. The source may have any status.

        Args:
            step: key as for `accept_from`, or `@end`: all that has ended is copied.
            new_id: the new run's id; by default the source's with a suffix.
            repeat_effects: make steps again that may have changed something outside.
            by: who forked it, for the record.

        Raises:
            UsageError: the new id is taken or none, there is no such step, or effects would be
                repeated unasked: the text lists them. Nothing was written.
        """
        from outlast.rewriting import Fork

        row, world = self._row(run_id), self._store.world
        suffix = f"-fork-{world.token()[:8]}"
        chosen = row.run_id[: MAX_RUN_ID - len(suffix)] + suffix if new_id is None else new_id
        check_run_id(chosen)
        create = creation(NewRun(chosen, row.workflow, b"", row.digest), self._opened)
        item = Fork(row.run_id, step, create, world, self._heart.claims, repeat_effects, by)
        return run_view(self._store, self._store.write(item, durable=True))

    def add_budget(
        self,
        run_id: str,
        added: Budget | None = None,
        *,
        charged: Usage | None = None,
        by: str = "",
    ) -> RunView:
        """Raise limits of a run that has not ended. If it is held, it stays so until it is resumed.

        Args:
            added: by how much; money may be added to a run that had none, other limits only where
                there is one.
            charged: what the costs came to that are unknown.
            by: who decided, for the record.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: the run is over, has no such limit or no unknown cost, or nothing is added.
            StoreError: its budget was altered, or cannot be written.
        """
        if added is not None and not isinstance(added, Budget):
            raise UsageError(f"added={added!r}: an outlast.Budget is expected")
        limits = Limits() if added is None else added.limits
        item = TopUp(self._row(run_id).run_id, limits, self._store.world.wall(), charged, by)
        self._store.write(item, durable=True)
        return self.run(item.run_id)

    def breakers(self) -> list[BreakerView]:
        """The breakers that have settings of their own or whose tools have failed, by name, as they
        are now.

        Raises:
            StoreError: the store is in trouble, or a breaker's row was altered.
        """
        return read_breakers(self._store)

    def reset_breaker(self, name: str, by: str = "") -> BreakerView:
        """Close a breaker and forget its settings; the next step that has any gives them anew.

        Args:
            by: who decided, for the record.

        Raises:
            UsageError: there is no such breaker; the text names those that there are.
        """
        if escape_surrogates(name) != name:
            raise UsageError(f"there is no breaker {name!r}: a name is text")
        return self._store.write(Reset(name, self._store.world, by), durable=True)

    def trip_breaker(self, name: str, seconds: float | None = None, by: str = "") -> BreakerView:
        """Open a breaker, also one that no step has used yet: the tool is left alone.

        Args:
            seconds: until it is tried again; by default the cool-down of its settings.
            by: who decided, for the record.

        Raises:
            UsageError: the name or the seconds are none.
            StoreError: its row was altered, or cannot be written.
        """
        return self._store.write(Trip(name, self._store.world, by, seconds), durable=True)

    def wait(self, run_id: str, timeout: float | None = None) -> object:
        """Block until a run has ended or is held; returns its result.

        Args:
            timeout: seconds after which TimeoutError is raised.

        Raises:
            RunFailed, RunHeld, RunKilled: it ended without a result.
            TimeoutError: it has not ended in time, or whoever executed it is gone. A queued run is
                waited for: somebody may yet take it.
        """
        world = self._store.world
        row = self._row(run_id)
        end = None if timeout is None else world.boot() + timeout
        pause, longest = POLL
        while row.status not in FINAL and row.status != "held":
            if row.owner is not None and is_abandoned(row, world, self._heart.claims):
                raise TimeoutError(
                    f"run {row.run_id} is interrupted: nobody executes it; go on with: outlast "
                    f"resume {row.run_id}"
                )
            if end is not None and world.boot() >= end:
                raise TimeoutError(f"run {row.run_id} is still {row.status} after {timeout:g} s")
            world.pause(pause)
            pause = min(longest, pause * 1.5)
            row = self._row(row.run_id)
        return result_of_row(self._store, row, None)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Say that this client is no longer used. Clients of one process share an open store, which
        stays open until the process ends."""

    def _row(self, run_id: str) -> RunRow:
        return resolve(self, run_id)

    def _id(self, run_id: str) -> str:
        return resolve_id(self, run_id)


def resolve(client: Client, run_id: str) -> RunRow:
    """The run that an id, a unique prefix or `@last` names.

    Raises:
        UnknownRun: no run matches, or several do.
        StoreError: its row was altered, or its journal is gone.
    """
    known = resolve_id(client, run_id)
    row = read_run(client._store, known)
    if row is None:
        raise StoreError(
            f"all of the journal of run {known} is gone from {client._store.url}: somebody removed "
            "it. Bring back the store from a copy",
            "damaged",
        )
    return row


def resolve_id(client: Client, run_id: str) -> str:
    """The id of the run that an id, a unique prefix or `@last` names.

    Raises:
        UnknownRun: no run matches, or several do.
    """
    store = client._store
    if run_id == "@last":
        rows = store.read("last_run")
        if not rows:
            raise UnknownRun("the store has no runs yet; start one with: outlast run")
        run_id = str(rows[0][0])
    if escape_surrogates(run_id) != run_id:
        raise UnknownRun(f"there is no run {run_id!r}: an id is printable text")
    if store.read("read_standings", run_ids=json.dumps([run_id])):
        return run_id
    found = [str(r[0]) for r in store.read("find_runs", prefix=run_id)] if run_id else []
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownRun(f"several runs start with {run_id!r}: {', '.join(found)}; type more of it")
    raise UnknownRun(f"there is no run {run_id!r} in {store.url}; see: outlast ls")
