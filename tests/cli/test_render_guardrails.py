"""What the command line shows of retries, breakers and budgets, from records made by hand."""

import json
import shlex
from decimal import Decimal

import pytest
from msgspec import Raw

from outlast.api.client import BreakerView
from outlast.cli.jsonout import run_json
from outlast.cli.progress import Story, now_doing
from outlast.cli.render import breaker_list, journal_lines, run_details, timeline
from outlast.cli.wording import Caller, advice, cost
from outlast.events import (
    BreakerClosed,
    BreakerDeclared,
    BreakerOpened,
    BreakerProbed,
    BreakerReset,
    BreakerTripped,
    ErrorRecord,
    Event,
    RunBudgeted,
    StepCharged,
    StepRefused,
)
from outlast.policy.breaker import Breaker
from outlast.records import RunView, Spending, StoredEvent, Usage
from tests.cli.made import STARTED, plain, run, step
from tests.cli.test_render import HOSTILE, NOW, words_of

PRICE = Usage(Decimal("0.30"), 1200)


def lines_of(view: RunView) -> list[str]:
    return plain(run_details(view, Caller(), NOW))


def test_refusals_and_retries_of_a_client_stand_beside_the_tries() -> None:
    steps = [step("a#0", attempts=3, refusals=2, inner="openai"), step("b#1")]
    heading, first, second = plain(timeline(run(steps=steps), NOW))
    assert first[heading.index("TRIES") :].startswith("3+2 refused  ")
    assert first.endswith("completed, client retried too: openai")
    assert second[heading.index("TRIES") :].startswith("1   ")


def test_costs_have_a_column_only_if_there_are_any() -> None:
    paid = [step("a#0", cost=PRICE), step("b#1", cost=Usage()), step("c#2")]
    heading, *lines = plain(timeline(run(steps=paid), NOW))
    column = heading.index("COST")
    said = [line[column:].split("  ")[0] for line in lines]
    assert said == ["0.30 USD, 1200 tokens", "USD unknown, tokens unknown", "-"]
    assert "COST" not in plain(timeline(run(steps=[step("a#0")]), NOW))[0]


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (None, "-"),
        (Usage(Decimal(0), 0), "0.00 USD"),
        (Usage(Decimal("0.000125"), 0), "0.000125 USD"),
        (Usage(None, 7), "USD unknown, 7 tokens"),
        (Usage(Decimal(1), None), "1.00 USD, tokens unknown"),
    ],
)
def test_a_cost_in_words_never_makes_nothing_of_unknown(usage: Usage | None, text: str) -> None:
    assert cost(usage) == text


def test_the_last_failure_says_which_class_it_is_of_and_why() -> None:
    failed = step(
        "a#0", status="failed", error="E: no", fault="transient", fault_reason="no connection"
    )
    (_, line) = plain(timeline(run(steps=[failed]), NOW))
    assert line.endswith("failed: E: no (transient: no connection)")


def waiting(**fields: object) -> RunView:
    pay = step(
        "pay#1", status="interrupted", ended=None, error="E: no", retry_at=NOW + 90, **fields
    )
    return run(status="waiting", due_at=NOW + 90, steps=[step("a#0"), pay])


def test_a_run_says_for_which_breaker_it_waits_or_what_is_tried_again() -> None:
    refused = lines_of(waiting(breaker="the bank"))
    assert any(
        line.startswith("It waits until ")
        and line.endswith("(in 1 min 30 s): breaker the bank does not let pay#1 be called.")
        for line in refused
    )
    failed = lines_of(waiting())
    assert any(line.endswith("(in 1 min 30 s): pay#1 is tried again then.") for line in failed)
    (table_line,) = [line for line in failed if line.startswith("pay#1 ")]
    assert "waiting until " in table_line
    assert table_line.endswith(": E: no")


def test_a_run_whose_timer_is_due_before_a_retry_sleeps() -> None:
    pay = step("pay#1", status="running", ended=None, retry_at=NOW + 90)
    lines = advice(run(status="waiting", due_at=NOW + 30, steps=[pay]), Caller(), NOW)
    assert lines[0].startswith("It sleeps until ")


@pytest.mark.parametrize(
    ("fix", "command"),
    [
        ("To go on: outlast resume x --add calls=AMOUNT", ["--add", "calls=AMOUNT"]),
        ("To go on: outlast resume x --charge usd=AMOUNT", ["--charge", "usd=AMOUNT"]),
        (None, ["--add", "usd=AMOUNT"]),
    ],
)
def test_a_run_over_budget_says_how_to_raise_the_limit_that_it_has_reached(
    fix: str | None, command: list[str]
) -> None:
    view = run(run_id="my run", status="held", reason="over-budget", fix=fix)
    lines = advice(view, Caller("sqlite:///a b.db"), NOW)
    start = ["outlast", "--store", "sqlite:///a b.db", "resume", "my run"]
    assert words_of(lines) == [[*start, *command], start]


