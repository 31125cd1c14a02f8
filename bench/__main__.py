"""`make bench`: what a durable step costs beside the least that the disk and SQLite allow.

Machines are noisy, so every rate stands beside a raw limit measured right before and after it:
one-row commits through `apsw` with `synchronous=FULL`, in a steady state (the WAL is recycled).
Prints a Markdown table; nothing here passes or fails.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator

import outlast
from bench.limits import RawCommits, sync_time
from bench.measures import (
    beside_computing,
    bytes_beyond_payload,
    bytes_of,
    folder,
    guarded,
    import_time,
    in_processes,
    life,
    memory_asleep,
    rate,
    syncs,
    together,
    url_of,
)
from bench.table import HEAD, Figure, begin, row, save
from bench.workflows import async_run, grows, plain_run, stops_after, stops_in_turn

Sized = Callable[[int], int]


def rates(sized: Sized) -> Iterator[Figure]:
    with folder() as where:
        raw = RawCommits(where)
        yield Figure(
            "raw", "a bare script that commits one row at a time", raw.rate(1.0), "/s", 1.0
        )
        raw.close()
    for what, workflow in (("one plain run", plain_run), ("one asynchronous run", async_run)):
        for delay in (0.0, 0.002):
            n = sized(500 if delay else 2000)
            found = rate(n, lambda url: outlast.run(workflow, n, store=url), delay)  # noqa: B023
            name = f"{what}, slow disk" if delay else what
            means = "every sync takes 2 ms longer, the raw one too" if delay else f"{n:,} steps"
            aim = "≥ 0.9 x" if delay else "≥ 0.5 x"
            yield Figure(name, means, found.steps, "steps/s", found.ratio, aim)
    for runs, each in ((100, 40), (1000, 10)):
        runs = sized(runs)
        found = rate(runs * each, lambda url: asyncio.run(together(runs, each, url)))  # noqa: B023
        means = f"{each} steps each, in one process"
        yield Figure(f"{runs:,} runs at once", means, found.steps, "steps/s", found.ratio, "≥ 3 x")
    runs = sized(100)
    found = rate(runs * 20, lambda url: asyncio.run(beside_computing(runs, 20, url)))
    what, means = f"{runs:,} runs beside a busy step", "another thread computes all the time"
    yield Figure(what, means, found.steps, "steps/s", found.ratio, "≥ 0.3 x")


def guards(sized: Sized) -> Iterator[Figure]:
    what, means = "a guarded step", "with retry, breaker and money budget, beside a bare one"
    yield Figure(what, means, guarded(sized(500)), "x the time", aim="≤ 1.3 x")


def processes(sized: Sized) -> Iterator[Figure]:
    with folder() as where:
        (alone,) = in_processes(1, sized(1500), url_of(where))
        each = in_processes(4, sized(1500), url_of(where))
    what, means = "four processes on one file", "all together, beside one process alone"
    yield Figure(what, means, sum(each) / alone, "x one alone", aim="≥ 1 x")
    what, means = "the slowest of the four", "beside the fastest"
    yield Figure(what, means, min(each) / max(each), "x the fastest", aim="≥ 0.33 x")


def lengths(sized: Sized) -> Iterator[Figure]:
    n = sized(10_000)
    took = life(stops_after, n).resuming
    what, means = f"replay of {n:,} steps", "a resume, until it is where the run was left"
    yield Figure(what, means, took * 1e3, "ms", aim="≤ 250 ms")
    yield Figure("the same, a step", "", took / n * 1e6, "µs", aim="≤ 15 µs")
    n = sized(2000)
    in_turn = life(stops_in_turn, n)
    what, means = f"resume in turn {n:,}", "an agent loop with a step and 500 bytes a turn"
    yield Figure(what, means, in_turn.resuming * 1e3, "ms", aim="≤ 10 ms")
    what, means = f"bytes of its {n:,} turns", "each message is stored as a result and in the state"
    yield Figure(what, means, in_turn.stored / 1e6, "MB", aim="≤ 3.5 MB")
    what, means = f"bytes of {n:,} turns", "state that grows by 500 bytes a turn, no steps"
    yield Figure(what, means, bytes_of(grows, n) / 1e6, "MB", aim="≤ 3.5 MB")
    what, means = "bytes a step", "beyond its result as JSON"
    yield Figure(what, means, bytes_beyond_payload(sized(2000)), "B", aim="≤ 300 B")


def costs(sized: Sized) -> Iterator[Figure]:
    counted = syncs(sized(300))
    if counted is not None:
        yield Figure("disk syncs a step", "counted by strace", counted, "", aim="1")
    what, means = "`import outlast`", "in a fresh interpreter, compiled"
    yield Figure(what, means, import_time() * 1e3, "ms", aim="≤ 150 ms")
    runs = sized(10_000)
    what, means = f"{runs:,} runs asleep", "memory of the one process in which they wait"
    yield Figure(what, means, memory_asleep(runs) / 1e6, "MB", aim="≤ 200 MB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into bench/latest.json and README.md")
    parser.add_argument("--scale", type=float, default=1.0, help="0.05: a quick try, less exact")
    arguments = parser.parse_args()
    scale: float = arguments.scale
    if arguments.write and scale != 1:
        parser.error("only figures of the full size are written")

    def sized(n: int) -> int:
        return max(round(n * scale), 1)

    with folder() as where:
        report = begin(sync_time(where))
    print(HEAD)
    for part in (rates, guards, processes, lengths, costs):
        for figure in part(sized):
            print(row(figure), flush=True)
            report.figures.append(figure)
    if arguments.write:
        save(report)


if __name__ == "__main__":
    main()
