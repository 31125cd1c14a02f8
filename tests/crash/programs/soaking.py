"""Runs that take a while in small steps, for workers that are killed, stopped and started again."""

import asyncio
import time

import outlast
from outlast import Done, NotDone
from tests.checkers import read_effects, record_effect

WORK = 0.2
"""Seconds that a body takes before it comes to its effect."""

NAP = 0.3
"""Seconds between two rounds of a run."""


@outlast.step(effect="read")
def look(effects: str, number: int) -> int:
    time.sleep(WORK)
    record_effect(effects)
    return number


@outlast.step
async def alook(effects: str, number: int) -> int:
    await asyncio.sleep(WORK)
    record_effect(effects)
    return number


@outlast.step(effect="once")
def send(effects: str, number: int) -> int:
    time.sleep(WORK / 10)
    record_effect(effects)
    return number


@outlast.step(effect="once")
async def asend(effects: str, number: int) -> int:
    await asyncio.sleep(WORK / 10)
    record_effect(effects)
    return number


def has_been_sent(effects: str, number: int) -> outlast.Outcome[int]:
    key = outlast.idempotency_key()
    sent = any(effect.idempotency == key for effect in read_effects(effects))
    return Done(number) if sent else NotDone()


send.reconcile(has_been_sent)
asend.reconcile(has_been_sent)


@outlast.workflow
def plain(effects: str, rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += look(effects, number) + send(effects, number)
        outlast.sleep(NAP).result()
    return total


@outlast.workflow
async def asynchronous(effects: str, rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += sum(await asyncio.gather(alook(effects, number), asend(effects, number)))
        await outlast.sleep(NAP)
    return total
