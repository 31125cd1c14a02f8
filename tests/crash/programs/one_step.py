"""first, target, last: the target has the effect that the job's flavour names."""

import asyncio
from collections.abc import Callable
from typing import Any

import outlast
from outlast import Done, NotDone, Step, Unknown, step, workflow
from outlast.records import Effect
from tests.checkers import read_effects, record_effect
from tests.crash.points import Killer
from tests.crash.programs.job import Job, killer_of, live

RESULT = {"first": "first 1", "target": "target 2", "last": "last 3 after target 2"}
"""What the workflow returns, whatever happens on the way."""

FLAVOURS: dict[str, Effect | None] = {
    "read": "read",
    "idempotent": "idempotent",
    "undeclared": None,
    "once, reconciled": "once",
    "once, unknown": "once",
    "once": "once",
}
"""The kinds of targets, and their declared effects."""


def use(job: Job) -> None:
    """Let the steps do what this job says."""
    Steps.current = Steps(job, killer_of(job))


def main(job: Job) -> None:
    use(job)
    live(job, asynchronous if job.asynchronous else plain, job.flavour)


class Steps:
    """The three steps in both colours."""

    current: "Steps"

    def __init__(self, job: Job, killer: Killer) -> None:
        self._job = job
        self._killer = killer
        self.first = self._make("first", "read")
        self.last = self._make("last", "read")
        self.target = self._make("target", FLAVOURS[job.flavour])
        if job.flavour == "once, reconciled":
            self.target.reconcile(self._look)
        elif job.flavour == "once, unknown":
            self.target.reconcile(self._shrug)

    def _make(self, name: str, effect: Effect | None) -> "Step[..., Any]":
        def body(*words: object) -> str:
            self._killer.reach("body", name)
            record_effect(self._job.effects)
            self._killer.reach("effect", name)
            return " ".join(map(str, (name, *words)))

        async def later(*words: object) -> str:
            await asyncio.sleep(0)
            return body(*words)

        fn: Callable[..., object] = later if self._job.asynchronous else body
        return step(fn, name=name, effect=effect)

    def _look(self, *words: object) -> object:
        """Reconcile by looking at the world outside."""
        self._killer.reach("reconcile", "target")
        key = outlast.idempotency_key()
        if any(effect.idempotency == key for effect in read_effects(self._job.effects)):
            return Done("target 2")
        return NotDone()

    def _shrug(self, *words: object) -> object:
        self._killer.reach("reconcile", "target")
        return Unknown("the other side does not answer")


@workflow
def plain(flavour: str) -> dict[str, str]:
    steps = Steps.current
    first = steps.first(1)
    target = steps.target(2)
    return {"first": first, "target": target, "last": steps.last(3, "after", target)}


@workflow
async def asynchronous(flavour: str) -> dict[str, str]:
    steps = Steps.current
    first = await steps.first(1)
    target = await steps.target(2)
    return {"first": first, "target": target, "last": await steps.last(3, "after", target)}
