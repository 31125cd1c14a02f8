"""Two mails at once, both declared `once` and with nobody to ask; and a tool that always fails."""

import asyncio

from outlast import Retry, step, workflow
from tests.checkers import record_effect
from tests.crash.points import Killer
from tests.crash.programs.job import Job, killer_of, live

RESULT = ["sent a", "sent b"]

ATTEMPTS = 4

_job: Job
_killer: Killer


def main(job: Job) -> None:
    global _job, _killer
    _job, _killer = job, killer_of(job)
    live(job, hopeless if job.flavour == "hopeless" else mails)


@step(effect="once")
async def mail(name: str) -> str:
    record_effect(_job.effects)
    await asyncio.sleep(0)
    _killer.reach("effect", "mail")
    await asyncio.sleep(0)
    return f"sent {name}"


@workflow
async def mails() -> list[str]:
    return list(await asyncio.gather(mail("a"), mail("b")))


@step(effect="read", retry=Retry(attempts=ATTEMPTS, initial=0), breaker=False)
def ask() -> str:
    record_effect(_job.effects)
    raise ConnectionError("nobody there")


@workflow
def hopeless() -> str:
    try:
        return ask()
    except ConnectionError as exc:
        return f"gave up: {exc}"
