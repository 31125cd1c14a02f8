"""How answers of a real server are classified by way of real clients: `python -m tests.wire.table`.

A row is an answer; the last column names the clients by whose error it was classified so.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from outlast.policy.faults import Fault, certainly_not_done, classify
from tests.wire.cases import CASES, NOW, Case
from tests.wire.clients import CLIENTS
from tests.wire.server import serving

Verdict = tuple[Fault, bool]


def judged(clients: list[str]) -> Iterator[tuple[Case, dict[str, Verdict]]]:
    """Each case with what was made of it, by client."""
    with serving([case.answer for case in CASES]) as wire, ExitStack() as stack:
        asks = {name: stack.enter_context(CLIENTS[name]()) for name in clients}
        for number, case in enumerate(CASES):
            verdicts: dict[str, Verdict] = {}
            for name, ask in asks.items():
                exc = ask(wire.url(number))
                verdicts[name] = classify(exc, NOW.timestamp()), certainly_not_done(exc)
            assert wire.asked[number] == len(clients), "a client asked more than once"
            yield case, verdicts


def rows(clients: list[str]) -> Iterator[str]:
    """The lines of the table."""
    yield f"{'class':10} {'wait':>8}  {'breaker':8} {'once':10} answer"
    for case, verdicts in judged(clients):
        alike: dict[str, list[str]] = {}
        for client, (fault, not_done) in verdicts.items():
            wait = "" if fault.wait is None else f"{fault.wait:g} s"
            counts = "counts" if fault.counts else "-"
            once = "not done" if not_done else "in doubt"
            line = f"{fault.kind:10} {wait:>8}  {counts:8} {once:10}"
            alike.setdefault(line, []).append(client)
        for line, names in alike.items():
            who = "" if len(names) == len(clients) else f"  ({', '.join(names)})"
            yield f"{line} {case.name}{who}"


if __name__ == "__main__":
    for row in rows(list(CLIENTS)):
        print(row)
