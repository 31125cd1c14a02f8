"""What must hold for the tables of signals and questions: they say what the journals say."""

from contextlib import suppress

from outlast import cuts
from outlast.mailbox import rebuild
from outlast.store.base import Row, Tx
from outlast.views import read_events
from outlast.worker.stores import get_store


class _Compared(Exception):
    """Rolls back what was rebuilt."""


class _Compare:
    """Builds the tables of a run anew, and says how they differ from what they were."""

    def __init__(self, url: str, run_id: str) -> None:
        self.run_id = run_id
        self.rows = cuts.split(read_events(get_store(url).store, run_id))[0]
        self.before: list[list[Row]] = []
        self.after: list[list[Row]] = []

    def apply(self, tx: Tx) -> None:
        self.before = self._read(tx)
        rebuild(tx, self.run_id, self.rows)
        self.after = self._read(tx)
        raise _Compared

    def _read(self, tx: Tx) -> list[list[Row]]:
        seqs = [row.seq for row in self.rows if row.kind == "signal.sent"]
        opened = [row for row in self.rows if row.kind == "wait.opened" and row.epoch]
        keys = sorted({str(row.key) for row in opened})  # without what a fork has copied
        return [
            *(tx.run("read_signal", run_id=self.run_id, seq=seq) for seq in seqs),
            *(tx.run("read_wait", run_id=self.run_id, key=key) for key in keys),
        ]


def check_tables(url: str) -> None:
    """The tables of every run are what its journal says, without what was dropped."""
    store = get_store(url).store
    for run_id, *_ in store.read("list_runs", status=None, workflow=None, limit=-1):
        compare = _Compare(url, str(run_id))
        with suppress(_Compared):
            store.write(compare, durable=True)
        assert compare.before == compare.after
