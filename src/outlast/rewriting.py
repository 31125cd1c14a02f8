"""Commands that part with what is recorded: drop it from a step on, or go on with a copy.

Both say first what of it has taken effect outside. Nothing that a `once` step did is ever dropped;
a copy repeats effects only if that was asked for.
"""

import difflib
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from math import inf
from typing import cast

from msgspec import Struct

from outlast import cuts, events
from outlast.errors import UnknownRun, UsageError
from outlast.events import Forked, RunAccepted, StepLate, decode
from outlast.journal import (
    ACTIVE,
    Becomes,
    Entry,
    copy,
    extend,
    put_owner,
    put_status,
    to_run,
)
from outlast.leases import Create, NewRun, is_abandoned
from outlast.mailbox import rebuild
from outlast.records import FINAL, UNSURE, RunRow, Source, StepView, StoredEvent
from outlast.store.base import Tx
from outlast.verification import intact_journal
from outlast.views import steps_of
from outlast.world import World

END = "@end"
"""Stands for a step behind all that is recorded."""

LISTED = 50
"""Steps that an error names at most."""


class Dropped(Struct, frozen=True):
    """What counts no longer in a run: its steps, and how much else."""

    run_id: str
    since: str
    steps: list[StepView]
    timers: int
    values: int
    turns: int
    waits: int = 0

    def lines(self) -> Iterator[str]:
        """It in words for an operator."""
        counts = {
            "step": len(self.steps),
            "timer": self.timers,
            "recorded value": self.values,
            "saved turn": self.turns,
            "wait": self.waits,
        }
        parts = [f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n]
        *first, last = parts or ["nothing"]
        what = f"{', '.join(first)} and {last}" if first else last
        yield f"run {self.run_id}: dropped {what} from {self.since} on"
        for step in self.steps:
            twice = step.attempts and step.effect not in ("read", "once")
            said = ", may happen twice" if twice else ""
            yield f"  {step.key} ({step.preview}) {step.status}{said}"


class Accept(Struct, frozen=True):
    """Drops what is recorded from a step on: the code at hand counts.

    Attributes:
        step: key of a step, timer, recorded value or turn loop.
        own_claims: see `leases.is_abandoned`.
        by: who decided.
    """

    run_id: str
    step: str
    at: float
    world: World
    own_claims: Set[str]
    by: str = ""

    def apply(self, tx: Tx) -> Dropped:
        """Record the decision; returns what counts no longer.

        Raises:
            UnknownRun: there is no such run.
            UsageError: the run is over or being executed, has no such step, or something that a
                `once` step did or may have done would be dropped.
            StoreError: see `intact_journal`.
        """
        row = _read(tx, self.run_id)
        fork = _command("fork", row.run_id, "--from", self.step)
        if row.status in FINAL:
            raise UsageError(
                f"run {row.run_id} is {row.status}: nothing in it is dropped any more; to go on "
                f"with a copy: {fork}"
            )
        if row.owner is not None and not is_abandoned(row, self.world, self.own_claims):
            raise UsageError(
                f"run {row.run_id} is being executed by process {row.owner.pid} on "
                f"{row.owner.host}; end that process first, or go on with a copy: {fork}"
            )
        journal = intact_journal(tx, row)
        rows, dropped = cuts.split(journal)
        if _undone(rows):
            raise UsageError(
                f"run {row.run_id} is being undone, so nothing of it can go on with other code; "
                f"to go on with a copy of what came before: {fork}"
            )
        since = _since(row.run_id, self.step, rows, dropped)
        kept, cut = cuts.cut(rows, since)
        gone = cuts.whole_calls(kept, cut)
        steps = steps_of(gone, row.uid, alive=False)
        below = _effects_below(tx, gone)
        done = [s for s in steps if s.effect == "once" and _may_have_happened(s, gone)]
        done += [s for s in below if s.effect == "once"]
        steps += below
        if done:
            raise UsageError(
                f"run {row.run_id} cannot drop what follows {self.step}: these steps have the "
                "effect `once` and have happened or may have. Bring back the code that fits "
                "them, or go on with a copy:",
                *_lines(done),
                f"  {fork}",
            )
        epoch = row.epoch
        if row.owner is not None:
            # Should that owner only have been stalled, it must not speak against the decision.
            epoch += 1
            put_owner(tx, row.run_id, epoch, None, None)
        entry = Entry(RunAccepted(self.step, since, self.by))
        extend(tx, row.run_id, epoch, self.at, [entry])
        rebuild(tx, row.run_id, kept)
        put_status(tx, row.run_id, Becomes("queued", "accepted"))
        kinds = Counter(event.kind for event in cut)
        return Dropped(
            run_id=row.run_id,
            since=self.step,
            steps=steps,
            timers=kinds[events.TimerSet.kind],
            values=kinds[events.ValueRecorded.kind],
            turns=kinds[events.TurnSaved.kind],
            waits=kinds[events.WaitOpened.kind],
        )


