"""Points around every statement of a commit, for child processes that are to die there."""

from collections import Counter
from collections.abc import Sequence

from outlast.store.base import Item, Row, SqlValue
from outlast.store.sqlite import SqliteDatabase, SqliteTx
from tests.effects.stage import Stage


def watch_commits(stage: Stage) -> None:
    """From here on the process comes by these points, for each event `E` that it appends, where
    `E` is `kind:key:n` for the n-th of this kind and key:

    `before-E`, `after-E` (its row), `moved-E` (the run's row), `committed-E`.
    """
    seen: Counter[str] = Counter()
    latest = ""
    run, transact = SqliteTx.run, SqliteDatabase.transact

    def run_watched(tx: SqliteTx, query: str, /, **params: SqlValue) -> list[Row]:
        nonlocal latest
        if query == "append_event":
            name = f"{params['kind']}:{params['key']}"
            seen[name] += 1
            latest = f"{name}:{seen[name]}"
            stage.reach(f"before-{latest}")
        rows = run(tx, query, **params)
        if latest and query in ("append_event", "advance_run"):
            stage.reach(f"{'after' if query == 'append_event' else 'moved'}-{latest}")
        return rows

    def transact_watched(
        database: SqliteDatabase, items: Sequence[Item[object]], *, durable: bool
    ) -> list[object | Exception]:
        nonlocal latest
        latest = ""
        results = transact(database, items, durable=durable)
        if latest:
            stage.reach(f"committed-{latest}")
        return results

    SqliteTx.run = run_watched  # type: ignore[method-assign, assignment]
    SqliteDatabase.transact = transact_watched  # type: ignore[method-assign, assignment]
