"""first, deadly, last: what the deadly step does to its process depends on a file's content."""

import asyncio
import os
import time
from pathlib import Path

import outlast
from outlast import step, workflow
from tests.checkers import record_effect
from tests.crash.points import die
from tests.crash.programs.job import Job, live

RESULT = "survived"

_job: Job


def main(job: Job) -> None:
    global _job
    _job = job
    if job.flavour == "outside steps":
        live(job, outside_steps)
    elif job.flavour == "asleep":
        live(job, asleep)
    else:
        live(job, asynchronous if job.asynchronous else plain)


def mood(folder: str | Path, word: str) -> None:
    """Choose what deadly steps do from now on: exit, sigkill, hang or live."""
    (Path(folder) / "mood").write_text(word)


def _mood() -> str:
    return (Path(_job.folder) / "mood").read_text()


def _deadly() -> str:
    record_effect(_job.effects)
    match _mood():
        case "exit":
            os._exit(137)
        case "sigkill":
            die()
        case "hang":
            time.sleep(60)
    return "survived"


async def _deadly_later() -> str:
    if _mood() == "hang":
        record_effect(_job.effects)
        await asyncio.sleep(60)
    return _deadly()


first = step(effect="read", name="first")(lambda: record_effect(_job.effects))
deadly = step(effect="idempotent", name="deadly")(_deadly)
adeadly = step(effect="idempotent", name="deadly")(_deadly_later)


@workflow
def plain() -> str:
    first()
    return deadly()


@workflow
async def asynchronous() -> str:
    first()
    return await adeadly()


@workflow
def outside_steps() -> str:
    """Dies in the workflow's own code."""
    if _mood() == "sigkill":
        die()
    return RESULT


@workflow
def asleep() -> str:
    outlast.sleep(3600).result()
    return RESULT
