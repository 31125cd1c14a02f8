"""`outlast.testing.replay` and what `outlast replay` does: journals against the code at hand."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from outlast import events
from outlast.engine.dry import Record
from outlast.engine.replay import MisfitReason, Rehearsal
from outlast.engine.replay import replay as rehearse
from outlast.engine.spec import WorkflowSpec, workflow_spec
from outlast.errors import StoreError, UnknownRun, UsageError
from outlast.journal import first_altered
from outlast.records import RunRow, Source, StoredEvent
from outlast.store.reading import open_to_read
from outlast.store.writer import Store
from outlast.views import live_runs, read_events, read_run, workflows
from outlast.worker.execution import source_of
from outlast.worker.loader import load_source, load_target, program_restored
from outlast.worker.stores import url_or_default
from outlast.world import World

TIMEOUT = 60.0
"""Seconds that one replay may take. Only workflow code that computes or blocks takes any."""

LONGEST = 86_400.0
"""The longest timeout that can be asked for."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run that fits the code.

    Attributes:
        calls: recorded calls that the code asked for; `recorded`: how many there are. Calls in
            turns that a resume skips are not counted.
        result: the run's result, if it has completed.
    """

    run_id: str
    workflow: str
    calls: int
    recorded: int
    result: object = None


class Misfit(AssertionError):
    """A run that the code would not carry on as it was recorded.

    Attributes:
        run_id, workflow: the run, and the name of its workflow.
        reason: `diverged`, `unreadable` or `in-doubt` (a resume would be held for that), `raised`
            (the run would fail), `outcome` (a run that has ended would end in another way),
            `missing` (there is no code), `undecided` (it took too long, or depends on calls that
            only a resume would execute).
        detail: what does not fit, with both sides.
        fix: what helps.
    """

    def __init__(
        self, run_id: str, workflow: str, reason: MisfitReason, detail: str, fix: str
    ) -> None:
        super().__init__(run_id, workflow, reason, detail, fix)
        self.run_id = run_id
        self.workflow = workflow
        self.reason: MisfitReason = reason
        self.detail = detail
        self.fix = fix

    def __str__(self) -> str:
        what = f"run {self.run_id} does not fit workflow {self.workflow} ({self.reason})"
        return f"{what}: {self.detail}\n{self.fix}"


def replay(
    run_id: str | None = None,
    workflow: Callable[..., object] | None = None,
    *,
    journal: str | Path | None = None,
    store: str | None = None,
    timeout: float = TIMEOUT,
) -> Replayed:
    """Run a recorded journal against the code at hand. No step is executed, nothing is written.

    For tests: keep the journals of typical runs beside them, and a change of the workflow that
    would not go on with such a run fails there. A run that has ended must end in the same way.

    Args:
        run_id: of the run.
        workflow: the code, a decorated workflow; by default it is found where the run was started
            from.
        journal: instead of a run in a store, a file with what `outlast journal RUN --json` prints.
        store: URL of the store; `$OUTLAST_STORE` by default, else `sqlite:///outlast.db`.
        timeout: seconds that the workflow's own code may take, a day at most.

    Raises:
        Misfit: the run does not fit the code.
        UnknownRun: there is no such run.
        UsageError: there is no such workflow, or it is not the run's; the file is no journal; an
            argument is of another type.
        StoreError: the store cannot be read.
    """
    _check_arguments(run_id, journal, store)
    _check_timeout(timeout)
    world = World()
    if journal is not None:
        record = _read_journal(Path(journal))
    else:
        with open_to_read(url_or_default(store)) as opened:
            row = read_run(opened, str(run_id))
            if row is None:
                raise UnknownRun(f"there is no run {run_id!r} in {opened.url}; see: outlast ls")
            record = _record(opened, row)
    with program_restored():
        spec = _given(workflow) or load_source(record.row.source, record.row.run_id)
        other = _belongs_elsewhere(record.row, spec)
        if other is not None:
            raise other
        told = _replay(record, spec, world, timeout)
    if isinstance(told, Misfit):
        raise told
    return told


def _given(workflow: Callable[..., object] | None) -> WorkflowSpec | None:
    found = workflow_spec(workflow)
    if workflow is not None and found is None:
        raise UsageError(f"{workflow!r} is not a workflow; decorate it with @outlast.workflow")
    return found


def replay_live(
    store: str,
    *,
    workflow: str | None = None,
    target: str | None = None,
    timeout: float = TIMEOUT,
) -> Iterator[Replayed | Misfit]:
    """Replay all runs that have not ended, oldest first; those too that are executed just now.

    Args:
        store: URL of the store.
        workflow: name of a workflow, to replay its runs only.
        target: `FILE_OR_MODULE:WORKFLOW`, to replay the runs of this workflow against the code
            there. By default a run's code is found where it was started from.
        timeout: as for `replay`.

    Raises:
        UsageError: there is no such workflow.
        StoreError: the store cannot be read.
    """
    _check_timeout(timeout)
    with program_restored():
        yield from _replay_live(store, workflow, target, timeout)


def _replay_live(
    store: str, workflow: str | None, target: str | None, timeout: float
) -> Iterator[Replayed | Misfit]:
    given = None if target is None else load_target(target)
    if given is not None and workflow not in (None, given.name):
        raise UsageError(
            f"{target} is workflow {given.name!r}, and only its runs can go on with it; leave out "
            f"--workflow {workflow}"
        )
    world = World()
    missing: dict[Source | None, UsageError] = {}
    with open_to_read(store) as opened:
        _check_workflow(opened, workflow)
        for run_id, name in live_runs(opened, given.name if given else workflow):
            try:
                row = read_run(opened, run_id)
                assert row is not None
                record = _record(opened, row)
            except StoreError as problem:
                if problem.problem != "damaged":
                    raise
                fix = f"See: outlast verify {run_id}"
                yield Misfit(run_id, name, "unreadable", str(problem), fix)
                continue
            spec = given or missing.get(row.source) or _load(row, missing)
            if isinstance(spec, WorkflowSpec):
                spec = _belongs_elsewhere(row, spec) or spec
            if isinstance(spec, UsageError):
                fix = "Say where the code is: outlast replay FILE_OR_MODULE:WORKFLOW"
                yield Misfit(run_id, name, "missing", str(spec.args[0]), fix)
            else:
                yield _replay(record, spec, world, timeout)


def _load(row: RunRow, missing: dict[Source | None, UsageError]) -> WorkflowSpec | UsageError:
    """A run's workflow, with what is imported by its program in place. What was looked for in vain
    is not imported again."""
    try:
        return load_source(row.source, row.run_id)
    except UsageError as problem:
        if row.source is not None:  # otherwise it says which run it is
            missing[row.source] = problem
        return problem


def _belongs_elsewhere(row: RunRow, spec: WorkflowSpec) -> UsageError | None:
    """An error if what was found is not the run's workflow: a resume would refuse it."""
    if row.workflow == spec.name:
        return None
    return UsageError(
        f"the run belongs to workflow {row.workflow!r}, and what was found is {spec.name!r}"
    )


