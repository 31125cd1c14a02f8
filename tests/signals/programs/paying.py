"""A payment that needs somebody's leave; with the flag `fails` its first two attempts fail in
passing. Points: `approved` behind the leave and before the attempt, `paying` in its body."""

import sys

import outlast
from outlast.engine import drive
from outlast.events import WaitEnded
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])


@outlast.step(
    effect="idempotent",
    approval=lambda amount: amount > 100 and f"Pay {amount} EUR?",
    retry=outlast.Retry(attempts=5, initial=0, maximum=0, jitter="none"),
)
def pay(amount: int) -> int:
    stage.log("pay", amount)
    stage.reach("paying")
    if stage.has("fails") and len(stage.effects()) < 3:
        raise outlast.Transient("the bank is busy")
    return amount


@outlast.workflow
def flow() -> int:
    return pay(900)


def _watched(request, run, perform=drive._perform_sync):  # type: ignore[no-untyped-def]
    reply = perform(request, run)
    if isinstance(request, drive.Write) and any(
        isinstance(entry.event, WaitEnded) for entry in request.entries
    ):
        stage.reach("approved")
    return reply


drive._perform_sync = _watched

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, wait=False))
