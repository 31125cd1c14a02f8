"""Whether code would carry a recorded run on: its journal is run against the code, and the end is
judged. Nothing is executed and nothing is written, see dry.py."""

import contextvars
import threading
from typing import Literal

from msgspec import Struct

from outlast import codec, events
from outlast.engine.dry import RECORD_ENDS, DryRun, Record
from outlast.engine.spec import WorkflowSpec, return_hint
from outlast.engine.stop import Hold, Release
from outlast.errors import NotStorable, Unreadable
from outlast.records import Source
from outlast.world import World

MisfitReason = Literal[
    "diverged", "unreadable", "in-doubt", "raised", "outcome", "missing", "undecided"
]
"""Why a run does not fit. The first three are reasons for which a resume would hold it. `raised`:
the workflow raises, so the run would fail; `outcome`: a run that has ended would end in another
way; `missing`: there is no code to be found; `undecided`: the code was still running, or only a
resume can tell."""

GIVEN_UP = Release("the replay is given up")


class Unfit(Struct, frozen=True):
    """How code and journal differ, and what helps."""

    reason: MisfitReason
    detail: str
    fix: str


class Rehearsal(Struct, frozen=True):
    """How a replay went.

    Attributes:
        asked: recorded calls that the code asked for, of `recorded` ones.
        unfit: None if it fits.
        result: the run's result, if it has completed and fits.
    """

    asked: int
    recorded: int
    unfit: Unfit | None
    result: object = None


def replay(
    record: Record, spec: WorkflowSpec, source: Source | None, world: World, timeout: float
) -> Rehearsal:
    """Run a journal against a workflow, in a thread of its own.

    Args:
        source: where the workflow was found.
        timeout: seconds that the code may take.
    """
    dry = DryRun(record, spec, source, world)
    if dry.stop is None:
        # In a context of its own, and a daemon: code that never ends must not keep the process.
        name = f"outlast replay of {dry.run.run_id}"
        work = contextvars.Context().run
        thread = threading.Thread(target=work, args=(dry.execute,), name=name, daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            dry.run.request_stop(GIVEN_UP)
            return _rehearsal(dry, spec, _undecided(timeout))
    return _rehearsal(dry, spec, _judge(dry, spec))


def _rehearsal(dry: DryRun, spec: WorkflowSpec, unfit: Unfit | None) -> Rehearsal:
    calls = list(dry.run.history.calls.values())
    result = None
    if unfit is None and isinstance(dry.ended, events.RunCompleted):
        result = codec.decode(dry.ended.result, hints=_hints(dry, spec))
    return Rehearsal(sum(call.consumed for call in calls), len(calls), unfit, result)


def _hints(dry: DryRun, spec: WorkflowSpec) -> tuple[object, ...]:
    return (return_hint(spec.fn), *dry.run.history.moved)


def _judge(dry: DryRun, spec: WorkflowSpec) -> Unfit | None:
    if isinstance(dry.problem, Exception):
        raise dry.problem  # a bug of ours: the workflow's own errors end the run
    if dry.problem is not None:
        return _unfit(dry, "raised", f"the workflow raises {dry.problem!r}")
    match dry.stop:
        case Hold() as hold:
            return _judge_hold(dry, hold)
        case Release() as stop if stop is RECORD_ENDS:
            return _judge_end_of_record(dry)
        case _:
            return _judge_ending(dry, spec)


def _judge_hold(dry: DryRun, hold: Hold) -> Unfit | None:
    match hold.reason:
        case "diverged" if dry.stop_at_end and (dry.overtaken or dry.unsure):
            return _unsure(dry, "the workflow ends")
        case "diverged" | "unreadable":
            return Unfit(hold.reason, hold.detail, hold.fix)
        case "in-doubt" if not dry.cancelled:  # a value that was settled does not fit
            return Unfit(hold.reason, hold.detail, hold.fix)
        case "in-doubt" if dry.left:
            return _unsure(dry, "the workflow cancels a call")
        case _:
            return None  # what a resume would be held for too, whatever the code


def _judge_end_of_record(dry: DryRun) -> Unfit | None:
    """Nothing more can happen without executing something."""
    if dry.ended is not None:
        how = "completed" if isinstance(dry.ended, events.RunCompleted) else "failed"
        said = f"the run has {how}, and the code now goes on: {dry.beyond} is not recorded"
        return _unfit(dry, "diverged", said)
    if not dry.left:
        return None
    if (dry.fresh or dry.unsure) and not dry.gone:
        return _unsure(dry, f"the code waits for {dry.beyond}")
    said = f"the code now waits for {dry.beyond} without asking for {_left(dry)}"
    return _unfit(dry, "diverged", said)


def _is_undoing(dry: DryRun) -> bool:
    """Whether the recorded run had raised, and what it did was being undone."""
    history = dry.run.history
    return bool(history.undoes) or any(past.asked for past in history.calls.values())


def _judge_ending(dry: DryRun, spec: WorkflowSpec) -> Unfit | None:
    """The workflow has returned or raised."""
    then, now = dry.ended, dry.event
    if then is None:
        unsure = dry.overtaken or dry.unsure
        if isinstance(now, events.RunFailed) and not (unsure or _is_undoing(dry)):
            said = f"the workflow now {_says(now)}, so that the run would fail"
            return _unfit(dry, "raised", said)
        return None
    if isinstance(then, events.RunCompleted) and isinstance(now, events.RunCompleted):
        same = _same_result(dry, spec, bytes(then.result), bytes(now.result))
    else:
        same = (
            isinstance(then, events.RunFailed)
            and isinstance(now, events.RunFailed)
            and then.error.type == now.error.type
        )
    return None if same else _unfit(dry, "outcome", f"the run {_says(then)}; now it {_says(now)}")


def _same_result(dry: DryRun, spec: WorkflowSpec, then: bytes, now: bytes) -> bool:
    try:
        if codec.unpack(then) == codec.unpack(now):
            return True
        values = (codec.decode(data, hints=_hints(dry, spec)) for data in (then, now))
        one, other = map(codec.digest, values)
    except (NotStorable, Unreadable):
        return False
    return one == other


def _says(ended: events.Event | None) -> str:
    match ended:
        case events.RunCompleted():
            return f"returns {codec.preview({'result': codec.plain(bytes(ended.result))})}"
        case events.RunFailed():
            return f"raises {ended.error.type}: {ended.error.message}"
        case _:
            return "ends in another way"


def _unfit(dry: DryRun, reason: MisfitReason, said: str) -> Unfit:
    fix = "Bring back the code that the run was made by"
    if dry.ended is None:
        fix = f"Bring back what the run started with, then: outlast resume {dry.run.run_id}"
    return Unfit(reason, said, fix)


def _unsure(dry: DryRun, what: str) -> Unfit:
    """In a resume a call might have returned that is not executed here, and the code gone on."""
    return Unfit(
        "undecided",
        f"not decided: {what} without having asked for {_left(dry)}; it might, once all that is "
        "not recorded yet has been executed, which a replay does not do",
        "See whether the code still makes these calls. If not, bring back what the run started "
        f"with, then: outlast resume {dry.run.run_id}",
    )


def _left(dry: DryRun) -> str:
    plural = "" if dry.left == 1 else "s"
    return f"{dry.left} recorded call{plural}, the first is {dry.first_left}"


def _undecided(timeout: float) -> Unfit:
    return Unfit(
        "undecided",
        f"not decided: the workflow was still running after {timeout:g} s",
        "What takes long belongs into a step; or give it more time: outlast replay --timeout S",
    )
