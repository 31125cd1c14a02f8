"""What must hold for retries, breakers and budgets, whatever happened; see `checkers`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from outlast import events
from outlast.amounts import ZERO, plus
from outlast.cuts import UNDO
from outlast.journal import first_altered
from outlast.policy.breaker import Breaker
from outlast.records import StoredEvent, Usage

if TYPE_CHECKING:
    from tests.checkers import Evidence

Journal = Sequence[tuple[StoredEvent, events.Event]]
Probe = tuple[str, str, int]
"""Run, key and attempt."""


# ---- attempts


def attempts_stay_below_their_limit(seen: "Evidence") -> Iterator[str]:
    """Over all lives of the run. Attempts that died with their process count too, though after one
    of those alone the step is made again: how often is the crash loop's business."""
    for key, steps in seen.by_step():
        limit = seen.attempts.get(key.rpartition("#")[0])
        if limit is None:
            continue
        used = 0
        for event in steps:
            used += isinstance(event, events.StepFailed)
            used += isinstance(event, events.StepInterrupted) and event.crash
            if isinstance(event, events.StepFailed) and not event.final and used >= limit:
                yield f"{key}: attempt {event.attempt} is to be followed, {used} of {limit} failed"


# ---- the account


@dataclass
class Fold:
    """What a journal says about the account of its run."""

    usd: Decimal = ZERO
    tokens: int = 0
    calls: int = 0
    steps: int = 0
    turns: int = 0
    unknown: bool = False
    reported: dict[str, Usage] = field(default_factory=dict)


def account_is_the_fold_of_its_journal(seen: "Evidence") -> Iterator[str]:
    """Nothing is counted that is not told, and all that is told is counted."""
    account = seen.account
    if account is None:
        if any(isinstance(event, events.RunBudgeted) for _, event in seen.journal):
            yield "the run has a budget and no account"
        return
    fold = fold_of(seen.journal)
    for journal in seen.below:
        fold_of(journal, fold, whole=True)
    usd, tokens = fold.usd, fold.tokens
    for entry in account.open.values():  # a killed run's; what its body had reported counts
        usd, tokens = plus(usd, entry.charged.usd or ZERO), tokens + (entry.charged.tokens or 0)
    told, kept = (usd, tokens), (account.spent_usd, account.spent_tokens)
    if kept != told:
        yield f"the account has {kept} settled, the journal {told}"
    for name in ("calls", "steps", "turns"):
        if getattr(account, name) != getattr(fold, name):
            yield f"the account has {getattr(account, name)} {name}, not {getattr(fold, name)}"
    if account.open and seen.row.owner is None and seen.row.status in ("completed", "failed"):
        yield f"the run has ended, and this is reserved: {sorted(account.open)}"


def fold_of(journal: Journal, fold: Fold | None = None, *, whole: bool = False) -> Fold:
    """The account as a run's journal tells of it, on top of what is known. `whole`: from its first
    event on."""
    fold = fold or Fold()
    for stored, event in journal[0 if whole else _since(journal) :]:
        if (stored.key or "").rpartition("#")[2].startswith(UNDO):
            continue  # compensations take nothing from a budget but what they report
        match event:
            case events.StepStarted() if stored.epoch > 0:  # a fork's copies cost nothing
                fold.calls += 1
                fold.steps += event.attempt == 1
            case events.StepRefused() if stored.epoch > 0:
                fold.calls += 1
            case events.TurnSaved() if stored.epoch > 0:
                fold.turns += 2 if event.turn == 1 else 1
            case events.StepCharged(settled=True):
                _charge(fold, event.cost)
                fold.unknown |= bool(event.unknown)
            case events.RunBudgeted() if event.charged is not None:
                _charge(fold, event.charged)
            case _:
                pass
    return fold


def _since(journal: Journal) -> int:
    """From where on there was an account. One that an operator made counts from the next claim."""
    topped_up = False
    for place, (_, event) in enumerate(journal):
        if isinstance(event, events.RunBudgeted):
            if bytes(event.declared):
                return place
            topped_up = True
        elif topped_up and isinstance(event, events.RunClaimed):
            return place
    return len(journal)


def _charge(fold: Fold, cost: Usage) -> None:
    fold.usd = plus(fold.usd, cost.usd or ZERO)
    fold.tokens += cost.tokens or 0


