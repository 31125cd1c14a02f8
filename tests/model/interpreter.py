"""Small workflow programs as data, and the workflow that runs them.

A program is a tree of tuples, so that hypothesis can make it up and a journal can store it:

    ("step",)                        an asynchronous step that returns its key
    ("plain",)                       a plain step
    ("fails",)                       a step that raises; the workflow catches it
    ("flaky",)                       a step that fails in passing, and is billed for each attempt
    ("hopeless",)                    a step that fails in passing for ever
    ("pays",)                        a step that costs a cent
    ("draw",)                        an id, the time and a number, each told to a step
    ("sleep",)                       a durable timer
    ("late",)                        a step that a time-out cancels
    ("seq", (...))                   one after another
    ("gather", (...))                in parallel
    ("group", (...))                 in parallel, in a task group
    ("race", program)                the program against steps that hang and are cancelled
    ("dash", (...))                  in parallel; a step is told who wins, and a replay compares
    ("turns", n, program)            an agent loop of n turns that collects what the program gives
"""

import asyncio
import random
from collections import Counter

import outlast
from outlast import Retry, step, workflow

Program = tuple[object, ...]

RAN: Counter[tuple[str, str]] = Counter()
"""How often each body ran, by run and key; no store knows of it."""

DELAY = random.Random()


def _ran() -> str:
    here = outlast.current()
    assert here.step is not None
    RAN[here.run_id, here.step] += 1
    return here.step


async def _linger() -> None:
    if DELAY.random() < 0.2:
        await asyncio.sleep(DELAY.random() * 0.003)
    for _ in range(DELAY.randrange(6)):
        await asyncio.sleep(0)


@step
async def work() -> str:
    key = _ran()
    await _linger()
    return key


@step
def plain() -> str:
    return _ran()


@step
async def fails() -> None:
    _ran()
    await _linger()
    raise ValueError("as expected")


@step(retry=Retry(attempts=3, initial=0), breaker=False)
async def flaky() -> str:
    key = _ran()
    outlast.charge(usd=0.001, tokens=5)
    await _linger()
    if (outlast.current().attempt or 0) < 3:
        raise ConnectionResetError("in passing")
    return key


@step(retry=Retry(attempts=2, initial=0), breaker=False)
async def hopeless() -> None:
    _ran()
    await _linger()
    raise ConnectionResetError("for ever")


@step(cost=0.01)
async def pays() -> str:
    key = _ran()
    await _linger()
    return key


ATTEMPTS = {"flaky": 3, "hopeless": 2}
"""How many attempts of a step may fail."""


@step
async def echo(drawn: str) -> str:
    _ran()
    return drawn


@step
async def hang() -> None:
    _ran()
    await asyncio.Event().wait()


async def _draw() -> bool:
    drawn = f"{outlast.uuid4()} {outlast.now()} {outlast.random()}"
    return await echo(drawn) == drawn


async def _race(program: Program) -> object:
    runner = asyncio.create_task(interpret(program))
    losers = [asyncio.create_task(hang()) for _ in range(2)]
    done, left = await asyncio.wait([runner, *losers], return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    assert done == {runner}
    return runner.result()


async def _dash(parts: tuple[Program, ...]) -> object:
    tasks = [asyncio.create_task(interpret(part)) for part in parts]
    left = set(tasks)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        winners = sorted(tasks.index(task) for task in done)
        # A step for each of them: how many end at once is a matter of time, and the keys of the
        # steps behind, which a run's result holds, must not be.
        for winner in winners:
            await echo(f"{winner} of {winners}")
    return [task.result() for task in tasks]


async def _turns(count: int, program: Program) -> object:
    async for turn in outlast.turns(seen=[], max=count):
        # In a task of its own, since a loop right inside a loop is refused.
        turn.seen.append(await asyncio.create_task(interpret(program)))
    return turn.seen


async def interpret(program: Program) -> object:
    match program:
        case ("step",):
            return await work()
        case ("plain",):
            return plain()
        case ("fails",):
            try:
                await fails()
            except ValueError as exc:
                return str(exc)
        case ("flaky",):
            return await flaky()
        case ("hopeless",):
            try:
                await hopeless()
            except ConnectionResetError as exc:
                return str(exc)
        case ("pays",):
            return await pays()
        case ("draw",):
            return await _draw()
        case ("sleep",):
            return await outlast.sleep(0.001)
        case ("late",):
            try:
                async with asyncio.timeout(0.003):
                    await hang()
            except TimeoutError:
                return "late"
        case ("seq", parts):
            return [await interpret(part) for part in parts]  # type: ignore[attr-defined]
        case ("gather", parts):
            return await asyncio.gather(*map(interpret, parts))  # type: ignore[call-overload]
        case ("group", parts):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(interpret(p)) for p in parts]  # type: ignore[attr-defined]
            return [task.result() for task in tasks]
        case ("race", inner):
            return await _race(inner)  # type: ignore[arg-type]
        case ("dash", parts):
            return await _dash(parts)  # type: ignore[arg-type]
        case ("turns", count, inner):
            return await _turns(count, inner)  # type: ignore[arg-type]
    raise AssertionError(f"not a program, or one that went wrong: {program!r}")


# The same step of a program may well end alike many times.
@workflow(budget=outlast.Budget.unlimited(), max_repeats=None)
async def main(program: Program) -> object:
    return await interpret(program)
