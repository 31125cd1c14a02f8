"""A worker that stands still in the middle of a transaction, where nobody else can write.

As the main program it is the supervisor of that worker, which notices it after half a second. The
options (JSON) are an order; its run gets the path of the store's file. With the word `own` behind
them, it executes the run itself.
"""

import os
import signal
import sys
from pathlib import Path

import apsw
import msgspec

import outlast
from outlast.worker import stalling
from outlast.worker.order import Order
from outlast.worker.supervisor import run_supervised


@outlast.step
def stand_still(path: str) -> str:
    mark = Path(path).with_name("stands")
    if mark.exists():
        return "went on"
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    mark.touch()
    os.kill(os.getpid(), signal.SIGSTOP)  # as would code that holds the interpreter in C
    return "never"


@outlast.workflow
def work(path: str) -> str:
    return stand_still(path)


if __name__ == "__main__":
    stalling.STALLED, stalling.PACE = 0.5, 0.1
    order = msgspec.json.decode(sys.argv[1], type=Order)
    if sys.argv[2:] == ["own"]:
        path = msgspec.json.decode(order.arguments or "")[0]
        outlast.run(work, path, run_id=order.run_id, store=order.store)
    sys.exit(run_supervised(order))
