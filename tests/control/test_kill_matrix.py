"""The kill matrix in the docs is whole, and what it says holds: here with a short grace."""

from pathlib import Path

import pytest

from tests.checkers import check_all
from tools.kill_matrix import (
    COLOURS,
    DOCUMENT,
    HEAD,
    KINDS,
    MODES,
    Case,
    Measured,
    cases,
    measure,
    table,
    with_section,
)

GRACE = 0.2

INTERRUPTIBLE = {
    *(("wait", colour) for colour in COLOURS),
    *((kind, "sync") for kind in ("sleep", "stubborn", "session")),
    *((kind, "async") for kind in ("stubborn", "session", "daemon")),
}
"""What ends in a process that nobody ends."""


def cells(text: str) -> dict[tuple[str, str], list[str]]:
    """The cells of the table in a text, by what hangs and the colour."""
    rows = text[text.index(HEAD) + len(HEAD) :].strip().splitlines()
    split = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row[:1] == "|"]
    return {(row[0], row[1]): row[2:] for row in split}


def test_the_table_in_the_docs_has_every_cell() -> None:
    found = cells(DOCUMENT.read_text(encoding="utf-8"))
    assert set(found) == {(words, colour) for words in KINDS.values() for colour in COLOURS}
    empty = [where for where, row in found.items() if len(row) != 5 or not all(row)]
    assert empty == [], "measure it: .venv/bin/python -m tools.kill_matrix --write"


def test_the_table_in_the_docs_says_that_nothing_ran_on_where_we_end_it() -> None:
    for where, row in cells(DOCUMENT.read_text(encoding="utf-8")).items():
        run, worker, fenced, stopped, hard = row
        assert (run[-2:], worker[-2:], fenced) == (" s", " s", "at once"), where
        assert stopped.endswith(" s") or hard.endswith(" s"), where


def test_a_table_has_a_row_for_each_kind_and_colour_and_takes_the_place_of_the_one_before() -> None:
    results = [
        Measured(case, "killed", None if case.mode == "own" else 1.25, ("body",), 0.5)
        for case in cases()
    ]
    assert len(results) == len(KINDS) * len(COLOURS) * len(MODES)
    text = table(results)
    rows = cells(text)
    assert len(rows) == len(KINDS) * len(COLOURS)
    assert set(map(tuple, rows.values())) == {("1.25 s", "1.25 s", "at once", "no: body", "0.50 s")}
    place = "above\n<!-- kill-matrix:begin -->\nold\n<!-- kill-matrix:end -->\nbelow\n"
    assert "old" not in with_section(place, text)
    with pytest.raises(ValueError, match="kill-matrix:begin"):
        with_section("no place", text)


@pytest.mark.parametrize(
    "case",
    [
        Case("sum", "async", "run"),
        Case("session", "sync", "run"),
        Case("daemon", "async", "run"),
        Case("busy", "sync", "worker"),
        Case("daemon", "sync", "worker"),
        Case("wait", "async", "worker"),
        Case("regex", "async", "worker"),
        Case("wait", "sync", "own"),
        Case("stubborn", "async", "own"),
        Case("sum", "sync", "own"),
    ],
    ids=lambda case: f"{case.kind} {case.colour} {case.mode}",
)
def test_nothing_of_a_killed_run_runs_on(tmp_path: Path, case: Case) -> None:
    ends = case.mode != "own" or (case.kind, case.colour) in INTERRUPTIBLE
    result = measure(case, tmp_path, GRACE, *(() if ends else (0.5,)))
    assert result.status == "killed"
    ended = result.stopped is not None
    assert ended or not ends, f"{result.left} of it ran on"
    assert ended or result.hard is not None, f"{result.left} of it outlived --hard"
    assert result.confirmed, "the store does not say that nothing of it runs any more"
    assert not (tmp_path / "after").exists()
    check_all(f"sqlite:///{tmp_path}/store.db", "r")
