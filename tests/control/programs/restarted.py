"""A step that is under way when its process is asked to end, under a budget and a retry limit.

It waits for the file `go`, and if that says `asked`, until its process was asked to end. Then it
ends as the file `how` says: `fails` (its own failure, for good), `stumbles` (a failure that is
retried), else well. With TEST_CUT in its environment the process gets SIGTERM, right `before` or
`after` the commit of the outcome, as that says.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import outlast
from outlast.engine.run import active_runs
from outlast.journal import OwnerWrite
from outlast.store.base import Item
from outlast.store.sqlite import SqliteDatabase

LOOK = 0.005


def says(folder: str, name: str) -> str:
    file = Path(folder, name)
    return file.read_text() if file.exists() else ""


def log(folder: str, line: str) -> None:
    with Path(folder, "log").open("a") as file:
        file.write(line + "\n")


def may_end(folder: str) -> bool:
    if says(folder, "go") == "asked":
        return any(run.stop is not None for run in active_runs())
    return Path(folder, "go").exists()


@outlast.step(effect="read", retry=outlast.Retry(attempts=2, initial=0))
def b(folder: str) -> str:
    log(folder, "b")
    Path(folder, f"in-body.{os.getpid()}").touch()
    while not may_end(folder):
        time.sleep(LOOK)
    how = says(folder, "how")
    if how == "fails":
        raise ValueError("its own failure")
    if how == "stumbles":
        Path(folder, "how").unlink()
        raise ConnectionError("for the moment")
    return "done"


@outlast.step
def c(folder: str, word: str) -> str:
    log(folder, "c")
    return word


@outlast.workflow(budget=outlast.Budget(calls=10))
def work(folder: str) -> str:
    try:
        word = b(folder)
    except ValueError as problem:
        word = str(problem)
    return c(folder, word)


def cut_in_the_commit(when: str) -> None:
    """Be asked to end by a signal that comes around the commit of the outcome of `b`."""
    transact = SqliteDatabase.transact

    def cutting(
        self: SqliteDatabase, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        completes = any(
            isinstance(item, OwnerWrite)
            and any(e.event.kind == "step.completed" and e.key == "b#0" for e in item.entries)
            for item in items
        )
        if completes and when == "before":
            os.kill(os.getpid(), signal.SIGTERM)
        results = transact(self, items, wait=wait)
        if completes and when == "after":
            os.kill(os.getpid(), signal.SIGTERM)
        return results

    SqliteDatabase.transact = cutting  # type: ignore[method-assign]


if cut := os.environ.get("TEST_CUT"):
    cut_in_the_commit(cut)
