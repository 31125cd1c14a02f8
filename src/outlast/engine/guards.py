"""What bounds a call beside its retries: the breaker of its tool and the budget of its run.

Both are asked in the transaction that opens the attempt and told in the one that ends it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import Struct

from outlast.amounts import NOTHING, ZERO, minus, plus
from outlast.breakers import Admission, Report, would_let
from outlast.budgets import (
    Charge,
    CountRefusal,
    CountTurn,
    Reserve,
    Settle,
    SettleDied,
    Spend,
    Tick,
)
from outlast.engine.requests import Call
from outlast.engine.run import AttemptInfo, Run
from outlast.engine.sites import warn_at
from outlast.engine.spec import StepSpec
from outlast.events import Event, StepCharged
from outlast.journal import Along
from outlast.policy.breaker import Breaker, Outcome, Who
from outlast.policy.budget import Account, Ask, Ticket, charge
from outlast.policy.cost import Unpriced, actual_of, estimate_of, free_parts
from outlast.policy.faults import Fault
from outlast.records import Usage


@dataclass(slots=True)
class Guard:
    """What goes along with one attempt.

    Attributes:
        admission, reserve: what its opening asks; the latter until it has opened.
        step: name of the step.
        book: once it has opened, an account in which there is nothing but what is set aside for it;
            None if nothing is.
        outcome, fault: for the breaker: what its end says about the tool.
        cost: what it has cost; `estimate` for what was set aside. `worked`: the tool did what it is
            paid for.
        charged: what its body has reported so far.
    """

    ticket: Ticket
    admission: Admission | None
    reserve: Reserve | None
    step: str = ""
    book: Account | None = None
    outcome: Outcome = "neutral"
    fault: str = ""
    cost: Usage | Unpriced | Literal["estimate"] = "estimate"
    worked: bool = True
    charged: Usage = NOTHING

    @property
    def along(self) -> tuple[Along, ...]:
        """What the opening asks, the budget first: it has nothing to give back if the breaker says
        no."""
        return tuple(item for item in (self.reserve, self.admission) if item is not None)

    def opened(self) -> None:
        """The opening was written. Of the account only what concerns this attempt is kept: there
        may be thousands under way."""
        result = None if self.reserve is None else self.reserve.result
        if result is None:
            return
        entry = result.open.get(self.ticket.id)
        self.reserve = None
        if entry is not None:
            self.book = Account(
                declared=result.declared,
                added=result.added,
                bound=result.bound,
                open={self.ticket.id: entry},
            )


LONGEST_WAIT = 1e6
"""Seconds; the clocks of some systems cannot wait for much more."""


class Bill(Struct, frozen=True):
    """What is written with the end of an attempt, beside the outcome."""

    events: tuple[Event, ...] = ()
    along: tuple[Along, ...] = ()


NO_BILL = Bill()


# ---- before it opens


def has_no_money(run: Run, spec: StepSpec) -> bool:
    """Whether the run has no budget, and the step declares a cost: spend defaults to nothing."""
    cost = spec.cost
    unpaid = run.purse.account is None and cost is not None and cost.actual != NOTHING
    return unpaid and run.dry is None


def timeout(run: Run, spec: StepSpec) -> float | None:
    """Seconds that an attempt may take: its own limit, and what is left of the run's running
    time."""
    account = run.purse.account
    if account is None or account.limits.seconds is None or spec.undoes:
        return spec.timeout
    # A trifle more, so that the time is really over when it ends.
    left = max(0.001, account.limits.seconds - run.purse.ran_before - run.ran() + 0.001)
    if left > LONGEST_WAIT:
        return spec.timeout
    return left if spec.timeout is None else min(left, spec.timeout)


def time_is_up(run: Run) -> bool:
    """Whether the run has worked for as long as it may."""
    account = run.purse.account
    if account is None or account.limits.seconds is None:
        return False
    return run.purse.ran_before + run.ran() >= account.limits.seconds


def may_be_called(run: Run, call: Call, breaker: str) -> Callable[[], bool]:
    """Whether a call that its breaker has refused would be let through, asked without a write: the
    tool may have recovered, or an operator has said so."""
    settings = replace(call.spec.breaker or Breaker(), name=breaker)

    def asked() -> bool:
        return would_let(run.store, settings)

    return asked


def guard_of(run: Run, call: Call, number: int) -> Guard:
    """What the opening of an attempt has to ask."""
    spec = call.spec
    if run.dry is not None:  # nothing opens, and no function of the user's is called
        return Guard(Ticket(run.run_id, call.key, number), None, None)
    admission = None
    if spec.breaker is not None:
        who = Who(run.run_id, run.epoch, call.key, number)
        admission = Admission(
            spec.breaker, spec.breaker_declared, spec.tool or spec.name, who, run.world
        )
    ticket = Ticket(run.run_id, call.key, number)
    reserve = None
    if run.purse.account is not None and not spec.undoes:  # no limit keeps a run from being undone
        ask = Ask(
            ticket,
            spec.name,
            first=number == 1,
            priced=spec.cost is not None,
            estimate=_estimate(call),
            free=() if spec.cost is None else free_parts(spec.cost),
        )
        ran = None
        if run.purse.account.limits.seconds is not None:
            ran = (run.purse.run_id, run.purse.epoch, run.ran())
        reserve = run.purse.changes(Reserve(run.account_id, ask, ran))
    return Guard(ticket, admission, reserve, spec.name)


def _estimate(call: Call) -> Usage | None:
    """What an attempt of the call will cost, as far as anybody says."""
    spec = call.spec
    if spec.cost is None:
        return None
    args, kwargs = call.args, call.kwargs
    if callable(spec.cost.estimate):  # takes the step's arguments, with their defaults
        bound = spec.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args[spec.is_method :], bound.kwargs
    estimate = estimate_of(spec.cost, args, kwargs)
    if isinstance(estimate, Unpriced):
        warn_at(call.site, f"step {spec.name}: {estimate.why}; it goes without an estimate")
        return None
    return estimate


def refusal(run: Run) -> tuple[Along, ...]:
    """What a call costs that its breaker refused."""
    return () if run.purse.account is None else (run.purse.changes(CountRefusal(run.account_id)),)


def turn(run: Run, number: int) -> tuple[Along, ...]:
    """What a turn of a loop costs. The first one is counted with the second, as nothing is written
    when a loop begins."""
    if run.purse.account is None:
        return ()
    return tuple(
        run.purse.changes(CountTurn(run.account_id)) for _ in range(2 if number == 1 else 1)
    )


# ---- how it went


def succeeded(run: Run, call: Call, value: object) -> None:
    """The body has returned."""
    guard = run.guards.get(call.key)
    if guard is None:
        return
    guard.outcome = "success"
    guard.cost = guard.charged
    if call.spec.cost is not None and guard.book is not None:
        estimate = _estimate(call) if call.spec.cost.actual is None else None
        guard.cost = actual_of(call.spec.cost, value, estimate)


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
    answered = fault.status is not None and fault.status >= 400  # refused, so not worked on
    guard.worked = billed and not answered
    guard.cost = "estimate" if guard.worked else guard.charged


def charge_now(run: Run, attempt: AttemptInfo, usage: Usage) -> Bill:
    """What the body of an attempt reports while it runs. One that has outlived its attempt, or a
    reconcile function, spends all the same."""
    number, guard = attempt.number, run.guards.get(attempt.key)
    if run.purse.account is None:
        return Bill((StepCharged(number, usage),))
    if guard is None or guard.ticket.attempt != number:
        spent = Spend(run.account_id, usage)
        return Bill((StepCharged(number, usage, settled=True),), (run.purse.changes(spent),))
    guard.opened()
    guard.charged = _sum(guard.charged, usage)
    if guard.book is None:  # of a step that declares no cost: it is no part of a settlement
        spent = Spend(run.account_id, usage, guard.step, guard.charged)
        return Bill((StepCharged(number, usage, settled=True),), (run.purse.changes(spent),))
    return Bill(
        (StepCharged(number, usage),),
        (run.purse.changes(Charge(run.account_id, guard.ticket, usage)),),
    )


# ---- its end


def settled(run: Run, key: str) -> Bill:
    """What is written with the end of an attempt that this process has opened."""
    guard = run.guards.pop(key, None)
    if guard is None:
        return NO_BILL
    along: list[Along] = []
    asked = guard.admission
    if asked is not None and (asked.probe or guard.outcome == "failure"):
        report = Report(
            asked.breaker, asked.who, run.world, asked.period, guard.outcome, guard.fault
        )
        along.append(report)
    guard.opened()
    if run.purse.account is not None and run.purse.account.limits.seconds is not None:
        purse = run.purse
        along.append(purse.changes(Tick(run.account_id, purse.run_id, purse.epoch, run.ran())))
    if guard.book is None:
        return Bill((), tuple(along))
    change = _settlement(run, guard)
    along.append(change)
    charged = charged_event(guard.book, guard.charged, change, guard.ticket)
    return Bill(() if charged is None else (charged,), tuple(along))


def died(run: Run, key: str, number: int) -> Bill:
    """What is written about an attempt that ended with its process."""
    if run.purse.account is None:
        return NO_BILL
    ticket = Ticket(run.run_id, key, number)
    open_ = run.purse.account.open.get(ticket.id)
    if open_ is None:
        return NO_BILL
    change = run.purse.changes(SettleDied(run.account_id, ticket, "its process ended while it ran"))
    charged = charged_event(run.purse.account, NOTHING, change, ticket)
    return Bill(() if charged is None else (charged,), (change,))


def gone_with(run: Run, gone: Collection[str]) -> Bill:
    """What is written with the end of a child that was killed about attempts of it, and of its own
    children, that have something set aside. Their journals have come to their end.

    Args:
        gone: the ids of them all.
    """
    account = run.purse.account
    if account is None:
        return NO_BILL
    events: list[Event] = []
    along: list[Along] = []
    for ticket in map(Ticket.parse, account.open):
        if ticket.run_id in gone:
            change = run.purse.changes(SettleDied(run.account_id, ticket, "its run was killed"))
            charged = charged_event(account, NOTHING, change, ticket)
            events += [] if charged is None else [charged]
            along.append(change)
    return Bill(tuple(events), tuple(along))


def worked(run: Run, epoch: int, since: float, until: float) -> Tick:
    """Note for how long, at least, attempts of an earlier owner were under way when it died."""
    assert run.purse.account is not None
    known = run.purse.account.running.get(run.run_id)
    before = known.seconds if known is not None and known.epoch == epoch else 0.0
    seconds = before + run.purse.lost(since, until)
    return run.purse.changes(Tick(run.account_id, run.run_id, epoch, seconds))


def _settlement(run: Run, guard: Guard) -> Settle | SettleDied:
    match guard.cost:
        case "estimate":
            return run.purse.changes(SettleDied(run.account_id, guard.ticket))
        case Unpriced(why, known):
            return run.purse.changes(Settle(run.account_id, guard.ticket, known, why))
        case cost:
            return run.purse.changes(
                Settle(
                    run.account_id, guard.ticket, cost, "its cost was not told whole", guard.worked
                )
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
    actual = change.actual if isinstance(change, Settle) else None
    if actual is not None and actual.usd is not None and actual.tokens is not None:
        usd = max(actual.usd, charged.usd or ZERO)
        tokens = max(actual.tokens, charged.tokens or 0)
        known = Usage(usd, tokens)
        return StepCharged(ticket.attempt, known, settled=True) if usd or tokens else None
    if charged != NOTHING:
        before = charge(before, ticket, charged)
    after = change.foresee(before)
    told = before.open[ticket.id].charged
    usd = plus(minus(after.spent_usd, before.spent_usd), told.usd or ZERO)
    tokens = after.spent_tokens - before.spent_tokens + (told.tokens or 0)
    no_usd = after.unknown_usd > before.unknown_usd
    no_tokens = after.unknown_tokens > before.unknown_tokens
    if not (usd or tokens or no_usd or no_tokens):
        return None
    cost = Usage(None if no_usd else usd, None if no_tokens else tokens)
    why = change.why if no_usd or no_tokens else ""
    return StepCharged(ticket.attempt, cost, why, settled=True)


def _sum(one: Usage, other: Usage) -> Usage:
    usd = plus(one.usd or ZERO, other.usd or ZERO)
    return Usage(usd, (one.tokens or 0) + (other.tokens or 0))
