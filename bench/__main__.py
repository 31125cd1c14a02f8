"""`make bench`: what a durable step costs beside the least that the disk and SQLite allow.

Machines are noisy, so every figure stands beside a raw limit measured right before it: one-row
commits through `apsw` with `synchronous=FULL`, in a steady state (the WAL is recycled). Prints a
Markdown table; nothing here passes or fails.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

import outlast

PAYLOAD = {"step": 0, "tool": "search", "ok": True, "text": "lorem ipsum " * 20}
"""About 300 bytes, as a tool might return."""

REPEATS = 3


@dataclass(frozen=True)
class Figure:
    """One measurement: what, its value, and the same as a ratio to the raw limit beside it."""

    what: str
    value: str
    ratio: float | None = None


@outlast.step
def plain_step(i: int) -> dict[str, object]:
    return PAYLOAD


@outlast.step
async def async_step(i: int) -> dict[str, object]:
    return PAYLOAD


@outlast.workflow
def plain_run(n: int) -> None:
    for i in range(n):
        plain_step(i)


@outlast.workflow
async def async_run(n: int) -> None:
    for i in range(n):
        await async_step(i)


@outlast.workflow
async def stops_after(n: int) -> None:
    for i in range(n):
        await async_step(i)
    await outlast.sleep(0.05)


@outlast.workflow
async def chat(n: int) -> int:
    async for turn in outlast.turns(messages=[]):
        if len(turn.messages) == n:
            return n
        turn.messages.append("x" * 500)
    return 0


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DATA")) as name:
        yield Path(name)


def raw_commits(where: Path, seconds: float = 0.7) -> float:
    """One-row durable commits per second."""
    connection = apsw.Connection(str(where / "raw.db"))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER, b TEXT)")
    for i in range(1500):  # until the WAL is recycled
        connection.execute("INSERT INTO t VALUES (?, ?)", (i, "x" * 300))
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        connection.execute("INSERT INTO t VALUES (?, ?)", (done, "x" * 300))
        done += 1
    rate = done / (time.perf_counter() - start)
    connection.close()
    return rate


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def rate(what: str, steps: int, action: Callable[[str], object]) -> Figure:
    """Steps per second of `action`, a run or several on a fresh store."""
    rates, ratios = [], []
    for _ in range(REPEATS):
        with folder() as where:
            url = f"sqlite:///{where}/store.db"
            outlast.run(plain_run, 20, store=url)  # opened, and everything imported
            raw = raw_commits(where)
            rates.append(steps / timed(lambda url=url: action(url)))  # type: ignore[misc]
            ratios.append(rates[-1] / raw)
    return Figure(what, f"{statistics.median(rates):,.0f} steps/s", statistics.median(ratios))


async def together(runs: int, steps: int, url: str) -> None:
    starts: list[Awaitable[None]] = [
        outlast.execute(async_run, steps, store=url) for _ in range(runs)
    ]
    await asyncio.gather(*starts)


def replay(steps: int) -> Figure:
    """Time from the start of a resume until all recorded steps are replayed."""
    with folder() as where:
        url = f"sqlite:///{where}/store.db"
        with contextlib.suppress(outlast.RunWaiting):
            outlast.run(stops_after, steps, run_id="r", store=url, wait=False)
        time.sleep(0.1)
        took = timed(lambda: outlast.run(stops_after, steps, run_id="r", store=url))
        return Figure(
            f"replay of {steps:,} steps",
            f"{took * 1e3:,.0f} ms, {took / steps * 1e6:,.0f} µs a step",
        )


def size(steps: int) -> Figure:
    with folder() as where:
        url = f"sqlite:///{where}/store.db"
        outlast.run(plain_run, steps, store=url)
        per_step = store_bytes(where) / steps
        payload = len(str(PAYLOAD))
        return Figure("bytes a step beyond its payload", f"{per_step - payload:,.0f} B")


def turn_bytes(turns: int) -> Figure:
    with folder() as where:
        outlast.run(chat, turns, store=f"sqlite:///{where}/store.db")
        return Figure(f"{turns} turns of +500 bytes", f"{store_bytes(where) / 1e6:,.1f} MB")


def store_bytes(where: Path) -> int:
    connection = apsw.Connection(str(where / "store.db"))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return (where / "store.db").stat().st_size


def measure() -> Iterator[Figure]:
    with folder() as where:
        yield Figure("raw one-row commits", f"{raw_commits(where):,.0f} /s", 1.0)
    yield rate("one plain run", 2000, lambda url: outlast.run(plain_run, 2000, store=url))
    yield rate("one asynchronous run", 2000, lambda url: outlast.run(async_run, 2000, store=url))
    yield rate("100 runs at once", 4000, lambda url: asyncio.run(together(100, 40, url)))
    yield rate("1,000 runs at once", 10_000, lambda url: asyncio.run(together(1000, 10, url)))
    yield replay(5000)
    yield size(2000)
    yield turn_bytes(300)


def main() -> None:
    print("| what | value | ratio to raw |\n|---|---|---|")
    for figure in measure():
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} x"
        print(f"| {figure.what} | {figure.value} | {ratio} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
