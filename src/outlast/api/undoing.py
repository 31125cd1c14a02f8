"""The operator's command to undo what a run has done."""

from outlast.records import RunRow, RunView
from outlast.store.writer import Store
from outlast.views import run_view
from outlast.worker.stores import OpenStore


class Undoing:
    """The part of `Client` that has runs undone."""

    _opened: OpenStore
    _store: Store

    def _row(self, run_id: str) -> RunRow:
        raise NotImplementedError

    def undo(self, run_id: str, to: str | None = None, *, by: str = "") -> RunView:
        """Ask for what a run has done to be undone: it is queued, and whoever executes it runs the
        compensations of its steps, the last one first, in place of its workflow.

        Args:
            run_id: an id, a prefix that only one id has, or `@last`.
            to: key of the step down to which, and with which, it is undone; by default all of it.
            by: who asked, for the record.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: the run has not ended and is not held, a process still executes it, or it
                has no such step.
            StoreError: the run's journal was altered, or cannot be written.
        """
        from outlast.control import BeginUndo  # not needed for `import outlast`

        row, world = self._row(run_id), self._store.world
        own = self._opened.heart.claims
        item = BeginUndo(row.run_id, world.wall(), world, own, to or "", by)
        return run_view(self._store, self._store.write(item, durable=True))
