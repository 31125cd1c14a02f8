"""Pays the same amount twice. Point: `paid`, after the bank's answer and before it is recorded."""

import sys

import outlast
from tests.effects.stage import Stage
from tests.scenarios.bank import post

stage, bank = Stage(sys.argv[1]), sys.argv[2]


@outlast.step(effect="idempotent", retry=outlast.Retry(attempts=3, initial=0))
def pay(amount: int) -> int:
    key = outlast.idempotency_key()
    stage.log("pay", key)
    booked = post(bank, key, amount)
    stage.reach("paid")
    return booked


@outlast.workflow
def flow() -> list[int]:
    return [pay(5), pay(5)]


if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
