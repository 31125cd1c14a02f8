"""A plain (not asynchronous) workflow: fetch, transform, deliver, with a pause in between.

    outlast run examples/nightly.py:nightly '{"regions": ["north", "south"]}' --id nightly-1

Kill it and start it again: what was fetched is not fetched again, the pause goes on where it was.
"""

import functools
from dataclasses import dataclass

import outlast


@dataclass(frozen=True)
class Figures:
    region: str
    orders: int


@outlast.step(effect="read", retry=outlast.Retry(attempts=5), timeout=30)
def fetch(region: str) -> Figures:
    return Figures(region, orders=10 * len(region))


@outlast.step(effect="idempotent")
def deliver(text: str) -> str:
    # A receiver that honours idempotency keys takes the same report once, however often it comes.
    return f"{text} (key {outlast.idempotency_key()[:8]})"


@outlast.workflow
def nightly(regions: list[str], pause: float = 1.0) -> str:
    figures = [fetch(region) for region in regions]
    outlast.sleep(pause).result()  # a durable timer
    return deliver(f"{sum(f.orders for f in figures)} orders in {len(figures)} regions")


if __name__ == "__main__":
    print(outlast.run(functools.partial(nightly, regions=["north", "south"]), run_id="nightly-1"))
