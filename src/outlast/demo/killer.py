"""Starts the agent's process again and again, and kills it in the middle of its work.

A moment to kill is chosen by progress, not by the clock, so that a slow machine sees the same show.
"""

import random
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outlast import Client
from outlast.demo.agent import Job
from outlast.demo.child import RUN_ID
from outlast.demo.children import Children, DemoFailed, end
from outlast.demo.shop import start_desk
from outlast.errors import UnknownRun
from outlast.records import RunView, StepView, StoredEvent
from outlast.world import World

POLL = 0.01
"""Seconds between two looks at the store."""

INSIDE = ("send_reply", "refund", "think")
"""Steps worth dying in: a mail that may be out, a payment that may be booked, a model's answer."""

PATIENCE = 20
"""Finished steps after which a kill no longer waits for the step it was meant for."""


OPEN = ("running", "interrupted", "in-doubt")
"""What the status of a step can be after its process was killed in it."""


@dataclass(frozen=True)
class Aim:
    """When to kill: once `after` steps have finished, in a step named `inside`, a little later.

    Attributes:
        delay: how much later, in seconds.
    """

    after: int
    inside: str
    delay: float


@dataclass(frozen=True)
class Kill:
    """A kill that landed: what had finished by then and what was under way.

    Attributes:
        mail: number of the mail that was being worked on.
    """

    pid: int
    mail: int
    finished: int
    in_flight: tuple[StepView, ...]


def plan(dice: random.Random, kills: int, steps: int) -> list[Aim]:
    """Choose the moments, one in each equal part of the work.

    Args:
        kills: how many.
        steps: about how many steps the whole run has.
    """
    # The last tenth is left alone: each kill has to land while work remains.
    part = steps * 0.9 / kills
    inside = [INSIDE[number % len(INSIDE)] for number in range(kills)]
    dice.shuffle(inside)
    return [
        Aim(max(2, int(part * (number + dice.random() * 0.8))), name, dice.uniform(0, 0.04))
        for number, name in enumerate(inside)
    ]


class Stage:
    """One run of the desk in a process of its own that may be killed.

    Args:
        store: URL of the run's store.
        limit: seconds after which the show is given up.
        on_look: called with the run's state at every look, to show it.
    """

    def __init__(
        self,
        children: Children,
        store: str,
        job: Job,
        limit: float,
        on_look: Callable[[RunView], None],
    ) -> None:
        self._children = children
        self._store = store
        self._job = job
        self._world = World()
        self._end = self._world.boot() + limit
        self._client = Client(store)
        self._on_look = on_look

    def play(self, aims: Sequence[Aim], on_kill: Callable[[Kill], None]) -> RunView:
        """Run the desk to its end, killed at every aim on the way.

        Returns:
            The finished run.

        Raises:
            DemoFailed: the run did not complete, or not in time.
        """
        for aim in aims:
            kill = self._start_and_kill(aim)
            if kill is None:
                break
            on_kill(kill)
        process = self._start()
        while process.poll() is None:
            self._look()
        view = self._look()
        if view is None or view.status != "completed":
            raise DemoFailed(f"the agent gave up; see {self._children.log('child')}")
        return view

    def close(self) -> None:
        """Let go of the store."""
        self._client.close()

    def journal(self) -> list[StoredEvent]:
        """All events of the run."""
        return self._client.journal(RUN_ID)

    def verified(self) -> str | None:
        """What is wrong with the run's journal; None if it is intact."""
        return next((v.problem or "altered" for v in self._client.verify(RUN_ID) if not v.ok), None)

    def _start(self) -> "subprocess.Popen[str]":
        return start_desk(self._children, self._store, self._job, RUN_ID)

    def _start_and_kill(self, aim: Aim) -> Kill | None:
        """None if the run was over before the kill could land."""
        process = self._start()
        begun: int | None = None
        while process.poll() is None:
            view = self._look()
            if view is None or view.interrupted:
                continue  # the new process has not taken the run over yet
            finished = _finished(view)
            begun = finished if begun is None else begun
            # At least one step must finish between two kills: a step that dies with its process
            # again and again is held as a crash loop, and that is another show.
            if finished > begun and finished >= aim.after and _hit(view, aim, finished):
                self._world.pause(aim.delay)
                break
        end(process)
        if process.returncode != -signal.SIGKILL:
            return None
        view = self._look()
        if view is None or view.status == "completed":
            return None
        in_flight = tuple(step for step in view.steps if step.status in OPEN)
        return Kill(process.pid, mail_in_hand(view), _finished(view), in_flight)

    def _look(self) -> RunView | None:
        self._world.pause(POLL)
        if self._world.boot() > self._end:
            raise DemoFailed("the show took too long and was given up")
        try:
            view = self._client.run(RUN_ID)
        except UnknownRun:
            return None  # the agent's process is still starting
        self._on_look(view)
        return view


def mail_in_hand(view: RunView) -> int:
    """Number of the mail that is being worked on, from 1; 0 before the first."""
    return sum(step.name == "read_mail" and step.status == "completed" for step in view.steps)


def _finished(view: RunView) -> int:
    return sum(step.status == "completed" for step in view.steps)


def _hit(view: RunView, aim: Aim, finished: int) -> bool:
    running = {step.name for step in view.steps if step.status == "running"}
    return aim.inside in running or finished >= aim.after + PATIENCE
