"""A refund as a run of its own: for a desk that many workers share, `outlast worker MODULE`.

A large one needs somebody's leave. The tool that pays asks for it, whatever the agent around it
thinks, and the run waits for the answer without a process. Photos go through a library that one of
them sends into a loop from which nothing in its process brings it back.
"""

from dataclasses import dataclass

from outlast import Denied, step, workflow
from outlast.demo.agent import Receipt, look_up_order, pay

LIMIT = 15_000
"""Cents. Above that a person decides."""

ENDLESS = "spiral.jpg"
"""Name of the photo that the library does not get away from."""


@dataclass(frozen=True)
class Case:
    """A refund that somebody wants; `bank` is its URL."""

    order_id: str
    photo: str
    bank: str


@dataclass(frozen=True)
class Declined:
    """Nothing was paid; `why` in the words of whoever decided."""

    order_id: str
    why: str


def leave(order_id: str, item: str, amount: int, bank: str) -> str | bool:
    """What a person is asked before so much is paid; False if nobody needs to be."""
    return amount > LIMIT and f"Refund EUR {amount / 100:.2f} for order {order_id}, {item}?"


@step(effect="read")
def look_at(photo: str) -> str:
    """Have a photo looked at by a library that is not ours. It hangs on one, and holds on to that:
    what is raised in it to stop it, it swallows."""
    while photo == ENDLESS:
        try:
            while True:
                pass
        except BaseException:
            pass
    return "damaged"


@step(effect="idempotent", approval=leave)
async def pay_back(order_id: str, item: str, amount: int, bank: str) -> Receipt:
    """Pay back, once somebody has approved of it if it is much."""
    return await pay(order_id, amount, bank)


@workflow
async def refund_case(case: Case) -> Receipt | Declined:
    """Look into one refund, and pay it."""
    order = await look_up_order(case.order_id, case.bank)
    look_at(case.photo)
    try:
        return await pay_back(order.order_id, order.item, order.paid, case.bank)
    except Denied as denied:
        return Declined(case.order_id, str(denied))
