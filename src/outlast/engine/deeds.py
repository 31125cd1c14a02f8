"""What the steps of a run have done, from its whole journal, and where their undo is found."""

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Literal

from msgspec import Raw

from outlast import cuts, events
from outlast.engine.history import Past, build
from outlast.engine.spec import StepSpec, WorkflowSpec, step_spec, workflow_spec
from outlast.records import Source, StoredEvent

Standing = Literal["nothing", "done", "doubt", "left", "run"]
"""What a call came to: it changed nothing; it took effect; that is not known and can be found out;
it may have taken effect and cannot be undone; the journal of the run that it called tells."""


@dataclass(slots=True)
class Deed:
    """What the journal says about one call of a step or of a workflow.

    Attributes:
        order: number of the event that told how it ended, or of its last one.
        args: its arguments, if they were stored; `place`: of its undo, likewise.
        answer: of reconcile, asked on behalf of the undoing; `settled`: of an operator, likewise.
    """

    past: Past
    order: int = 0
    args: Raw = field(default_factory=lambda: events.ABSENT)
    place: str = ""
    answer: str = ""
    settled: events.StepSettled | None = None

    @property
    def standing(self) -> Standing:
        past = self.past
        if past.child:
            return "run"
        if past.effect == "read" or not past.attempts:
            return "nothing"
        decided = self.settled or past.settled
        if decided is not None:
            said: dict[str, Standing] = {"done": "done", "not-done": "nothing", "failed": "left"}
            return said[decided.decision]
        if self.answer in ("done", "not-done"):
            return "done" if self.answer == "done" else "nothing"
        if isinstance(past.outcome, events.StepCompleted) or self.is_late:
            return "done"
        if isinstance(past.outcome, events.StepFailed):
            return self._failed(past.outcome.error)
        if past.effect != "once":  # only of those it is found out that they had no effect
            return "left"
        return "doubt" if past.doubt is not None or past.open else "nothing"

    @property
    def is_late(self) -> bool:
        """Whether a result came when it could not be recorded as the outcome."""
        late = self.past.late
        return late is not None and late.attempt == self.past.attempts and bool(bytes(late.value))

    def _failed(self, error: events.ErrorRecord) -> Standing:
        if error.fault == "done-not-storable":
            return "done"
        if error.type == events.SETTLED or self.past.effect != "once":
            return "left"
        return "doubt" if error.fault == "unknown-outcome" else "nothing"


def deeds_of(rows: list[StoredEvent]) -> list[Deed]:
    """The calls of steps and children that count, in the order in which they ended."""
    calls = build(rows, skipped=True).calls.values()
    deeds = {past.key: Deed(past) for past in calls if past.kind == "step" or past.child}
    for row in cuts.split(rows)[0]:
        deed = deeds.get(row.key or "")
        if deed is None:
            continue
        match events.decode(row.kind, row.data):
            case events.StepStarted() as started:
                deed.args = started.args if bytes(started.args) else deed.args
                deed.place = started.undo or deed.place
            case events.StepReconciled() as said if said.undoing:
                deed.answer, deed.settled = said.answer, None
            case events.StepSettled() as settled if deed.past.asked:
                deed.settled = settled
            case _:
                pass
        if not deed.past.asked:
            deed.order = row.seq
    for deed in deeds.values():
        deed.order = deed.past.order or deed.order
    return sorted(deeds.values(), key=lambda deed: deed.order)


def find_step(place: str, workflow: WorkflowSpec) -> StepSpec | None:
    """The step at MODULE:NAME; it may also have another name, there or beside the workflow."""
    module, _, name = place.partition(":")
    spec = step_spec(_at(module, name))
    if spec is not None and spec.place == place:
        return spec
    for known in (_module(module), _module(workflow.module)):
        for value in vars(known).values() if known is not None else ():
            spec = step_spec(value)
            if spec is not None and spec.place == place:
                return spec
    return None


def find_workflow(source: Source) -> WorkflowSpec | None:
    """The workflow that a run was created from."""
    return workflow_spec(_at(source.module, source.name))


def _at(module: str, name: str) -> object:
    found: object = _module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _module(name: str) -> ModuleType | None:
    """A module by the name that it has in the journal: a program's is that of its file."""
    main = sys.modules["__main__"]
    known = getattr(main, "__spec__", None)
    if name == (known.name if known else Path(getattr(main, "__file__", None) or "").stem):
        return main
    if name in sys.modules:
        return sys.modules[name]
    try:
        return importlib.import_module(name)
    except Exception:
        return None  # the hold that follows names it
