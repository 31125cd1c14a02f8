"""The README's example: run it, kill it, run it again."""

from dataclasses import dataclass, field

import outlast
from outlast import step, turns, workflow


@dataclass
class Desk:
    chat: list[str] = field(default_factory=list)


@step(effect="read")
async def think(chat: list[str]) -> str:  # your model call goes here
    return "FINAL: refunded" if "receipt" in chat[-1] else "refund A-17"


@step(effect="once")  # must never happen twice
async def refund(order: str) -> str:  # your payment call goes here
    return f"receipt for {order}, key {outlast.idempotency_key()}"


@refund.reconcile  # asked after a crash inside refund: did it happen?
async def was_refunded(order: str) -> outlast.Outcome[str]:
    return outlast.NotDone()


@workflow
async def desk(ticket: str) -> str:
    async for turn in turns(Desk(chat=[ticket]), max=10):  # saved at each turn
        reply = await think(turn.chat)
        if reply.startswith("FINAL: "):
            return reply.removeprefix("FINAL: ")
        turn.chat.append(await refund(reply.removeprefix("refund ")))
    return "gave up"


if __name__ == "__main__":
    print(outlast.run(desk, "My lamp is broken, order A-17", run_id="ticket-81"))
