"""A store that was copied is a store."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

import outlast


@outlast.step(cost=0.5)
def think(n: int) -> int:
    return n + 1


@outlast.workflow(budget=outlast.Budget(usd=1))
def flow(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = think(total)
    return total


def copied(folder: Path, how: str) -> str:
    """A copy of a store with a run that is held, in the rollback mode of SQLite."""
    url = f"sqlite:///{folder}/one.db"
    with pytest.raises(outlast.RunHeld):
        outlast.run(flow, 3, run_id="run", store=url)
    target = folder / "copy.db"
    with closing(apsw.Connection(f"{folder}/one.db")) as database:
        if how == "VACUUM INTO":
            database.execute("VACUUM INTO ?", (str(target),))
        else:
            with (
                closing(apsw.Connection(str(target))) as other,
                other.backup("main", database, "main") as backup,
            ):
                backup.step()
    with closing(apsw.Connection(str(target))) as database:
        if how == "backup":
            database.execute("PRAGMA journal_mode = delete").fetchall()
        assert database.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
    return f"sqlite:///{target}"


@pytest.mark.parametrize("how", ["VACUUM INTO", "backup"])
def test_a_copy_is_read_and_gone_on_with_at_once(tmp_path: Path, how: str) -> None:
    url = copied(tmp_path, how)
    client = outlast.Client(url)
    assert [run.run_id for run in client.runs()] == ["run"]
    client.add_budget("run", outlast.Budget(usd=1))
    assert outlast.run(flow, 3, run_id="run", store=url) == 3
    assert outlast.run(flow, 2, run_id="new", store=url) == 2
    assert all(verdict.ok for verdict in client.verify())
    original = outlast.Client(f"sqlite:///{tmp_path}/one.db").run("run")
    assert original.status == "held", "the copy is another store"


@pytest.mark.parametrize("how", ["VACUUM INTO", "backup"])
def test_the_first_thing_that_is_done_with_a_copy_may_be_a_run(tmp_path: Path, how: str) -> None:
    url = copied(tmp_path, how)
    assert outlast.run(flow, 2, run_id="new", store=url) == 2
    with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as database:
        assert database.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
