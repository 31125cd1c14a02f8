"""Points around every statement of a commit, for child processes that are to die there."""

from collections import Counter
from collections.abc import Sequence

from outlast.store.base import Item, Row
from outlast.store.sqlite import SqliteDatabase, SqliteTx
from tests.effects.stage import Stage


def watch_commits(stage: Stage) -> None:
    """From here on the process comes by these points, for each event `E` that it appends, where
    `E` is `kind:key:n` for the n-th of this kind and key:

    `before-E`, `after-E` (its row), `committed-E`, `synced-E`.
    """
    seen: Counter[str] = Counter()
    latest: list[str] = []
    append, flush = SqliteTx.append, SqliteTx.flush
    transact, sync = SqliteDatabase.transact, SqliteDatabase.sync

    def append_watched(tx: SqliteTx, event: Row) -> None:
        name = f"{event[2]}:{event[3]}"
        seen[name] += 1
        latest.append(f"{name}:{seen[name]}")
        stage.reach(f"before-{latest[-1]}")
        append(tx, event)

    def flush_watched(tx: SqliteTx) -> None:
        pending = tx.pending
        flush(tx)
        for name in latest[-pending:] if pending else ():
            stage.reach(f"after-{name}")

    def transact_watched(
        database: SqliteDatabase, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        latest.clear()
        results = transact(database, items, wait=wait)
        for name in latest:
            stage.reach(f"committed-{name}")
        return results

    def sync_watched(database: SqliteDatabase) -> None:
        sync(database)
        for name in latest:
            stage.reach(f"synced-{name}")

    SqliteTx.append = append_watched  # type: ignore[method-assign]
    SqliteTx.flush = flush_watched  # type: ignore[method-assign]
    SqliteDatabase.transact = transact_watched  # type: ignore[method-assign]
    SqliteDatabase.sync = sync_watched  # type: ignore[method-assign]
