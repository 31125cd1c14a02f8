"""How each figure is measured. Every one is a median, or a count."""

import asyncio
import contextlib
import json
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

import outlast
from bench import children
from bench.limits import RawCommits, slow_disk
from bench.workflows import WAIT, async_run, bare_run, guarded_run, payload, plain_run

REPEATS = 3


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty one, on the disk that `BENCH_DATA` names or on that of the temporary files."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DATA")) as name:
        yield Path(name)


def url_of(where: Path) -> str:
    return f"sqlite:///{where}/store.db"


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def stored(where: Path) -> int:
    """Bytes of the store in a folder, its log folded in."""
    connection = apsw.Connection(str(where / "store.db"))
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    assert not busy, "somebody still reads the store, so its log is not all in the file"
    return (where / "store.db").stat().st_size


@dataclass(frozen=True)
class Rate:
    """Steps per second, and the same as a ratio to raw commits."""

    steps: float
    ratio: float


def rate(steps: int, action: Callable[[str], object], delay: float = 0.0) -> Rate:
    """How fast steps are, on a fresh store each time.

    Raw commits are measured before and after, since a disk is fast and slow by turns.

    Args:
        steps: how many `action` does.
        action: a run, or several at once; is given the URL of the store.
        delay: how much slower than it is the disk is made to be, in seconds a sync.
    """
    rates, ratios = [], []
    for _ in range(REPEATS):
        with folder() as where, slow_disk(delay):
            url = url_of(where)
            outlast.run(plain_run, 20, store=url)  # opened, and everything imported
            raw = RawCommits(where, delay)
            before = raw.rate()
            start = time.perf_counter()
            action(url)
            rates.append(steps / (time.perf_counter() - start))
            ratios.append(rates[-1] / statistics.mean([before, raw.rate()]))
            raw.close()
    return Rate(statistics.median(rates), statistics.median(ratios))


def guarded(steps: int) -> float:
    """How many times as long a step takes that has retries, a breaker and a budget as one that has
    none, the two by turns on one store."""
    with folder() as where:
        url = url_of(where)
        outlast.run(guarded_run, 50, store=url)
        ratios = []
        for _ in range(REPEATS + 2):
            bare = timed(lambda: outlast.run(bare_run, steps, store=url))
            ratios.append(timed(lambda: outlast.run(guarded_run, steps, store=url)) / bare)
    return statistics.median(ratios)


async def together(runs: int, steps: int, url: str) -> None:
    """So many runs at once in one event loop."""
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


def in_processes(count: int, steps: int, url: str) -> list[float]:
    """Steps per second of each of so many processes that share a store."""
    processes = [children.start("rate", steps, url) for _ in range(count)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [float(process.communicate()[0]) for process in processes]


@dataclass(frozen=True)
class Life:
    """What a run of some length cost."""

    running: float  # seconds, to where it was left
    resuming: float  # seconds, until it was there again
    stored: int  # bytes


def life(workflow: Callable[[int], Awaitable[None]], length: int) -> Life:
    """Leave a run in the wait at its end, and resume it.

    Args:
        workflow: waits after so many steps or turns.
        length: how many.
    """
    with folder() as where:

        def until_wait() -> None:
            with contextlib.suppress(outlast.RunWaiting):
                outlast.run(workflow, length, run_id="r", store=url_of(where), wait=False)

        running = timed(until_wait)
        size = stored(where)
        time.sleep(2 * WAIT)  # so that a resume has nothing to wait for
        resumed = []
        for number in range(REPEATS):
            copy = where / str(number)
            copy.mkdir()
            shutil.copy(where / "store.db", copy)
            resumed.append(
                timed(lambda: outlast.run(workflow, length, run_id="r", store=url_of(copy)))  # noqa: B023
            )
        return Life(running, statistics.median(resumed), size)


def bytes_of(workflow: Callable[[int], object], length: int) -> int:
    """Bytes that a whole run leaves."""
    with folder() as where:
        outlast.run(workflow, length, store=url_of(where))
        return stored(where)


def bytes_beyond_payload(steps: int) -> float:
    """Bytes a step beyond its result as JSON, between two lengths: a store has some that no step
    has caused."""
    more = bytes_of(plain_run, 2 * steps) - bytes_of(plain_run, steps)
    results = (json.dumps(payload(i), separators=(",", ":")) for i in range(steps, 2 * steps))
    return (more - sum(map(len, results))) / steps


def syncs(steps: int) -> float | None:
    """Disk syncs a step, counted by strace where there is one."""
    if shutil.which("strace") is None:
        return None
    counts = []
    for number in (steps, 2 * steps):  # the difference is that of the steps alone
        with folder() as where:
            trace = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", f"{where}/trace"]
            run = children.command("run", number, url_of(where))
            subprocess.run([*trace, *run], cwd=children.ROOT, check=True)
            counts.append((where / "trace").read_text().count("sync("))
    return (counts[1] - counts[0]) / steps


def import_time() -> float:
    """Seconds of `import outlast` in a fresh interpreter that has it compiled, as pip leaves it."""
    code = "import time; t = time.perf_counter(); import outlast; print(time.perf_counter() - t)"
    run = [sys.executable, "-c", code]
    with folder() as where:
        env = os.environ | {"PYTHONPYCACHEPREFIX": str(where), "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run(run, env=env, check=True, capture_output=True)
        times = [float(subprocess.check_output(run, env=env, text=True)) for _ in range(7)]
    return statistics.median(times)


def memory_asleep(runs: int) -> float:
    """Bytes of a process in which so many runs wait for a timer."""
    with folder() as where:
        run = children.command("asleep", runs, url_of(where))
        return float(subprocess.check_output(run, cwd=children.ROOT, text=True))
