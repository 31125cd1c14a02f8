"""What a child process is to do, and what it says in the end."""

import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

import outlast
from outlast.engine.spec import workflow_spec
from outlast.worker.execution import Plan, run_plan
from outlast.worker.stores import get_store
from tests.crash.points import EveryCommit, Killer, Point


class Job(msgspec.Struct, frozen=True):
    """One life of a run.

    Attributes:
        program: name of a module beside this one.
        folder: where the store, the effect log and the outcome are.
        flavour: what kind of workflow the program runs; its own word.
        asynchronous: which colour the workflow has.
        point: where to die.
        tick: die around the commit of this number instead.
        resume: an operator asks for it.
    """

    program: str
    folder: str
    flavour: str = ""
    asynchronous: bool = False
    point: Point | None = None
    tick: int | None = None
    resume: bool = False
    run_id: str = "run"
    max_crashes: int = 3
    grace: float = 0.05

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    @property
    def effects(self) -> str:
        return f"{self.folder}/effects"

    @property
    def outcome(self) -> str:
        return f"{self.folder}/outcome"


class Outcome(msgspec.Struct, frozen=True):
    """How a life ended that was not cut short.

    Attributes:
        ended: `returned`, or the name of the exception's class.
        text: the exception's.
    """

    ended: str
    value: object = None
    reason: str = ""
    text: str = ""


def live(job: Job, workflow: Callable[..., object], *args: object) -> None:
    """Run `workflow` as the job says and write down how that ended."""
    settings = outlast.Settings(max_crashes=job.max_crashes, grace=job.grace)
    try:
        if job.resume:
            spec = workflow_spec(workflow)
            assert spec is not None
            plan = Plan(spec, job.run_id, settings=settings, resume=True)
            value = run_plan(plan, get_store(job.url))
        else:
            value = outlast.run(
                workflow, *args, run_id=job.run_id, store=job.url, settings=settings
            )
        outcome = Outcome("returned", value)
    except outlast.OutlastError as exc:
        text = "".join(traceback.format_exception(exc))
        outcome = Outcome(type(exc).__name__, reason=getattr(exc, "reason", ""), text=text)
    Path(job.outcome).write_bytes(msgspec.json.encode(outcome))


def killer_of(job: Job) -> Killer:
    """The armed killer of a job."""
    if job.tick is not None:
        EveryCommit(job.tick).arm()
    killer = Killer(job.point)
    killer.arm()
    return killer