def test_a_budget_stands_above_the_steps_and_in_numbers_in_json() -> None:
    spending = Spending(
        limits={"usd": Decimal("Infinity"), "seconds": 1.5},
        left={"usd": Decimal("Infinity"), "seconds": 0.0},
        settled=PRICE,
        reserved=Usage(Decimal(0), 0),
        calls=3,
        steps=2,
        turns=0,
        seconds=1.5,
        unknown=[],
        unknown_usd=0,
        unknown_tokens=0,
    )
    steps = [step("a#0", cost=PRICE)]
    view = run(budget=["any amount of USD", HOSTILE], spending=spending, steps=steps)
    lines = lines_of(view)
    assert "budget: any amount of USD" in lines
    assert all(line.isprintable() for line in lines)
    numbers = json.loads(json.dumps(run_json(view)))
    assert numbers["spending"]["limits"] == {"usd": "unlimited", "seconds": 1.5}
    assert numbers["spending"]["settled"] == {"usd": "0.30", "tokens": 1200}
    assert numbers["steps"][0]["cost"] == {"usd": "0.30", "tokens": 1200}


def test_what_is_under_way_tells_what_it_waits_for() -> None:
    pay = step("pay#1", status="running", ended=None, retry_at=NOW + 90, breaker="bank")
    line = now_doing(run(status="waiting", steps=[pay]))
    assert "breaker bank does not let pay#1 be called" in line
    failed = step("pay#1", status="failed", attempts=2, refusals=3, error="E: no")
    (told,) = plain(Story(None).news(run(status="failed", steps=[failed])))
    assert "2 tries, 3 refused: E: no" in told


EVENTS: list[tuple[Event, str]] = [
    (
        StepRefused("bank", NOW, "E: no", error=ErrorRecord("BreakerOpen", "", "refused")),
        "(E: no): the workflow got BreakerOpen",
    ),
    (StepRefused("bank", NOW, retry_at=NOW), "to be called at "),
    (StepCharged(2, PRICE, settled=True), "attempt 2 cost 0.30 USD, 1200 tokens"),
    (StepCharged(1, Usage(None, 0), "no price"), "attempt 1 reports USD unknown (no price)"),
    (RunBudgeted(declared=Raw(b'{"usd":"2","calls":9}')), "budget declared: usd=2, calls=9"),
    (RunBudgeted(declared=Raw(b'{"usd":"Infinity"}')), "budget declared: usd=unlimited"),
    (RunBudgeted(declared=Raw(b"{}")), "budget declared: no limits"),
    (RunBudgeted(added=Raw(b'{"calls":9}'), by="ann"), "added: calls=9 by ann"),
    (
        RunBudgeted(charged=Usage(Decimal("0.3")), by="ann"),
        "charged for what was unknown: usd=0.3 by ann",
    ),
    (BreakerOpened(NOW, 2, "E: no", "r", "pay#1"), "trip 2, after pay#1 of run r: E: no"),
    (BreakerProbed("r", "pay#1", 3), "let through as a probe: attempt 3 of pay#1 of run r"),
    (BreakerClosed("r", "pay#1"), "closed by the success of pay#1 of run r"),
    (BreakerReset("ann"), "closed by ann, its settings forgotten"),
    (BreakerTripped(NOW), "opened by an operator until "),
    (BreakerDeclared(Raw(b'{"failures":2}'), "pay"), "settings of step pay: failures=2"),
]


@pytest.mark.parametrize(("event", "said"), EVENTS, ids=lambda value: getattr(value, "kind", ""))
def test_the_journal_tells_in_words_what_a_person_looks_for(event: Event, said: str) -> None:
    stored = StoredEvent("@store", 1, event.kind, "bank", event.encode(), STARTED, 0, bytes(32))
    heading, line = plain(journal_lines([stored]))
    assert said in line
    assert heading.split()[4] == "BREAKER"
    damaged = StoredEvent("r", 1, event.kind, "bank", b"{", STARTED, 0, bytes(32))
    assert plain(journal_lines([damaged]))[1].endswith("{")


@pytest.mark.parametrize("until", ["1e300", "-1e+18"])
def test_a_time_that_no_clock_shows_is_a_number(until: str) -> None:
    data = f'{{"until":{until},"trips":1}}'.encode()
    event = StoredEvent("@store", 1, "breaker.opened", "b", data, STARTED, 0, bytes(32))
    assert until.replace("1e300", "1e+300") in plain(journal_lines([event]))[1]


def test_a_breaker_shows_when_it_is_tried_again_and_by_whom() -> None:
    base = BreakerView(HOSTILE, "open", 5, 1, HOSTILE, NOW - 5, NOW + 61, (), Breaker(), ())
    fields = {name: getattr(base, name) for name in BreakerView.__dataclass_fields__}
    closed = BreakerView(**{**fields, "state": "closed", "until": None, "last_fault_at": None})
    ready = BreakerView(**{**fields, "state": "half-open", "until": None})
    probed = BreakerView(**{**fields, "state": "half-open", "until": None, "probes": ("r",)})
    heading, *lines = plain(breaker_list([base, closed, ready, probed], NOW))
    assert all(line.isprintable() for line in lines)
    column = heading.index("NEXT PROBE")
    assert "(in 1 min 01 s)" in lines[0][column:]
    assert lines[0].endswith(", 5.00 s ago")
    assert lines[1].endswith(f"-{' ' * 38}  -        -")
    assert lines[2][column:].startswith("next call")
    assert lines[3][column:].startswith("under way")
    assert lines[3][heading.index("PROBING") :].startswith("r ")


def test_commands_of_a_loop_can_be_pasted() -> None:
    view = run(status="held", reason="looping")
    assert shlex.join(words_of(advice(view, Caller(), NOW))[0]) == "outlast journal ticket-81"
