"""The runs that are measured: steps that do nothing but return what a tool might return."""

import hashlib

import outlast

WAIT = 0.05
"""Seconds that a run waits where it is left, to be resumed."""


def text(i: int, length: int) -> str:
    """The same for the same number, and unlike any other: a store cannot press it to nothing."""
    return hashlib.shake_128(str(i).encode()).hexdigest(length // 2)


def payload(i: int) -> dict[str, object]:
    """About 300 bytes, as a tool might return."""
    return {"step": i, "tool": "search", "ok": True, "text": text(i, 240)}


def message(i: int) -> str:
    return text(i, 500)


@outlast.step
def plain_step(i: int) -> dict[str, object]:
    return payload(i)


@outlast.step
async def async_step(i: int) -> dict[str, object]:
    return payload(i)


@outlast.step
async def say(i: int) -> str:
    return message(i)


@outlast.workflow
def plain_run(n: int) -> None:
    for i in range(n):
        plain_step(i)


@outlast.workflow
async def async_run(n: int) -> None:
    for i in range(n):
        await async_step(i)


@outlast.step(breaker=False)
def bare_step(i: int) -> dict[str, object]:
    return payload(i)


@outlast.step(retry=outlast.Retry(attempts=5), breaker=outlast.Breaker(failures=3), cost=0.001)
def guarded_step(i: int) -> dict[str, object]:
    return payload(i)


@outlast.workflow
def bare_run(n: int) -> None:
    for i in range(n):
        bare_step(i)


@outlast.workflow(budget=outlast.Budget(usd=1000, calls=10**6, steps=10**6))
def guarded_run(n: int) -> None:
    for i in range(n):
        guarded_step(i)


@outlast.workflow
async def stops_after(n: int) -> None:
    """`n` steps, then a wait."""
    for i in range(n):
        await async_step(i)
    await outlast.sleep(WAIT)


@outlast.workflow
async def stops_in_turn(n: int) -> None:
    """`n` turns with a step each, whose message is added to the state, then a wait."""
    async for turn in outlast.turns(messages=[]):
        if len(turn.messages) == n:
            await outlast.sleep(WAIT)
            return
        turn.messages.append(await say(len(turn.messages)))


@outlast.workflow
async def grows(n: int) -> None:
    """`n` turns without a step, each of which adds a message to the state."""
    async for turn in outlast.turns(messages=[]):
        if len(turn.messages) == n:
            return
        turn.messages.append(message(len(turn.messages)))


@outlast.workflow
async def dozes(seconds: float) -> None:
    await outlast.sleep(seconds)
