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


# ---- control from outside, children, serving


@step(approval=True)
def pay(order: str, amount: int) -> Hit:
    return Hit(order)


@step(effect="once", approval=lambda order, amount: amount > 100 and f"Pay {amount}?")
async def pay_async(order: str, amount: int) -> Hit:
    return Hit(order)


@pay_async.undo(timeout=3)
async def _(order: str) -> None: ...


@workflow(on_failure="undo")
async def family(names: list[str]) -> None:
    assert_type(pay("17", 3), Hit)
    assert_type(await pay_async("17", 3), Hit)
    child = outlast.start_child(desk, "t")
    assert_type(await child, Hit)
    assert_type(child.result(), Hit)
    assert_type(outlast.start_child(plain, 3).result(), int)
    assert_type(await desk("t"), Hit)
    await outlast.start_child(plain, "3")  # type: ignore[arg-type]
    await outlast.start_child(plain)  # type: ignore[call-arg, arg-type]
    assert_type(await outlast.map(search, names), list[list[Hit]])
    assert_type(await outlast.map(plain, [1, 2], limit=3, key=str), list[int])
    assert_type(await outlast.map(plain, [1], on_error="collect"), list[int | Exception])
    assert_type(outlast.map(str.upper, names).result(), list[str])
    await outlast.map(plain, names)  # type: ignore[arg-type]
    await outlast.map(plain, [1], on_error="ignore")  # type: ignore[call-overload]
    await outlast.map(plain, [1], key=len)  # type: ignore[arg-type]
    await outlast.map(plain, [1], 3)  # type: ignore[call-overload]


async def in_a_server() -> None:
    async with outlast.serving(desk, plain, concurrency=3):
        handle = await outlast.start(desk, "t", run_id="t")
        assert_type(handle, outlast.Handle[Hit])
        assert_type(await handle.result(), Hit)
        assert_type((await outlast.start(plain, 3)).run_id, str)
        async for event in handle.events(after=3):
            assert_type(event, outlast.StoredEvent | outlast.Emitted)
        await outlast.start(plain, "3")  # type: ignore[arg-type]
        found: outlast.Handle[Hit] = outlast.Handle("t")
        assert_type(found.status().undone, list[str] | None)
    outlast.emit("token", "text")
    outlast.serving(desk, concurrency="many")  # type: ignore[arg-type]


def from_outside(client: outlast.Client) -> None:
    assert_type(client.undo("t", to="book#3", by="ann"), outlast.RunView)
    assert_type(client.kill("t", reason="enough"), outlast.Killed)
    assert_type(client.pause("t"), outlast.RunView)
    client.undo(3)  # type: ignore[arg-type]


step(approval="yes")  # type: ignore[call-overload]
step(approval=3)  # type: ignore[call-overload]
workflow(on_failure="retry")  # type: ignore[call-overload]
