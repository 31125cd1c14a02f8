"""Adds up three payments that come as signals, and logs each once it is there.

Points: `taking` before a signal is taken, `taken` once that is committed, `logged-N` behind the
step that follows the Nth.
"""

import sys

import outlast
from outlast.engine import drive
from outlast.events import WaitEnded
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
WAIT = "wait" in sys.argv[2:]


@outlast.step(effect="idempotent")
def log(amount: int) -> int:
    stage.log("paid", amount)
    return amount


@outlast.workflow
def flow() -> list[int]:
    amounts = []
    for number in range(1, 4):
        amounts.append(log(outlast.wait_signal("paid", int).result()))
        stage.reach(f"logged-{number}")
    return amounts


def _watched(request, run, perform=drive._perform_sync):  # type: ignore[no-untyped-def]
    takes = isinstance(request, drive.Write) and any(
        isinstance(entry.event, WaitEnded) for entry in request.entries
    )
    if takes:
        stage.reach("taking")
    reply = perform(request, run)
    if takes:
        stage.reach("taken")
    return reply


drive._perform_sync = _watched

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, wait=WAIT))
