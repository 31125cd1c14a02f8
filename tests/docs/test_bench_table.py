"""The benchmark's output in the README and the docs. What the figures are is nobody's test."""

import subprocess
import sys

import pytest

from bench.table import README, ROOT, Figure, Report, load, with_table


def test_the_readme_shows_what_was_measured_last() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme == with_table(readme, load()), "write it anew: .venv/bin/python -m bench.table"


def test_a_table_takes_the_place_of_the_one_before_and_of_nothing_else() -> None:
    before = "above\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nbelow\n"
    figure = Figure("one run", r"with a \1 in its name", 2396.1, "steps/s", 0.29, "≥ 0.5 x")
    report = Report("abc1234", "2026-11-29", "3.11.7", 2, 0.12, [figure])
    after = with_table(before, report)
    assert "old" not in after
    assert r"| one run | with a \1 in its name | 2,396 steps/s | 0.29 x | ≥ 0.5 x |" in after
    assert (after[:6], after[-6:]) == ("above\n", "below\n")
    assert with_table(after, report) == after


def test_a_readme_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="bench:begin"):
        with_table("no place", load())


def test_the_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs").glob("*.png")}
    assert {"cost-steps.png", "cost-turns.png"} <= set(sizes)
    assert [name for name, size in sizes.items() if size > 100_000] == []


@pytest.mark.soak
def test_the_benchmark_measures_every_row() -> None:
    bench = [sys.executable, "-m", "bench", "--scale", "0.02"]
    printed = subprocess.check_output(bench, cwd=ROOT, text=True).splitlines()
    rows = [line for line in printed[2:] if not line.startswith("| disk syncs")]  # by strace
    assert len(rows) == len([f for f in load().figures if not f.what.startswith("disk syncs")])