class Fork(Struct, frozen=True):
    """Makes a new run of what another one has done before a step.

    Attributes:
        step: a key as for `Accept`, or `@end`: everything is copied that has ended.
        create: creates the new run, but for what is the source's.
        repeat_effects: steps that have taken effect may be made again.
    """

    source: str
    step: str
    create: Create
    world: World
    own_claims: Set[str]
    repeat_effects: bool = False
    by: str = ""

    def apply(self, tx: Tx) -> RunRow:
        """Copy; returns the new run.

        Raises:
            UnknownRun: there is no such source.
            UsageError: the new id is taken, the source has no such step, or effects would be
                repeated unasked.
            StoreError: see `intact_journal`.
        """
        row, new_id = _read(tx, self.source), self.create.new.run_id
        if tx.run("read_run", run_id=new_id):
            raise UsageError(f"there is a run {new_id!r} already; choose another id for the fork")
        journal = intact_journal(tx, row)
        rows, dropped = cuts.split(journal)
        end = self.step == END
        since = inf if end else _since(row.run_id, self.step, rows, dropped)
        kept, _ = cuts.cut(rows, since)
        undone = _undone(rows)
        copied = _finished([e for e in kept if not _undoes(e)], row.uid)
        keys = {event.key for event in copied}
        stands = next((key for key in undone if key in keys), None)
        if stands is not None:
            raise UsageError(
                f"step {stands} of run {row.run_id} was undone, and a copy would go on as if it "
                f"stood; fork from it: {_command('fork', row.run_id, '--from', stands)}"
            )
        again = [e for e in journal if e.key is not None and e.key not in keys]
        again = [e for e in again if not _undoes(e) and e.key not in undone]
        effects = [s for s in self._steps(row, again) if _may_have_happened(s, again)]
        effects += _effects_below(tx, again)
        if effects and not self.repeat_effects:
            command = ("fork", row.run_id, "--from", self.step, "--id", new_id, "--repeat-effects")
            raise UsageError(
                f"a fork of run {row.run_id} from {self.step} may make these steps again. They "
                "have happened or may have, and a fork has idempotency keys of its own, so "
                "nothing outside can tell a repeat. To repeat them:",
                *_lines(effects),
                f"  {_command(*command)}",
            )
        args = cast(bytes, tx.run("read_args", run_id=row.run_id)[0][0])
        new = NewRun(new_id, row.workflow, args, row.digest, row.source, row.tags)
        left_out = dict.fromkeys(e.key for e in kept if e.key is not None and e.key not in keys)
        forked = _origin(row, journal, copied, list(left_out), self.step, self.by)
        replace(self.create, new=new, forked=forked).apply(tx)
        copy(tx, new_id, copied)
        return _read(tx, new_id)

    def _steps(self, row: RunRow, rows: Iterable[StoredEvent]) -> list[StepView]:
        alive = row.status in ACTIVE and not is_abandoned(row, self.world, self.own_claims)
        return steps_of(rows, row.uid, alive=alive)


def _read(tx: Tx, run_id: str) -> RunRow:
    rows = tx.run("read_run", run_id=run_id)
    if not rows:
        raise UnknownRun(f"there is no run {run_id!r} in this store; see: outlast ls")
    return to_run(rows[0])


def _undoes(event: StoredEvent) -> bool:
    """Whether it is one of a compensation."""
    return event.key is not None and event.key.rpartition("#")[2].startswith(cuts.UNDO)


def _undone(rows: Sequence[StoredEvent]) -> list[str]:
    """Keys of the steps whose compensation has begun, the earliest of them first."""
    begun = {str(e.key).rpartition("#")[2].removeprefix(cuts.UNDO) for e in rows if _undoes(e)}
    kinds = (events.StepStarted.kind, events.ChildStarted.kind)
    steps = dict.fromkeys(e.key for e in rows if e.kind in kinds and not _undoes(e))
    return [key for key in steps if key is not None and key.rpartition("#")[2] in begun]


def _since(
    run_id: str, step: str, rows: Sequence[StoredEvent], dropped: Sequence[StoredEvent]
) -> int:
    since = cuts.first_of(rows, step)
    if since is not None:
        return since
    if cuts.first_of(dropped, step) is not None:
        raise UsageError(
            f"step {step!r} of run {run_id} was dropped before and was not made again since; go "
            f"on with: {_command('resume', run_id)}"
        )
    known = list(dict.fromkeys(row.key for row in rows if row.key is not None))
    near = ", ".join(difflib.get_close_matches(step, known, n=5, cutoff=0.0)) or "none"
    raise UsageError(
        f"run {run_id} has no step {step!r}; the nearest are: {near}; for all of them: "
        f"{_command('show', run_id)}"
    )


