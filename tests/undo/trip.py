"""Trips, in both colours: what is booked can be cancelled. `happened` has what happened outside."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import outlast
from outlast import Done, NotDone, Retry, Unknown, step, workflow

Colour = Literal["plain", "async"]
NO_WAIT = Retry(attempts=3, initial=0)

happened: list[str] = []
"""What happened outside, oldest first."""

KEYS: dict[str, set[str]] = {}
"""The idempotency keys under which each compensation ran, by its key."""

TROUBLE: dict[str, list[BaseException]] = {}
"""What the compensation of each booking raises next."""

ANSWERS: list[Any] = []
"""What reconcile answers next."""


def reset() -> None:
    for known in (happened, KEYS, TROUBLE, ANSWERS):
        known.clear()  # type: ignore[attr-defined]


@dataclass
class Receipt:
    what: str
    number: int


def _book(what: str) -> Receipt:
    happened.append(f"book {what}")
    return Receipt(what, len(happened))


def _cancel(what: str, result: Receipt) -> None:
    here = outlast.current()
    KEYS.setdefault(here.step or "", set()).add(outlast.idempotency_key())
    assert result.what == what
    if TROUBLE.get(what):
        raise TROUBLE[what].pop(0)
    happened.append(f"cancel {what}")


# ---- plain


@step(effect="idempotent", retry=NO_WAIT)
def book(what: str, nights: int = 1) -> Receipt:
    return _book(what)


@book.undo
def _(what: str, result: Receipt) -> None:
    _cancel(what, result)


@step(effect="once", in_doubt="raise")
def pay(what: str) -> Receipt:
    happened.append(f"pay {what}")
    raise ConnectionResetError("no answer")


@pay.reconcile
def _(what: str) -> Any:
    return ANSWERS.pop(0) if ANSWERS else Unknown("the bank does not answer")


@pay.undo(effect="once")
def _(what: str, result: Receipt) -> None:
    happened.append(f"repay {what} {result.number}")


@step(effect="idempotent")
def mail(text: str) -> None:
    happened.append(f"mail {text}")


@step(effect="read")
def look(what: str) -> str:
    return what


@workflow(on_failure="undo")
def failing() -> None:
    book("flight")
    look("hotels")
    mail("flight booked")
    book("hotel", 3)
    raise ValueError("no car left")


@workflow
def trip(end: str) -> str:
    book("flight")
    look("hotels")
    mail("flight booked")
    book("hotel", 3)
    if end == "fails":
        raise ValueError("no car left")
    if end == "waits":
        outlast.sleep(3600).result()
    return "booked"


@workflow(on_failure="undo")
def paying() -> None:
    book("flight")
    try:
        pay("hotel")
    except outlast.InDoubt:
        raise ValueError("cannot pay") from None


@workflow(on_failure="undo")
def looping(turns: int) -> None:
    for turn in outlast.turns(n=0):
        book(f"night {turn.n}")
        turn.n += 1
        if turn.n == turns:
            raise ValueError("no more rooms")


# ---- async


@step(effect="idempotent", retry=NO_WAIT, name="book")
async def book_async(what: str, nights: int = 1) -> Receipt:
    await asyncio.sleep(0)
    return _book(what)


@book_async.undo
async def _(what: str, result: Receipt) -> None:
    await asyncio.sleep(0)
    _cancel(what, result)


@step(effect="once", in_doubt="raise", name="pay")
async def pay_async(what: str) -> Receipt:
    return pay.plain(what)


@pay_async.reconcile
async def _(what: str) -> Any:
    return ANSWERS.pop(0) if ANSWERS else Unknown("the bank does not answer")


@pay_async.undo
async def _(what: str, result: Receipt) -> None:
    happened.append(f"repay {what} {result.number}")


@step(effect="idempotent", name="mail")
async def mail_async(text: str) -> None:
    happened.append(f"mail {text}")


@step(effect="read", name="look")
async def look_async(what: str) -> str:
    return what


@workflow(on_failure="undo", name="failing")
async def failing_async() -> None:
    await book_async("flight")
    await look_async("hotels")
    await mail_async("flight booked")
    await book_async("hotel", 3)
    raise ValueError("no car left")


@workflow(name="trip")
async def trip_async(end: str) -> str:
    await book_async("flight")
    await look_async("hotels")
    await mail_async("flight booked")
    await book_async("hotel", 3)
    if end == "fails":
        raise ValueError("no car left")
    if end == "waits":
        await outlast.sleep(3600)
    return "booked"


@workflow(on_failure="undo", name="paying")
async def paying_async() -> None:
    await book_async("flight")
    try:
        await pay_async("hotel")
    except outlast.InDoubt:
        raise ValueError("cannot pay") from None


@workflow(on_failure="undo", name="looping")
async def looping_async(turns: int) -> None:
    async for turn in outlast.turns(n=0):
        await book_async(f"night {turn.n}")
        turn.n += 1
        if turn.n == turns:
            raise ValueError("no more rooms")


FLOWS: dict[tuple[str, Colour], Callable[..., Any]] = {
    (name, colour): globals()[name if colour == "plain" else f"{name}_async"]
    for name, colour in itertools.product(
        ("failing", "trip", "paying", "looping"), ("plain", "async")
    )
}

ANSWERED: list[Done[Receipt] | NotDone] = [Done(Receipt("hotel", 7)), NotDone()]
