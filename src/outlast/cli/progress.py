"""What is said while a run is under way. It reads the store like any other observer.

The worker is watched through the store and not asked, so that what is shown is what is durable,
and a worker that hangs or dies takes no display with it.
"""

import threading
from collections.abc import Iterator
from types import TracebackType

from rich.status import Status
from rich.text import Text

from outlast.api.client import Client
from outlast.cli.family_words import map_words
from outlast.cli.output import Terminal, printable, short
from outlast.cli.wording import COLOURS, retries, retry, took
from outlast.errors import StoreError, UnknownRun
from outlast.records import FINAL, RunView, StepStatus, StepView
from outlast.world import World

EVERY = 0.1
"""Seconds between two looks at the store."""

COST = 5
"""A look that takes long (a journal of 100,000 events) is followed by a pause this much longer."""

UNDER_WAY: frozenset[StepStatus] = frozenset({"running", "interrupted"})

STOPPED = UNDER_WAY | {"in-doubt"}

REPLAYED: frozenset[StepStatus] = frozenset({"completed", "failed"})


class Story:
    """Turns one look at a run after another into lines that say what is new.

    Args:
        before: the run as it was before this command; None if it did not exist.
    """

    def __init__(self, before: RunView | None) -> None:
        self._told = _settled(before)
        # Told once a new owner has the run, and not if a live process keeps it.
        self._resumed_from = before.epoch if before and before.status not in FINAL else None

    def news(self, view: RunView) -> Iterator[Text]:
        """The lines for what happened since the last look."""
        for step in view.steps:
            settled = self._told.get(step.key) == _standing(step)
            if not settled:
                yield from self._resumed(view, f"continuing at {printable(step.key)}")
            if not settled and step.status not in UNDER_WAY:
                self._told[step.key] = _standing(step)
                yield _ended(step)

    def end(self, view: RunView) -> Iterator[Text]:
        """`news` at the end of the command."""
        yield from self.news(view)
        yield from self._resumed(view, _stop(view))

    def _resumed(self, view: RunView, what: str) -> Iterator[Text]:
        if self._resumed_from is None or view.epoch == self._resumed_from:
            return
        self._resumed_from = None
        known = [step for step in view.steps if self._told.get(step.key) == _standing(step)]
        replayed = sum(step.status in REPLAYED for step in known)
        count = f"{replayed} step{'' if replayed == 1 else 's'} replayed"
        yield Text(f"resuming {printable(view.run_id)}: {count}, {what}")


def _stop(view: RunView) -> str:
    """Where a run stands that did nothing new."""
    at = [step.key for step in view.steps if step.status in STOPPED]
    if at:
        return f"stopped at {printable(', '.join(at))}"
    return "no further step" if view.status in FINAL else f"{view.status} before any further step"


def now_doing(view: RunView) -> str:
    """The current steps and the counts of a run, in one line."""
    current = [
        retry(step) if retries(step) else printable(step.key) + _try(step)
        for step in view.steps
        if step.status == "running"
    ]
    parts = [printable(view.run_id), ", ".join(current) or view.status]
    parts += [map_words(one) for one in view.maps if not one.ended]
    parts.append(f"{view.finished} done")
    if view.turn is not None:
        parts.append(f"turn t{view.turn}")
    return " · ".join(parts)


def _try(step: StepView) -> str:
    return f" try {step.attempts}" if step.attempts > 1 else ""


def _standing(step: StepView) -> tuple[StepStatus, float]:
    """Its state. The time tells a dropped step from the one that was made in its place."""
    return step.status, step.started


def _settled(view: RunView | None) -> dict[str, tuple[StepStatus, float]]:
    steps = view.steps if view else []
    return {step.key: _standing(step) for step in steps if step.status not in UNDER_WAY}


def _ended(step: StepView) -> Text:
    line = Text(f"{printable(step.key)} ")
    line.append(step.status, style=COLOURS[step.status])
    if step.ended is not None:
        line.append(f" after {took(step)}")
    if step.attempts > 1:
        line.append(f", {step.attempts} tries")
    if step.refusals:
        line.append(f", {step.refusals} refused")
    if step.error:
        line.append(f": {short(step.error, 200)}")
    return line


class Progress:
    """Tells the story of a run from a thread, as long as the `with` block lasts.

    Args:
        store: URL of the store.
        run_id: the run, which may not exist yet.
        before: the run as it was before, see `Story`.
        terminal: where to tell it.
        live: whether to keep a moving line at the bottom, too.
    """

    def __init__(
        self, store: str, run_id: str, before: RunView | None, terminal: Terminal, live: bool
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._story = Story(before)
        self._terminal = terminal
        self._status = Status(Text(f"{run_id} · starting"), console=terminal) if live else None
        self._world = World()
        self._over = threading.Event()
        self._trouble: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="outlast-progress", daemon=True)

    def __enter__(self) -> "Progress":
        if self._status:
            self._status.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._status:
            self._status.stop()
        if self._trouble:
            # Only the display is affected: the run went on, and its own end is reported as usual.
            self._terminal.lines(
                [Text(f"outlast: no progress shown: {printable(str(self._trouble))}")]
            )

    def _work(self) -> None:
        try:
            client = Client(self._store)
            try:
                self._watch(client)
            finally:
                client.close()
        except Exception as error:
            self._trouble = error

    def _watch(self, client: Client) -> None:
        while True:
            last = self._over.is_set()
            before = self._world.boot()
            view = look(client, self._run_id)
            if view:
                self._terminal.lines(self._story.end(view) if last else self._story.news(view))
                if self._status:
                    self._status.update(Text(short(now_doing(view), self._terminal.width - 4)))
            if last:
                return
            pause = max(EVERY, COST * (self._world.boot() - before))
            self._world.pause(pause, self._over)


def look(client: Client, run_id: str) -> RunView | None:
    """The run, or None if it does not exist (yet) or the store is busy just now."""
    try:
        view = client.run(run_id)
    except UnknownRun:
        return None
    except StoreError as error:
        if error.problem == "busy":
            return None
        raise
    # An id that is new may be the beginning of another run's id.
    return view if view.run_id == run_id else None
