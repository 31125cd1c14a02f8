"""A run that is somewhere when an operator thinks of it.

Options (JSON): `store`, `folder`, `run_id`; `where` the run is:

- `await`: in a step that awaits for ever;
- `timer`: in a timer of an hour;
- `retry`: between two attempts, an hour apart;
- `gate`: in a step that waits for the file `go`;
- `deaf`: the same, in a `once` step that swallows whatever is raised in it;
- `doubt`: it is not known whether a `once` step has happened;
- `orphan`: in a step that has started a process in a session of its own, whose pid it writes;

`colour` (async or plain); `grace`; `wait`: for timers and retries.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import outlast

given = [word for word in sys.argv[1:] if word.startswith("{")]
# A worker is not given them: it has those of the program that has started the run.
options = json.loads(given[0] if given else os.environ["STOPPABLE"])
folder = Path(options["folder"])
plain = options.get("colour", "async") == "plain"
HOUR = 3600.0
LOOK = 0.005


def log(line: str) -> None:
    with (folder / "log").open("a") as file:
        file.write(line + "\n")


def enter() -> None:
    """Say that the body runs."""
    log("body")
    (folder / f"in-body.{os.getpid()}").touch()


def gate_open() -> bool:
    return (folder / "go").exists()


async def forever() -> None:
    enter()
    await asyncio.Event().wait()


def gated() -> str:
    enter()
    while not gate_open():
        time.sleep(LOOK)
    return "gated"


async def gated_async() -> str:
    enter()
    while not gate_open():
        await asyncio.sleep(LOOK)
    return "gated"


def deaf() -> str:
    enter()
    while not gate_open():
        try:
            time.sleep(LOOK)
        except BaseException:
            log("swallowed")
    return "late word"


def fail() -> None:
    log("body")
    raise ConnectionError("try again")


def send() -> None:
    log("body")
    raise ConnectionResetError("nobody knows")


def start_orphan() -> None:
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    (folder / "orphan").write_text(str(child.pid))
    enter()
    child.wait()


def last() -> str:
    log("last")
    return "end"


retry = outlast.Retry(attempts=3, initial=HOUR, maximum=HOUR, jitter="none")
BODIES = {
    "await": outlast.step(name="act", effect="read")(forever),
    "gate": outlast.step(name="act", effect="read")(gated if plain else gated_async),
    "deaf": outlast.step(name="act", effect="once")(deaf),
    "retry": outlast.step(name="act", effect="read", retry=retry)(fail),
    "doubt": outlast.step(name="act", effect="once")(send),
    "orphan": outlast.step(name="act", effect="read")(start_orphan),
}
last = outlast.step(effect="read")(last)
where = options["where"]


async def act_async() -> object:
    if where == "timer":
        await outlast.sleep(HOUR)
        return None
    said = BODIES[where]()
    return await said if asyncio.iscoroutine(said) else said


def act_plain() -> object:
    if where == "timer":
        outlast.sleep(HOUR).result()
        return None
    return BODIES[where]()


@outlast.workflow(name="flow")
async def asynchronous() -> list[object]:
    return [await act_async(), last()]


@outlast.workflow(name="flow")
def synchronous() -> list[object]:
    return [act_plain(), last()]


flow = synchronous if plain else asynchronous

if __name__ == "__main__":
    try:
        said = {
            "result": outlast.run(
                flow,
                run_id=options.get("run_id", "r"),
                store=options["store"],
                wait=options.get("wait", True),
                settings=outlast.Settings(grace=options.get("grace", 5.0)),
            )
        }
    except outlast.OutlastError as problem:
        reason = getattr(problem, "reason", None)
        said = {"error": type(problem).__name__, "text": str(problem), "reason": reason}
    print(json.dumps(said))
