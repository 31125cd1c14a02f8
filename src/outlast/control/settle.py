"""Deciding about a step that is in doubt."""

from collections.abc import Set
from typing import Literal

from msgspec import Raw, Struct

from outlast.errors import UnknownRun, UsageError
from outlast.events import StepCharged, StepInterrupted, StepSettled, StepStarted, decode
from outlast.journal import (
    ACTIVE,
    Becomes,
    Entry,
    extend,
    put_owner,
    put_status,
    to_run,
)
from outlast.leases import is_abandoned
from outlast.records import FINAL, RunRow
from outlast.store.base import Tx
from outlast.verification import intact_journal
from outlast.views import doubtful, steps_of
from outlast.world import World


class Settle(Struct, frozen=True):
    """Decides about a step that is in doubt. The run can go on afterwards.

    Attributes:
        step: the step's key.
        decision: `done` takes `value` (plain JSON), `failed` takes `text`.
        own_claims: see `leases.is_abandoned`.
    """

    run_id: str
    step: str
    decision: Literal["done", "not-done", "failed"]
    at: float
    world: World
    own_claims: Set[str]
    value: bytes = b"null"
    text: str = ""
    by: str = ""

    def apply(self, tx: Tx) -> RunRow:
        """Record the decision; returns the run as it is then.

        Raises:
            UnknownRun: there is no such run.
            UsageError: the run is over or being executed, or the step is not in doubt.
            StoreError: see `intact_journal`.
        """
        rows = tx.run("read_run", run_id=self.run_id)
        if not rows:
            raise UnknownRun(f"there is no run {self.run_id!r} in this store; see: outlast ls")
        row = to_run(rows[0])
        if row.status in FINAL:
            raise UsageError(f"run {row.run_id} is {row.status}; nothing in it is left to settle")
        if row.owner is not None and not is_abandoned(row, self.world, self.own_claims):
            raise UsageError(
                f"run {row.run_id} is being executed by process {row.owner.pid} on "
                f"{row.owner.host}; settle works once no step of it runs there any more, or that "
                "process has ended"
            )
        journal = intact_journal(tx, row)
        open_ = doubtful(steps_of(journal, row.uid, alive=False))
        if self.step not in {step.key for step in open_}:
            known = ", ".join(step.key for step in open_) or "none"
            raise UsageError(
                f"step {self.step!r} of run {row.run_id} is not in doubt; in doubt: {known}"
            )
        entries = [
            Entry(StepSettled(self.decision, Raw(self.value), self.text, self.by), self.step)
        ]
        told = (event for event in journal if event.key == self.step)
        last = [event for event in told if event.kind != StepCharged.kind][-1]
        started = decode(last.kind, last.data)
        if isinstance(started, StepStarted):  # nobody has noted yet that its process is gone
            entries.insert(0, Entry(StepInterrupted(started.attempt, crash=True), self.step))
        epoch = row.epoch
        if row.owner is not None:
            # Should that owner only have been stalled, it must not speak against the decision.
            epoch += 1
            put_owner(tx, row.run_id, epoch, None, None)
        extend(tx, row.run_id, epoch, self.at, entries)
        waits = row.status == "held" and row.reason in ("in-doubt", "undo-failed")
        decided = waits and len(open_) == 1
        if decided or row.status in ACTIVE:
            put_status(tx, row.run_id, Becomes("queued", "settled"))
        return to_run(tx.run("read_run", run_id=row.run_id)[0])
