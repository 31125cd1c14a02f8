"""A longer agent: turns, parallel tools, a timer, recorded values, a fault that passes."""

import asyncio
from dataclasses import dataclass, field

import outlast
from outlast import Done, NotDone, Retry, step, turns, workflow
from tests.checkers import read_effects, record_effect
from tests.crash.programs.job import Job, killer_of, live

TURNS = 4

RESULT = {
    "seen": ["plan", *(word for n in range(TURNS) for word in (f"a{n}", f"b{n}", f"sent {n}"))],
    "faults": ["ValueError: no such page"],
    "consistent": True,
    "report": 1 + 3 * TURNS,
}
"""What the workflow returns, whatever happens on the way."""

_job: Job


def use(job: Job) -> None:
    """Let the steps do what this job says."""
    global _job
    _job = job


def main(job: Job) -> None:
    use(job)
    killer_of(job)
    live(job, asynchronous if job.asynchronous else plain)


@dataclass
class Desk:
    seen: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def _send(n: int) -> str:
    record_effect(_job.effects)
    return f"sent {n}"


def _was_sent(n: int) -> object:
    key = outlast.idempotency_key()
    done = any(effect.idempotency == key for effect in read_effects(_job.effects))
    return Done(f"sent {n}") if done else NotDone()


def _flaky(word: str) -> str:
    """Fails at its first attempt."""
    record_effect(_job.effects)
    if outlast.current().attempt == 1:
        raise ConnectionError("try again")
    return word


def _broken(word: str) -> str:
    record_effect(_job.effects)
    raise ValueError("no such page")


# ---- plain

AT_ONCE = Retry(attempts=50, initial=0)

plan = step(effect="read", name="plan")(lambda: "plan")
think = step(effect="read", name="think", retry=AT_ONCE, breaker=False)(_flaky)
fetch = step(effect="read", name="fetch")(_broken)
report = step(effect="idempotent", name="report")(len)
send = step(effect="once", name="send")(_send)
send.reconcile(_was_sent)


@workflow
def plain() -> dict[str, object]:
    begun = outlast.now()
    desk = Desk([plan()])
    for turn in turns(desk, max=TURNS + 1):
        n = (len(turn.seen) - 1) // 3
        if n == TURNS:
            break
        turn.seen += [think(f"a{n}"), think(f"b{n}")]
        turn.seen.append(send(n))
        if n == 1:
            try:
                fetch("page")
            except ValueError as exc:
                turn.faults.append(f"ValueError: {exc}")
        outlast.sleep(0).result()
    return {
        "seen": desk.seen,
        "faults": desk.faults,
        "consistent": begun <= outlast.now(),
        "report": report(desk.seen),
    }


# ---- asynchronous


async def _flaky_later(word: str) -> str:
    await asyncio.sleep(0)
    return _flaky(word)


async def _send_later(n: int) -> str:
    await asyncio.sleep(0)
    return _send(n)


async def _forever() -> None:
    await asyncio.Event().wait()


athink = step(effect="read", name="think", retry=AT_ONCE, breaker=False)(_flaky_later)
asend = step(effect="once", name="send")(_send_later)
asend.reconcile(_was_sent)
wait = step(effect="read", name="wait")(_forever)


@workflow
async def asynchronous() -> dict[str, object]:
    begun = outlast.now()
    desk = Desk([plan()])
    async for turn in turns(desk, max=TURNS + 1):
        n = (len(turn.seen) - 1) // 3
        if n == TURNS:
            break
        # Appending in order of completion would be a race; gather keeps the order of the calls.
        *words, _ = await asyncio.gather(athink(f"a{n}"), athink(f"b{n}"), _both(n))
        turn.seen += [*words, await asend(n)]
        if n == 1:
            try:
                fetch("page")
            except ValueError as exc:
                turn.faults.append(f"ValueError: {exc}")
    return {
        "seen": desk.seen,
        "faults": desk.faults,
        "consistent": begun <= outlast.now(),
        "report": report(desk.seen),
    }


async def _both(n: int) -> None:
    """A timer in a task of its own; in turn 2 also a call that the workflow gives up."""
    await outlast.sleep(0.001)
    if n == 2:
        try:
            async with asyncio.timeout(0.005):
                await wait()
        except TimeoutError:
            pass
