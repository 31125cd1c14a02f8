"""Figures, and the one form in which they are printed, kept and shown in the README.

`python -m bench.table` writes the README's table anew from what `bench/latest.json` holds.
"""

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
LATEST = ROOT / "bench" / "latest.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

HEAD = "| what | that is | measured | ratio to raw | aim |\n|---|---|---|---|---|"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measurement: what, in a few words, its value, and what it should be.

    `ratio` is that of a rate to the raw commits beside it.
    """

    what: str
    means: str
    value: float
    unit: str
    ratio: float | None = None
    aim: str = ""


class Report(msgspec.Struct, frozen=True):
    """The figures of one `make bench`, with what has to be known to read them."""

    commit: str
    date: str
    python: str
    cpus: int
    sync_ms: float
    figures: list[Figure]


def begin(sync_seconds: float) -> Report:
    """A report without figures yet, of the code as it is now: it may change meanwhile."""
    return Report(
        commit=_commit(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        python=platform.python_version(),
        cpus=os.cpu_count() or 1,
        sync_ms=round(sync_seconds * 1e3, 3),
        figures=[],
    )


def _commit() -> str:
    """The commit of the code that is measured; what only writes it down does not count."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "bench/*.py")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} with changes" if changed else name


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def number(value: float) -> str:
    """Three digits that count, or all of those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(figure: Figure) -> str:
    measured = f"{number(figure.value)} {figure.unit}".strip()
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} x"
    cells = (figure.what, figure.means, measured, ratio, figure.aim)
    return f"| {' | '.join(cells)} |"


def markdown(report: Report) -> str:
    """The table with the line above it."""
    return (
        f"Measured on {report.date} at commit {report.commit}, with Python {report.python} and "
        f"{report.cpus} CPUs, where a sync of the disk took {report.sync_ms:.2f} ms:\n\n{HEAD}\n"
        + "\n".join(map(row, report.figures))
    )


def with_table(readme: str, report: Report) -> str:
    """The text of the README with this table in its place.

    Raises:
        ValueError: the README has no place for it.
    """
    place = re.compile(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", re.S)
    if not place.search(readme):
        raise ValueError(f"README.md has no lines {BEGIN} and {END}: put them back")
    return place.sub(lambda m: f"{m[1]}{markdown(report)}\n{m[2]}", readme)


def load() -> Report:
    """What was written last."""
    return msgspec.json.decode(LATEST.read_bytes(), type=Report)


def save(report: Report) -> None:
    """Keep it, and show it in the README."""
    LATEST.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    write_readme()


def write_readme() -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(with_table(text, load()), encoding="utf-8")


if __name__ == "__main__":
    write_readme()
