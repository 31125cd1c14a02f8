"""A step that swallows whatever is raised in it and returns `ok`, and a step behind it.

Options (JSON): `store`, `folder`, `colour`. The first step waits for the file `go`; once a kill or
that has ended its wait, it returns.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path

import outlast

options = json.loads(sys.argv[1])
folder = Path(options["folder"])
LOOK = 0.005


def log(line: str) -> None:
    with (folder / "log").open("a") as file:
        file.write(line + "\n")


@outlast.step
def swallow() -> str:
    log("swallow")
    never = threading.Event()
    try:
        while not (folder / "go").exists():
            never.wait(LOOK)
    except BaseException:
        log("swallowed")
    return "ok"


@outlast.step
async def aswallow() -> str:
    log("swallow")
    try:
        while not (folder / "go").exists():
            await asyncio.sleep(LOOK)
    except BaseException:
        log("swallowed")
    return "ok"


@outlast.step
def after(word: str) -> str:
    log("after")
    return word


@outlast.workflow
def plain() -> str:
    return after(swallow())


@outlast.workflow
async def asynchronous() -> str:
    return after(await aswallow())


if __name__ == "__main__":
    workflow = asynchronous if options["colour"] == "async" else plain
    try:
        said = {"result": outlast.run(workflow, run_id="r", store=options["store"])}
    except outlast.OutlastError as problem:
        said = {"error": type(problem).__name__}
    print(json.dumps(said))
