"""Two steps at once and a third that needs both. `argv[2]`: what goes wrong with the slow one.

The fast step works through a live object, which every process makes anew.
"""

import asyncio
import os
import signal
import sys
import threading
from dataclasses import dataclass, field

import outlast
from tests.effects.stage import Stage

stage, trouble = Stage(sys.argv[1]), sys.argv[2]
stage.follow_clock()


@dataclass
class Price:
    amount: int


@dataclass
class Shop:
    """Holds a lock, as clients do: it can never be stored itself."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    @outlast.step
    async def price(self) -> Price:
        with self.lock:
            stage.log("fast")
            return Price(3)


# Ten minutes, by the clock that the test sets.
@outlast.step(retry=outlast.Retry(attempts=2, initial=600, maximum=600, jitter="none"))
async def slow() -> int:
    stage.log("slow", outlast.current().attempt)
    while "step.completed" not in stage.kinds():
        await asyncio.sleep(0.005)
    if outlast.current().attempt == 1:
        if trouble == "fault":
            raise ConnectionResetError
        os.kill(os.getpid(), signal.SIGKILL)
    return 4


@outlast.step
async def join(price: Price, number: int) -> int:
    stage.log("join", price.amount, number)
    return price.amount * number


@outlast.workflow
async def flow() -> int:
    shop = Shop()
    price, number = await asyncio.gather(shop.price(), slow())
    return await join(price, number)


if __name__ == "__main__":
    # With a fault, this process leaves while the retry waits, and another one goes on.
    wait = len(sys.argv) > 3
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, wait=wait))
