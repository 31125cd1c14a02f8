"""Checked by the type checker, never run: signatures survive the decorators.

Each `type: ignore` below names the error that must be there: an unused one fails the check.
"""

import functools
from dataclasses import dataclass, field
from typing import assert_type

import outlast
from outlast import Done, NotDone, Outcome, step, turns, workflow


@dataclass
class Hit:
    url: str


@dataclass
class Desk:
    chat: list[str] = field(default_factory=list)


@step
def add(a: int, b: int = 1) -> int:
    return a + b


@step(effect="read", retry=outlast.Retry(attempts=5), timeout=30)
async def search(query: str, *, limit: int = 3) -> list[Hit]:
    return [Hit(query)] * limit


@step(effect="once")
async def refund(order: str) -> Hit:
    return Hit(order)


@refund.reconcile
async def _(order: str) -> Outcome[Hit]:
    return Done(Hit(order)) if order else NotDone()


@refund.undo
async def _(order: str, result: Hit) -> None: ...


@refund.undo(retry=outlast.Retry(attempts=5), effect="once")
def cancel(order: str) -> int:
    return 1


class Bank:
    @step
    def book(self, amount: int) -> str:
        return str(amount)


@workflow
async def desk(ticket: str, urgent: bool = False) -> Hit:
    assert_type(add(1), int)
    assert_type(cancel("17"), int)
    assert_type(await search("lamp", limit=2), list[Hit])
    assert_type(Bank().book(3), str)
    assert_type(Bank().book.plain(3), str)
    assert_type(Bank.book.plain(Bank(), 3), str)
    assert_type((await outlast.ask("Go on?")).approved, bool)
    assert_type(await outlast.ask("How many?", int, details={"a": 1}), int)
    assert_type(await outlast.wait_signal("hit", Hit, timeout=3), Hit)
    assert_type(outlast.wait_signal("any").result(), object)
    await outlast.ask("How many?", int, timeout="soon")  # type: ignore[call-overload]
    async for turn in turns(Desk(chat=[ticket]), max=50):
        assert_type(turn, Desk)
        assert_type(turn.chat, list[str])
    async for quick in turns(chat=[ticket]):
        quick.chat.append("free form")
    assert_type(await outlast.sleep(1), None)
    return await refund(ticket)


@workflow
def plain(n: int) -> int:
    for turn in turns(Desk()):
        assert_type(turn.chat, list[str])
    outlast.sleep(1).result()
    return add(n, n)


assert_type(outlast.run(desk, "t"), Hit)
assert_type(outlast.run(plain, 3, run_id="p", wait=False), int)
assert_type(outlast.run(functools.partial(plain, n=3)), int)
found = step(str.upper, name="mcp.upper", effect="read")
assert_type(found("x"), str)


async def in_a_loop() -> None:
    assert_type(await outlast.execute(desk, "t"), Hit)
    assert_type(await outlast.execute(plain, 3), int)
    await outlast.execute(plain, "3")  # type: ignore[arg-type]


add("1")  # type: ignore[arg-type]
Bank().book("1")  # type: ignore[arg-type]
Bank().book.plain("1")  # type: ignore[arg-type]
outlast.run(plain, "3")  # type: ignore[arg-type]
outlast.run(plain)  # type: ignore[call-arg, arg-type]
outlast.run(desk, 81)  # type: ignore[arg-type]
step(effect="never")  # type: ignore[call-overload]
