"""Looks at the journals of a store while others write to them, and tells what is new."""

from collections.abc import Sequence

from outlast import Client, StoredEvent
from outlast.demo.children import DemoFailed
from outlast.errors import UnknownRun
from outlast.world import World

POLL = 0.02
"""Seconds between two looks at the store."""

LIMIT = 120.0
"""Seconds after which a scene is given up."""

STORE = "@store"
"""Where the journal of the store as a whole is found, which has what happened to breakers."""


class Watch:
    """Reads journals again and again.

    Args:
        store: URL of the store.
        run_ids: whose journals; `STORE` for that of the store itself.
    """

    def __init__(self, store: str, run_ids: Sequence[str]) -> None:
        self.client = Client(store)
        self._read = dict.fromkeys(run_ids, 0)
        self._world = World()
        self._end = self._world.boot() + LIMIT

    def news(self) -> list[StoredEvent]:
        """Events that were not there at the last look, oldest first, after a short pause.

        Raises:
            DemoFailed: it all takes too long.
        """
        self._world.pause(POLL)
        if self._world.boot() > self._end:
            raise DemoFailed("the scene took too long and was given up")
        found: list[StoredEvent] = []
        for run_id, read in self._read.items():
            events = self.journal(run_id)
            self._read[run_id] = len(events)
            found += events[read:]
        return sorted(found, key=lambda event: event.at)

    def journal(self, run_id: str) -> list[StoredEvent]:
        """All events of a run, or of the store; none if there is no such run yet."""
        try:
            return self.client.journal(run_id)
        except UnknownRun:
            return []

    def problem(self, run_id: str) -> str | None:
        """What is wrong with the hash chain of a journal; None if it is intact."""
        verdicts = self.client.verify(run_id)
        return next((v.problem or "altered" for v in verdicts if not v.ok), None)
