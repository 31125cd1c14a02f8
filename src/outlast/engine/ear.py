"""Hearing of an operator's commands in the process that executes the runs.

Commands are written to the store by whichever process. A thread looks at one row of it several
times a second; only if that has changed, it looks at the runs.
"""

import logging
import threading

import msgspec

from outlast.emergency import read_news
from outlast.engine.ending import begin_ending
from outlast.engine.run import EMERGENCY, KILLED, PAUSED, Run
from outlast.errors import StoreError
from outlast.records import StopView
from outlast.store.writer import Store

INTERVAL = 0.1
"""Seconds between two looks."""

_log = logging.getLogger("outlast")

_ENCODER = msgspec.json.Encoder()


class Ear:
    """Tells the runs that this process executes on one store what was decided about them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[str, Run] = {}
        self._new: set[str] = set()  # those that nobody has looked at yet
        self._known = 0  # number of the last command that was heard
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, run: Run) -> None:
        """Listen for a run, from now on: also for what came just before."""
        with self._changed:
            self._runs[run.run_id] = run
            self._new.add(run.run_id)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._listen, name="outlast-ear", daemon=True
                )
                self._thread.start()

    def remove(self, run: Run) -> None:
        """The run has left this process."""
        with self._changed:
            if self._runs.get(run.run_id) is run:  # it may be here anew already
                del self._runs[run.run_id]
                self._new.discard(run.run_id)

    def _listen(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(INTERVAL)
                if not self._runs:
                    self._thread = None
                    return
                new, self._new = self._new, set()
            try:
                news = read_news(self._store, self._known)
                if news.version == self._known and not new:
                    continue
                with self._changed:
                    about = self._runs if news.about is None else news.about | new
                    runs = [self._runs[run_id] for run_id in about if run_id in self._runs]
                if runs:
                    self._tell(runs, news.stop)
                self._known = news.version
            except StoreError:  # the lease cannot be renewed either, and the heart says so
                with self._changed:
                    self._new |= new

    def _tell(self, runs: list[Run], stop: StopView | None) -> None:
        ids = _ENCODER.encode([run.run_id for run in runs]).decode()
        rows = self._store.read("read_standings", run_ids=ids)
        standings = {run_id: (status, epoch) for run_id, status, epoch in rows}
        for run in runs:
            try:
                _tell_one(run, *standings.get(run.run_id, (None, None)), stop)
            except Exception:  # of whoever listens to this run; the others are to hear all the same
                _log.exception("run %s could not be told what was decided about it", run.run_id)


def _tell_one(run: Run, status: object, epoch: object, stop: StopView | None) -> None:
    if status == "killed":
        try:
            run.request_stop(KILLED)
        finally:
            ending = begin_ending(run)
        if run.keeps_owner:
            ending.left()
    elif status == "held" and epoch == run.epoch and not run.ended:
        run.request_stop(PAUSED)
    elif stop is not None:
        run.request_stop(EMERGENCY)
    else:
        run.hear()
