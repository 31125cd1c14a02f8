"""Sends, then is cut off. `argv[3]` says how the step is declared, `argv[4]` how it is cut.

Point: `sent`.
"""

import asyncio
import sys

import outlast
from tests.effects.stage import Stage
from tests.scenarios.bank import look_up, post

stage, bank, declared, cut = Stage(sys.argv[1]), *sys.argv[2:]


async def send(amount: int) -> int:
    booked = post(bank, outlast.idempotency_key(), amount)
    stage.reach("sent")
    if cut == "timeout" and outlast.current().attempt == 1:
        await asyncio.sleep(60)
    return booked


step = outlast.step(
    send,
    effect="idempotent" if declared == "idempotent" else "once",
    retry=outlast.Retry(attempts=3, initial=0),
    timeout=0.5 if cut == "timeout" else None,
)

if declared == "checked":

    @step.reconcile
    def _(amount: int) -> outlast.Outcome[int]:
        booked = look_up(bank, outlast.idempotency_key())
        return outlast.NotDone() if booked is None else outlast.Done(booked)


@outlast.workflow
async def flow() -> int:
    return await step(7)


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