def _may_have_happened(step: StepView, rows: Iterable[StoredEvent]) -> bool:
    """Whether a step has changed something outside, as far as its events tell."""
    late = step.effect != "read" and any(_tells_late(step.key, row) for row in rows)
    return step.may_have_happened or late


def _effects_below(tx: Tx, rows: Iterable[StoredEvent]) -> list[StepView]:
    """Steps of the children that these events have started, and of theirs, that have changed
    something outside or may have. Their keys are named with their runs."""
    found: list[StepView] = []
    for stored in rows:
        if stored.kind != events.ChildStarted.kind or _undoes(stored):
            continue
        started = decode(stored.kind, stored.data)
        assert isinstance(started, events.ChildStarted)
        row = _read(tx, started.run_id)
        journal = intact_journal(tx, row)
        steps = steps_of(journal, row.uid, alive=False)
        found += [
            replace(step, key=f"{step.key} of {row.run_id}")
            for step in steps
            if _may_have_happened(step, journal)
        ]
        found += _effects_below(tx, journal)
    return found


def _tells_late(key: str, row: StoredEvent) -> bool:
    """Whether an event shows after all that a step took effect."""
    if row.key != key or row.kind != StepLate.kind:
        return False
    late = decode(row.kind, row.data)
    assert isinstance(late, StepLate)
    return bool(bytes(late.value)) or (late.error is not None and late.error.fault in UNSURE)


def _lines(steps: Sequence[StepView]) -> Iterator[str]:
    for step in steps[:LISTED]:
        unsure = step.status == "failed" and step.fault in UNSURE and not step.let_fail
        said = step.fault if unsure else step.reconciled
        yield f"  {step.key} ({step.preview}): {step.effect}, {step.status}" + (
            f" ({said})" if said and step.status != "in-doubt" else ""
        )
    if len(steps) > LISTED:
        yield f"  and {len(steps) - LISTED} more"


def _finished(rows: Sequence[StoredEvent], uid: str) -> list[StoredEvent]:
    """What a fork takes over: events of calls that have ended, saved turns, and what the workflow
    was told about the run as a whole."""
    calls = [row for row in rows if row.key is not None]
    steps = steps_of(calls, uid, alive=False)
    doubtful = {step.key for step in steps if step.status == "in-doubt"}
    ended = {step.key for step in steps if step.status in ("completed", "failed")}
    ended |= {str(row.key) for row in calls if row.kind in _ENDS} - doubtful
    ended |= _waits_ended(calls)
    return [row for row in rows if row.key in ended or row.kind in _KEPT]


def _waits_ended(calls: Iterable[StoredEvent]) -> set[str]:
    """Keys of waits for signals and answers that have ended. Leave to open a step does not end the
    step."""
    kinds: dict[str, str] = {}
    ended = set()
    for row in calls:
        event = decode(row.kind, row.data) if row.kind.startswith("wait.") else None
        if isinstance(event, events.WaitOpened):
            kinds[str(row.key)] = event.what
        elif isinstance(event, events.WaitEnded) and kinds.get(str(row.key)) != "approval":
            ended.add(str(row.key))
    return ended


_ENDS = frozenset(
    {
        events.StepAbandoned.kind,
        events.TimerFired.kind,
        events.ValueRecorded.kind,
        events.ChildEnded.kind,
        events.MapEnded.kind,
    }
)

_KEPT = frozenset({events.TurnSaved.kind, events.RunPatched.kind})


def _origin(
    row: RunRow,
    journal: Iterable[StoredEvent],
    copied: Iterable[StoredEvent],
    unfinished: list[str],
    step: str,
    by: str,
) -> Forked:
    """What a fork remembers of its source, beyond the copied events."""
    cancelled = {e.seq for e in copied if e.kind == events.StepAbandoned.kind}
    claimed = inherited = patience = 0.0
    seed = row.uid
    sources: list[Source | None] = []
    for stored in journal:
        if stored.key is not None and stored.seq not in cancelled:
            continue
        match decode(stored.kind, stored.data):
            case events.RunCreated() as created:
                if created.forked is not None:
                    inherited, seed = created.forked.patience, created.forked.seed
                    sources += created.forked.sources
                    unfinished = created.forked.unfinished + unfinished
                sources.append(created.source)
            case events.RunClaimed() as claim:
                claimed = stored.at
                sources.append(claim.source)
            case events.StepAbandoned():
                patience = max(patience, stored.at - claimed if claimed else inherited)
            case _:
                pass
    places = [place for place in dict.fromkeys(sources) if place not in (None, row.source)]
    return Forked(
        run_id=row.run_id,
        uid=row.uid,
        seq=row.seq,
        head=row.head.hex(),
        step=step,
        seed=seed,
        patience=patience,
        sources=[place for place in places if place is not None],
        unfinished=unfinished,
        by=by,
    )


def _command(*words: str) -> str:
    """A command line to paste into a shell."""
    return shlex.join(("outlast", *words))
