"""`make bench`: what a durable step costs beside the least that the disk and SQLite allow.

Machines are noisy, so every figure stands beside a raw limit measured right before it: one-row
commits through `apsw` with `synchronous=FULL`, in a steady state (the WAL is recycled). Prints a
Markdown table; nothing here passes or fails.
"""

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import psutil

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


@outlast.workflow
async def stops_in_turn(n: int) -> None:
    """`n` turns with a step each, then a wait in the last one."""
    async for turn in outlast.turns(messages=[]):
        await async_step(len(turn.messages))
        if len(turn.messages) == n:
            await outlast.sleep(0.05)
            return
        turn.messages.append("x" * 500)


@outlast.workflow
async def dozes(seconds: float) -> None:
    await outlast.sleep(seconds)


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


async def beside_computing(runs: int, steps: int, url: str) -> None:
    """The same while a step in another thread computes."""
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            sum(range(1000))

    computing = asyncio.create_task(asyncio.to_thread(compute))
    try:
        await together(runs, steps, url)
    finally:
        done.set()
        await computing


def four_processes(steps: int) -> Iterator[Figure]:
    """Four processes with one run each on one file, beside one process alone."""
    with folder() as where:
        url = f"sqlite:///{where}/store.db"
        outlast.run(plain_run, 20, store=url)
        (alone,) = _in_processes(1, steps, url)
        each = _in_processes(4, steps, url)
        yield Figure("four processes on one file", f"{sum(each):,.0f} steps/s", sum(each) / alone)
        yield Figure("the slowest of them beside the fastest", "", min(each) / max(each))


def _in_processes(count: int, steps: int, url: str) -> list[float]:
    """Steps per second of each."""
    code = (
        "from bench.__main__ import *\nimport sys\n"
        f"outlast.run(plain_run, 1, store={url!r})\nprint(flush=True)\nsys.stdin.readline()\n"
        f"print({steps} / timed(lambda: outlast.run(plain_run, {steps}, store={url!r})))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    return [float(output) for output in _start_all(processes)]


def _start_all(processes: list["subprocess.Popen[str]"]) -> list[str]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate()[0] for process in processes]


def resume(what: str, workflow: Callable[..., Awaitable[None]], count: int) -> tuple[str, float]:
    """Seconds from the start of a resume until all that is recorded was replayed."""
    with folder() as where:
        url = f"sqlite:///{where}/store.db"
        with contextlib.suppress(outlast.RunWaiting):
            outlast.run(workflow, count, run_id="r", store=url, wait=False)
        time.sleep(0.1)
        return what, timed(lambda: outlast.run(workflow, count, run_id="r", store=url))


def replay(steps: int) -> Figure:
    what, took = resume(f"replay of {steps:,} steps", stops_after, steps)
    return Figure(what, f"{took * 1e3:,.0f} ms, {took / steps * 1e6:,.0f} µs a step")


def resume_turns(turns: int) -> Figure:
    what, took = resume(f"resume in turn {turns:,}", stops_in_turn, turns)
    return Figure(what, f"{took * 1e3:,.1f} ms")


def import_time() -> Figure:
    code = "import time; t = time.perf_counter(); import outlast; print(time.perf_counter() - t)"
    run = [sys.executable, "-c", code]
    times = [float(subprocess.check_output(run, text=True)) for _ in range(7)]
    return Figure("import outlast", f"{statistics.median(times) * 1e3:,.0f} ms")


def asleep(runs: int) -> Figure:
    """Memory of a process in which so many runs wait for a timer."""
    code = f"from bench.__main__ import *\nasyncio.run(doze({runs}))"
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    return Figure(f"{runs:,} runs asleep in one process", f"{float(output) / 1e6:,.0f} MB")


async def doze(runs: int) -> None:
    with folder() as where:
        url = f"sqlite:///{where}/store.db"
        sleepers = [
            asyncio.create_task(outlast.execute(dozes, 3600.0, store=url)) for _ in range(runs)
        ]
        client = outlast.Client(url)
        # The commits that tell of it are another thread's; there is nothing else to wait for.
        while len(client.runs(status="waiting", limit=-1)) < runs:  # noqa: ASYNC110
            await asyncio.sleep(1)
        print(psutil.Process().memory_info().rss)
        for sleeper in sleepers:
            sleeper.cancel()
        await asyncio.gather(*sleepers, return_exceptions=True)


def syncs(steps: int) -> Figure | None:
    """Disk syncs per step, counted by strace where there is one."""
    if shutil.which("strace") is None:
        return None
    with folder() as where:
        url, counts = f"sqlite:///{where}/store.db", []
        for number in (steps, 2 * steps):  # the difference is that of the steps alone
            code = f"from bench.__main__ import *\noutlast.run(plain_run, {number}, store={url!r})"
            trace = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", f"{where}/trace"]
            subprocess.run([*trace, sys.executable, "-c", code], check=True)
            counts.append((where / "trace").read_text().count("sync("))
    return Figure("disk syncs a step", f"{(counts[1] - counts[0]) / steps:,.2f}")


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
    yield rate(
        "100 runs beside a step that computes",
        2000,
        lambda url: asyncio.run(beside_computing(100, 20, url)),
    )
    yield from four_processes(1500)
    yield replay(10_000)
    yield resume_turns(2000)
    yield size(2000)
    yield turn_bytes(2000)
    yield from filter(None, [syncs(300)])
    yield import_time()
    yield asleep(10_000)


def main() -> None:
    print("| what | value | ratio to raw |\n|---|---|---|")
    for figure in measure():
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} x"
        print(f"| {figure.what} | {figure.value} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
