"""Guardrails: a server that is down is left alone, and money ends where it was said.

The search server is down. Two failed requests open its breaker; from then on it is not called at
all, and the agent asks the archive instead, which costs money. After four answers the budget is
used up and the run is held. Somebody adds to it, and the run goes on with the fifth.

    outlast breakers          # after a start: search is open, for ten minutes
    outlast show guarded-1    # what each step cost
"""

import sys

import outlast


@outlast.step(
    effect="read",
    retry=outlast.Retry(attempts=2, initial=0.01),
    breaker=outlast.Breaker("search", failures=2, cooldown=600),
)
async def search(topic: str) -> str:
    raise ConnectionResetError(f"no answer about {topic}")  # your request goes here


@outlast.step(effect="read", cost=0.02)
async def archive(topic: str) -> str:
    return f"{topic}: from the archive"


async def look_up(topic: str) -> str:
    try:
        return await search(topic)
    except (ConnectionError, outlast.BreakerOpen):
        return await archive(topic)


@outlast.workflow(budget=outlast.Budget(usd="0.08", calls=100))
async def research(topics: list[str]) -> list[str]:
    return [await look_up(topic) for topic in topics]


def main(run_id: str = "guarded-1") -> list[str]:
    topics = ["tea", "salt", "silk", "amber", "tin"]
    try:
        return outlast.run(research, topics, run_id=run_id)
    except outlast.RunHeld as held:
        print(held, file=sys.stderr)
    # What an operator does with: outlast resume guarded-1 --add usd=0.04
    outlast.Client().add_budget(run_id, outlast.Budget(usd="0.04"), by="the example")
    return outlast.run(research, topics, run_id=run_id)


if __name__ == "__main__":
    print("\n".join(main()))
    print("\n".join(outlast.Client().run("guarded-1").budget))
