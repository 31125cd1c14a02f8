"""`verify` of runs that went on after they had ended."""

import contextlib
import sqlite3

import pytest

import outlast
from outlast.errors import RunStopped
from tests.control.stoppable import Stoppable


@outlast.step(effect="once")
def book() -> str:
    return "seat 7"


@book.undo
def _(result: str) -> None:
    """Nothing is left of it."""


@outlast.workflow(name="verified")
def flow(ends: str) -> str:
    book()
    if ends == "fails":
        raise ValueError("full")
    if ends == "waits":
        return outlast.wait_signal("go", type=str).result()
    return ends


def go_on(stoppable: Stoppable, ends: str) -> None:
    """Execute the run for as long as it goes on by itself."""
    with contextlib.suppress(RunStopped, outlast.RunFailed):
        outlast.run(flow, ends, run_id="r", store=stoppable.url, wait=False)


@pytest.mark.parametrize("ends", ["returns", "fails", "waits"])
@pytest.mark.parametrize("commands", [["kill"], ["kill", "revive"], ["undo"], ["kill", "undo"]])
def test_a_run_that_went_on_after_its_end_is_as_intact_as_any(
    stoppable: Stoppable, ends: str, commands: list[str]
) -> None:
    go_on(stoppable, ends)
    for command in commands:
        with contextlib.suppress(outlast.UsageError):  # not every command fits every status
            getattr(stoppable.client, command)("r")
        (verdict,) = stoppable.client.verify()
        assert verdict.ok, (command, verdict.problem)
    go_on(stoppable, ends)
    (verdict,) = stoppable.client.verify()
    assert verdict.ok, verdict.problem


def test_an_end_that_the_journal_does_not_tell_of_is_found_behind_a_revival(
    stoppable: Stoppable,
) -> None:
    go_on(stoppable, "waits")
    stoppable.client.kill("r")
    stoppable.client.revive("r")
    with contextlib.closing(sqlite3.connect(stoppable.folder / "store.db")) as store:
        store.execute("UPDATE runs SET status = 'killed'")
        store.commit()
    (verdict,) = stoppable.client.verify()
    assert not verdict.ok
    assert "it says killed" in (verdict.problem or "")