def limits_hold(seen: "Evidence") -> Iterator[str]:
    """Money and tokens may pass their limit by what an attempt cost more than its estimate, or by
    what its body reported; what is counted one by one never does."""
    account = seen.account
    if account is None or _was_lowered(seen.journal):
        return
    limits = account.limits
    for name in ("calls", "steps", "turns"):
        limit = getattr(limits, name)
        if limit is not None and getattr(account, name) > limit:
            yield f"{getattr(account, name)} {name} of {limit}"
    if seen.estimates_hold:
        usd, tokens = account.spent_usd, account.spent_tokens
        if limits.usd is not None and plus(usd, account.reserved.usd or ZERO) > limits.usd:
            yield f"{usd} USD spent, {account.reserved.usd} reserved of {limits.usd}"
        if limits.tokens is not None and tokens + (account.reserved.tokens or 0) > limits.tokens:
            yield f"{tokens} tokens spent, {account.reserved.tokens} reserved of {limits.tokens}"


def _was_lowered(journal: Journal) -> bool:
    """Whether the code came to declare less than it did."""
    declared = [
        bytes(event.declared)
        for _, event in journal
        if isinstance(event, events.RunBudgeted) and bytes(event.declared)
    ]
    return any(one != other for one, other in pairwise(declared))


# ---- the breakers of the store


@dataclass(frozen=True)
class StoreEvidence:
    """The journal of the store as a whole, and when the attempts that were probes ended, each with
    the kind of its ending."""

    journal: Journal = ()
    endings: dict[Probe, list[tuple[float, str]]] = field(default_factory=dict)


@dataclass
class _Seen:
    """A breaker on its way through the journal."""

    probes: int = 1
    is_open: bool = False
    probed: bool = False
    holders: list[tuple[float, Probe]] = field(default_factory=list)

    def begins_anew(self, *, is_open: bool) -> None:
        self.is_open, self.probed, self.holders = is_open, False, []


def breakers_keep_their_rules(seen: "Evidence") -> Iterator[str]:
    """Only probes decide about an open breaker, and no more of them at a time than there are
    places."""
    breakers: dict[str, _Seen] = {}
    for stored, event in seen.store.journal:
        breaker = breakers.setdefault(str(stored.key), _Seen())
        where = f"event {stored.seq} of the store: {event.kind} of {stored.key}"
        match event:
            case events.BreakerDeclared():
                breaker.probes = msgspec.json.decode(bytes(event.settings), type=Breaker).probes
            case events.BreakerOpened() | events.BreakerClosed():
                if isinstance(event, events.BreakerClosed) and not breaker.is_open:
                    yield f"{where}, which was closed"
                elif breaker.is_open and not breaker.probed:
                    yield f"{where}, of which nobody was a probe"
                breaker.begins_anew(is_open=isinstance(event, events.BreakerOpened))
            case events.BreakerTripped() | events.BreakerReset():
                breaker.begins_anew(is_open=isinstance(event, events.BreakerTripped))
            case events.BreakerProbed(run_id=run_id, step=step, attempt=attempt):
                if not breaker.is_open:
                    yield f"{where}, which was closed"
                breaker.probed = True
                breaker.holders.append((stored.at, (run_id, step, attempt)))
                alive = _alive(seen.store, breaker.holders, stored.at)
                if len(alive) > breaker.probes:
                    yield f"{where}: {len(alive)} probes at a time: {alive}"
            case _:
                pass


def _alive(store: StoreEvidence, holders: Iterable[tuple[float, Probe]], now: float) -> list[Probe]:
    """The probes that were surely under way then: they came to an end of their own later."""
    alive = []
    for since, probe in holders:
        ends = [(at, kind) for at, kind in store.endings.get(probe, ()) if at >= since]
        if ends and ends[0][0] > now and ends[0][1] != events.StepInterrupted.kind:
            alive.append(probe)
    return alive


def the_store_has_one_chain(seen: "Evidence") -> Iterator[str]:
    stored = [event for event, _ in seen.store.journal]
    if [event.seq for event in stored] != list(range(1, len(stored) + 1)):
        yield f"the store's events are numbered {[event.seq for event in stored]}"
    altered = first_altered(stored)
    if altered is not None:
        yield f"event {altered.seq} of the store ({altered.kind}) was altered"


# ---- refusals


def refused_calls_open_nothing(seen: "Evidence") -> Iterator[str]:
    """A call that got `BreakerOpen` is over, and one that waits is tried again."""
    for key, steps in seen.by_step():
        for before, after in pairwise(steps):
            over = isinstance(before, events.StepRefused) and before.error is not None
            if over and not isinstance(after, events.StepAbandoned):
                yield f"{key}: {after.kind} after it was refused for good"
    for stored, event in seen.journal:
        if isinstance(event, events.StepRefused) and (event.error is None) == (not event.retry_at):
            yield f"{stored.key}: a refusal either ends the call or says when it is tried again"
