"""What bounds a call beside its retries: the breaker of its tool and the budget of its run.

Both are asked in the transaction that opens the attempt and told in the one that ends it.
"""

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from outlast.amounts import NOTHING, ZERO, minus, plus
from outlast.breakers import Admission, Report
from outlast.budgets import Charge, CountRefusal, CountTurn, Reserve, Settle, SettleDied, Tick
from outlast.engine.requests import Call
from outlast.engine.run import Run
from outlast.engine.spec import StepSpec
from outlast.events import Event, StepCharged
from outlast.journal import Along
from outlast.policy.breaker import Outcome, Who
from outlast.policy.budget import Account, Ask, Ticket, charge
from outlast.policy.cost import Unpriced, actual_of, estimate_of
from outlast.policy.faults import Fault
from outlast.records import Usage


@dataclass(slots=True)
class Guard:
    """What goes along with one attempt.

    Attributes:
        outcome, fault: for the breaker: what its end says about the tool.
        cost: what it has cost; `estimate` for what was set aside.
        charged: what its body has reported so far.
    """

    ticket: Ticket
    admission: Admission | None
    reserve: Reserve | None
    outcome: Outcome = "neutral"
    fault: str = ""
    cost: Usage | Unpriced | Literal["estimate"] = "estimate"
    charged: Usage = NOTHING

    @property
    def along(self) -> tuple[Along, ...]:
        """What the opening asks, the budget first: it has nothing to give back if the breaker says
        no."""
        return tuple(item for item in (self.reserve, self.admission) if item is not None)


class Bill(Struct, frozen=True):
    """What is written with the end of an attempt, beside the outcome."""

    events: tuple[Event, ...] = ()
    along: tuple[Along, ...] = ()


NO_BILL = Bill()


# ---- before it opens


def has_no_money(run: Run, spec: StepSpec) -> bool:
    """Whether the run has no budget, and the step declares a cost: spend defaults to nothing."""
    cost = spec.cost
    unpaid = run.account is None and cost is not None and cost.actual != NOTHING
    return unpaid and run.dry is None


def timeout(run: Run, spec: StepSpec) -> float | None:
    """Seconds that an attempt may take: its own limit, and what is left of the run's running
    time."""
    account = run.account
    if account is None or account.limits.seconds is None:
        return spec.timeout
    # A trifle more, so that the time is really over when it ends.
    left = max(0.001, account.limits.seconds - run.ran_before - run.ran() + 0.001)
    return left if spec.timeout is None else min(left, spec.timeout)


def time_is_up(run: Run) -> bool:
    """Whether the run has worked for as long as it may."""
    account = run.account
    if account is None or account.limits.seconds is None:
        return False
    return run.ran_before + run.ran() >= account.limits.seconds


def guard_of(run: Run, call: Call, number: int) -> Guard:
    """What the opening of an attempt has to ask."""
    spec = call.spec
    if run.dry is not None:  # nothing opens, and no function of the user's is called
        return Guard(Ticket(run.run_id, call.key, number), None, None)
    admission = None
    if spec.breaker is not None:
        who = Who(run.run_id, run.epoch, call.key, number)
        admission = Admission(spec.breaker, spec.breaker_declared, spec.name, who, run.world)
    ticket = Ticket(run.run_id, call.key, number)
    reserve = None
    if run.account is not None:
        estimate = None if spec.cost is None else estimate_of(spec.cost, call.args, call.kwargs)
        ask = Ask(
            ticket,
            spec.name,
            first=number == 1,
            priced=spec.cost is not None,
            estimate=None if isinstance(estimate, Unpriced) else estimate,
        )
        reserve = run.changes(Reserve(run.run_id, ask, (run.epoch, run.ran())))
    return Guard(ticket, admission, reserve)


def refusal(run: Run) -> tuple[Along, ...]:
    """What a call costs that its breaker refused."""
    return () if run.account is None else (run.changes(CountRefusal(run.run_id)),)


def turn(run: Run, number: int) -> tuple[Along, ...]:
    """What a turn of a loop costs. The first one is counted with the second, as nothing is written
    when a loop begins."""
    if run.account is None:
        return ()
    return tuple(run.changes(CountTurn(run.run_id)) for _ in range(2 if number == 1 else 1))


# ---- how it went