def _replay(record: Record, spec: WorkflowSpec, world: World, timeout: float) -> Replayed | Misfit:
    run_id, name = record.row.run_id, record.row.workflow
    told: Rehearsal = rehearse(record, spec, source_of(spec.fn, spec.module), world, timeout)
    if told.unfit is not None:
        unfit = told.unfit
        return Misfit(run_id, name, unfit.reason, unfit.detail, unfit.fix)
    return Replayed(run_id, name, told.asked, told.recorded, told.result)


# ---- what is asked for


def _check_arguments(run_id: object, journal: object, store: object) -> None:
    if (run_id is None) == (journal is None):
        raise UsageError('say what to replay: replay("RUN") or replay(journal="FILE")')
    if not isinstance(run_id, str | None):
        raise UsageError(f"run_id={run_id!r}: the id of a run, a text, is expected")
    if not isinstance(journal, str | os.PathLike | None):
        raise UsageError(f"journal={journal!r}: the path of a file is expected")
    if not isinstance(store, str | None):
        raise UsageError(f"store={store!r}: the URL of a store, a text, is expected")


def _check_timeout(timeout: object) -> None:
    number = timeout if isinstance(timeout, int | float) and timeout is not True else 0
    if not 0 < number <= LONGEST:
        raise UsageError(
            f"timeout={timeout!r}: a number of seconds above 0 and up to {LONGEST:.0f} is expected"
        )


def _check_workflow(store: Store, workflow: str | None) -> None:
    """A name of which there is no run was probably mistyped, and nothing misfits then."""
    known = workflows(store)
    if workflow is not None and known and workflow not in known:
        raise UsageError(
            f"no run in {store.url} is of workflow {workflow!r}; there are runs of: "
            f"{', '.join(known)}"
        )


# ---- records


def _record(store: Store, row: RunRow) -> Record:
    args = cast(bytes, store.read("read_args", run_id=row.run_id)[0][0])
    rows = read_events(store, row.run_id)
    return Record(row, args, rows, first_altered(rows))


class _Line(msgspec.Struct, frozen=True):
    """An event as `outlast journal --json` prints it."""

    seq: int
    kind: str
    key: str | None
    at: float
    epoch: int
    data: object


def _read_journal(path: Path) -> Record:
    """A journal kept as a file. Its hashes are not checked: they are those of other bytes."""
    try:
        # Not msgspec's JSON, to which the lone surrogates of a program's texts are errors.
        lines = msgspec.convert(json.loads(path.read_bytes()), list[_Line])
        stored = [
            StoredEvent(path.stem, e.seq, e.kind, e.key, _bytes(e.data), e.at, e.epoch, b"")
            for e in lines
        ]
        gap = next((n for n, e in enumerate(stored, 1) if e.seq != n), None)
        if gap is not None:
            raise ValueError(f"event {gap} is missing: it has {stored[gap - 1].seq} in its place")
        created = events.decode(stored[0].kind, stored[0].data)
        if not isinstance(created, events.RunCreated):
            raise ValueError("it does not begin with run.created")
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from problem
    except (ValueError, KeyError, IndexError, RecursionError, msgspec.MsgspecError) as problem:
        why = "nested too deep" if isinstance(problem, RecursionError) else problem
        raise UsageError(
            f"{path} is no journal, as made by: outlast journal RUN --json ({why})"
        ) from problem
    last = stored[-1]
    row = RunRow(
        run_id=path.stem,
        uid=created.uid,
        workflow=created.workflow,
        source=created.source,
        digest=created.digest,
        status="running",
        reason=None,
        detail=None,
        tags=created.tags,
        trace_id=created.trace_id,
        created_at=stored[0].at,
        updated_at=last.at,
        due_at=None,
        seq=last.seq,
        head=last.hash,
        epoch=last.epoch,
        owner=None,
        lease_wall=None,
        lease_boot=None,
    )
    return Record(row, bytes(created.args), stored)


def _bytes(data: object) -> bytes:
    """An event's data as the library writes it: without blanks."""
    return json.dumps(data, separators=(",", ":")).encode()
