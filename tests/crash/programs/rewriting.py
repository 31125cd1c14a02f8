"""look, pay, last: run with the code of one deploy, dropped or forked from `pay` on by the next.

The flavour is the code's version and what to do: `1 live`, `2 live`, `2 accept`, `2 fork`. The
second version passes `pay` other arguments, the third makes another call before it.
"""

import outlast
from outlast import step, workflow
from tests.checkers import record_effect
from tests.crash.points import Killer, die
from tests.crash.programs.job import Job, killer_of, live

FORK = "fork"
RESULTS = {
    "1": ["look", "pay 1", "last"],
    "2": ["look", "pay 2", "last"],
    "3": ["look", "look", "pay 1", "last"],
}

_job: Job
_killer: Killer


def main(job: Job) -> None:
    global _job, _killer
    _job = job
    if job.point is None and job.flavour == "1 live":
        _killer = Killer(None)
        live(job, rewritten)  # to its death in `last`
        return
    _killer = killer_of(job)
    client = outlast.Client(job.url)
    match job.flavour.split()[1]:
        case "accept":
            client.accept_from("run", "pay#1")
        case "fork":
            client.fork("run", "pay#1", new_id=FORK, repeat_effects=True)
    live(job, rewritten)


def _version() -> str:
    return _job.flavour.split()[0]


@step(effect="read")
def look() -> str:
    record_effect(_job.effects)
    return "look"


@step(effect="idempotent")
def pay(version: str) -> str:
    record_effect(_job.effects)
    _killer.reach("effect", "pay")
    return f"pay {version}"


@step(effect="read")
def last() -> str:
    record_effect(_job.effects)
    if _version() == "1" and _job.run_id == "run":
        die()
    return "last"


@workflow
def rewritten() -> list[str]:
    if _version() == "3":
        return [look(), look(), pay("1"), last()]
    return [look(), pay(_version()), last()]