def succeeded(run: Run, call: Call, value: object) -> None:
    """The body has returned."""
    guard = run.guards.get(call.key)
    if guard is None:
        return
    guard.outcome = "success"
    if call.spec.cost is not None and guard.reserve is not None:
        guard.cost = actual_of(call.spec.cost, value, _estimate(guard))
    else:
        guard.cost = guard.charged


def failed(run: Run, key: str, fault: Fault, text: str, *, billed: bool) -> None:
    """The body has raised.

    Args:
        text: the fault in words.
        billed: the tool may have worked, and so may have cost what was thought; otherwise only what
            the body has reported counts.
    """
    guard = run.guards.get(key)
    if guard is None:
        return
    guard.outcome, guard.fault = ("failure" if fault.counts else "neutral"), text
    guard.cost = "estimate" if billed and fault.status is None else guard.charged


def charge_now(run: Run, key: str, number: int, usage: Usage) -> tuple[Along, ...]:
    """What the body of an attempt reports while it runs."""
    guard = run.guards.get(key)
    if guard is None or guard.ticket.attempt != number or guard.reserve is None:
        return ()
    guard.charged = _sum(guard.charged, usage)
    return (run.changes(Charge(run.run_id, guard.ticket, usage)),)


# ---- its end


def settled(run: Run, key: str) -> Bill:
    """What is written with the end of an attempt that this process has opened."""
    guard = run.guards.pop(key, None)
    if guard is None:
        return NO_BILL
    along: list[Along] = []
    if guard.admission is not None:
        asked = guard.admission
        report = Report(
            asked.breaker, asked.who, run.world, asked.period, guard.outcome, guard.fault
        )
        along.append(report)
    if guard.reserve is None:
        return Bill((), tuple(along))
    change = _settlement(run, guard)
    along.append(change)
    if run.account is not None and run.account.limits.seconds is not None:
        along.append(run.changes(Tick(run.run_id, run.run_id, run.epoch, run.ran())))
    charged = charged_event(guard.reserve.result, guard.charged, change, guard.ticket)
    return Bill(() if charged is None else (charged,), tuple(along))


def died(run: Run, key: str, number: int) -> Bill:
    """What is written about an attempt that ended with its process."""
    if run.account is None:
        return NO_BILL
    ticket = Ticket(run.run_id, key, number)
    open_ = run.account.open.get(ticket.id)
    if open_ is None:
        return NO_BILL
    change = run.changes(SettleDied(run.run_id, ticket, "its process ended while it ran"))
    charged = charged_event(run.account, NOTHING, change, ticket)
    return Bill(() if charged is None else (charged,), (change,))


def _settlement(run: Run, guard: Guard) -> Settle | SettleDied:
    match guard.cost:
        case "estimate":
            return run.changes(SettleDied(run.run_id, guard.ticket))
        case Unpriced(why, known):
            return run.changes(Settle(run.run_id, guard.ticket, known, why))
        case cost:
            return run.changes(
                Settle(run.run_id, guard.ticket, cost, "its cost was not told whole")
            )


def charged_event(
    before: Account | None, charged: Usage, change: Settle | SettleDied, ticket: Ticket
) -> StepCharged | None:
    """What the journal says about the cost of an attempt; nothing if it cost nothing.

    Args:
        before: an account in which it is open; `charged`: what it has reported since.
    """
    if before is None or ticket.id not in before.open:
        return None
    if charged != NOTHING:
        before = charge(before, ticket, charged)
    after = change.foresee(before)
    known = before.open[ticket.id].charged
    usd = plus(minus(after.spent_usd, before.spent_usd), known.usd or ZERO)
    tokens = after.spent_tokens - before.spent_tokens + (known.tokens or 0)
    no_usd = after.unknown_usd > before.unknown_usd
    no_tokens = after.unknown_tokens > before.unknown_tokens
    if not (usd or tokens or no_usd or no_tokens):
        return None
    cost = Usage(None if no_usd else usd, None if no_tokens else tokens)
    why = after.unknown[-1].why if (no_usd or no_tokens) and after.unknown else ""
    return StepCharged(ticket.attempt, cost, why, settled=True)


def _estimate(guard: Guard) -> Usage | None:
    return None if guard.reserve is None else guard.reserve.ask.estimate


def _sum(one: Usage, other: Usage) -> Usage:
    usd = plus(one.usd or ZERO, other.usd or ZERO)
    return Usage(usd, (one.tokens or 0) + (other.tokens or 0))
