"""What is measured in processes of its own: `python -m bench.children ACTION ARGUMENTS`.

- `rate STEPS URL`: says that it is ready, waits for a line, prints the steps per second of a run;
- `run STEPS URL`: a run, for others to watch;
- `asleep RUNS URL`: prints the bytes of memory of a process in which so many runs wait.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import apsw
import psutil

import outlast
from bench.workflows import dozes, plain_run

ROOT = Path(__file__).parents[1]


def command(action: str, count: int, url: str) -> list[str]:
    return [sys.executable, "-m", "bench.children", action, str(count), url]


def start(action: str, count: int, url: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(action, count, url),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def rate(steps: int, url: str) -> None:
    outlast.run(plain_run, 1, store=url)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    outlast.run(plain_run, steps, store=url)
    print(steps / (time.perf_counter() - begun))


async def asleep(runs: int, url: str) -> None:
    await outlast.execute(dozes, 0.0, store=url)  # there is a store
    sleepers = [asyncio.create_task(outlast.execute(dozes, 3600.0, store=url)) for _ in range(runs)]
    store = apsw.Connection(url.removeprefix("sqlite:///"), apsw.SQLITE_OPEN_READONLY)
    waiting = "SELECT count(*) FROM runs WHERE status = 'waiting'"
    # The commits that tell of it are another thread's; there is nothing else to wait for.
    while store.execute(waiting).get < runs:
        for sleeper in sleepers:
            if sleeper.done():
                sleeper.result()  # it failed, and will not be seen waiting
        await asyncio.sleep(0.5)
    print(psutil.Process().memory_info().rss)
    for sleeper in sleepers:
        sleeper.cancel()
    await asyncio.gather(*sleepers, return_exceptions=True)


def main(action: str, count: int, url: str) -> None:
    match action:
        case "rate":
            rate(count, url)
        case "run":
            outlast.run(plain_run, count, store=url)
        case "asleep":
            asyncio.run(asleep(count, url))
        case _:
            raise SystemExit(f"no such action: {action}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
