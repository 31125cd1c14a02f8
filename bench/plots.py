"""`make bench-plots`: what a run costs against its length, as pictures in `docs/`.

Every point is a run of its own on a fresh store. The longest lengths are left out when the time
does not allow them, on a slow disk. The figures are printed too.
"""

import argparse
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.measures import Life, life
from bench.table import ROOT
from bench.workflows import stops_after, stops_in_turn

SECONDS = 210.0
"""For all runs together, about."""

MEASURED, IDEAL = "#1f5fa8", "#b0b0b0"

Points = dict[int, Life]


@dataclass(frozen=True)
class Panel:
    """One picture of three: what is shown, and how it should be.

    `ideal` is "level" if it should be the same at every length, "straight" if so for each step.
    """

    title: str
    value: Callable[[int, Life], float]
    ideal: Literal["level", "straight"]


@dataclass(frozen=True)
class Plot:
    """Three pictures of one kind of run, `docs/NAME.png`."""

    name: str
    unit: str  # what the length counts
    workflow: Callable[[int], Awaitable[None]]
    lengths: tuple[int, ...]
    panels: tuple[Panel, ...]


def _plots() -> Iterator[Plot]:
    stored = Panel("size of the store, MB", lambda n, cost: cost.stored / 1e6, "straight")
    yield Plot(
        "cost-steps",
        "steps",
        stops_after,
        (100, 300, 1000, 3000, 10_000, 30_000, 100_000),
        (
            Panel("running: µs a step", lambda n, cost: cost.running / n * 1e6, "level"),
            Panel("resume: ms", lambda n, cost: cost.resuming * 1e3, "straight"),
            stored,
        ),
    )
    yield Plot(
        "cost-turns",
        "turns",
        stops_in_turn,
        (100, 200, 500, 1000, 2000, 5000),
        (
            Panel("running: µs a turn", lambda n, cost: cost.running / n * 1e6, "level"),
            Panel("resume: ms", lambda n, cost: cost.resuming * 1e3, "level"),
            stored,
        ),
    )


def measure(plot: Plot, longest: int, deadline: float) -> Points:
    """The lengths that can be expected to be done before the deadline.

    Args:
        plot: which runs.
        longest: no longer ones.
        deadline: on the clock of `time.monotonic`, in seconds.
    """
    points: Points = {}
    a_step = 0.0  # seconds, by the length before
    for length in plot.lengths:
        if length > longest:
            break
        if time.monotonic() + a_step * length > deadline:
            print(f"{length:,} {plot.unit} left out: they would take too long on this disk")
            break
        begun = time.monotonic()
        cost = points[length] = life(plot.workflow, length)
        a_step = (time.monotonic() - begun) / length
        print(
            f"{length:>7,} {plot.unit}: {cost.running / length * 1e6:,.0f} µs each, "
            f"resume {cost.resuming * 1e3:,.1f} ms, {cost.stored:,} bytes",
            flush=True,
        )
    return points


def draw(plot: Plot, points: Points) -> None:
    """Write the PNG: on white whatever the page around it, and small."""
    figure = Figure(figsize=(11, 3.4), dpi=100, facecolor="white", layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(plot.panels)), plot.panels, strict=True):
        _draw_panel(axes, panel, points)
        axes.set_xlabel(plot.unit)
    # The version that drew it would make every picture differ.
    path = ROOT / "docs" / f"{plot.name}.png"
    figure.savefig(path, metadata={"Software": None}, pil_kwargs={"optimize": True})
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def _draw_panel(axes: Axes, panel: Panel, points: Points) -> None:
    lengths = sorted(points)
    values = [panel.value(n, points[n]) for n in lengths]
    if panel.ideal == "level":
        ideal = [min(values)] * len(lengths)
    else:
        least = min(value / n for n, value in zip(lengths, values, strict=True))
        ideal = [least * n for n in lengths]
    axes.plot(lengths, ideal, "--", color=IDEAL, linewidth=2, label="ideal: constant cost")
    axes.plot(lengths, values, "o-", color=MEASURED, linewidth=2, markersize=5, label="measured")
    axes.set(xscale="log", yscale="log", title=panel.title)
    # Both axes span at least a decade, or noise would look like a slope.
    low, high = min([*values, *ideal]), max([*values, *ideal])
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low / 1.5, middle / 10), max(high * 1.5, middle * 10))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axes.grid(color="#e4e4e4")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plots", description=__doc__)
    parser.add_argument("--longest", type=int, default=100_000, help="1000: a quick try")
    arguments = parser.parse_args()
    deadline = time.monotonic() + SECONDS
    # The many steps come last, so that they are what a slow disk leaves out.
    for plot in reversed(list(_plots())):
        points = measure(plot, arguments.longest, deadline)
        if points:
            draw(plot, points)


if __name__ == "__main__":
    main()
