"""Sends once. Points: `resumed`, `sent`."""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])


@outlast.step(effect="once")
def send() -> str:
    stage.log("sent", outlast.idempotency_key())
    stage.reach("sent")
    return "sent"


@outlast.workflow
def flow() -> str:
    stage.reach("resumed")
    return send()


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
