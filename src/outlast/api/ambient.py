"""What code inside a run can ask for: time, chance, identity, durable waits."""

import asyncio
import hashlib
import logging
import random as random_module
import sys
import uuid
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TypeVar, cast

from outlast.engine.drive import drive_sync
from outlast.engine.guards import charge_now
from outlast.engine.requests import Flow, Write
from outlast.engine.run import AttemptInfo
from outlast.engine.scope import ATTEMPT, SCOPE, Scope
from outlast.engine.sites import call_site
from outlast.engine.waits import Pending, recorded_value, run_sleep
from outlast.engine.waits import patched as patched_in_run
from outlast.errors import OutsideRun, UsageError
from outlast.journal import Entry
from outlast.policy.cost import reported
from outlast.records import Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Current:
    """Where the running code stands.

    Attributes:
        run_id: the run.
        step: key of the step whose body runs; None in workflow code.
        attempt: number of the attempt, from 1; None in workflow code.
        deadline: when the attempt times out, in seconds since the epoch; None without a timeout.
        replaying: recorded calls of the running task, and of those that it started, are still to
            be repeated from the journal. False in the body of a step.
        trace_id: 32 hexadecimal digits, the same in every life of the run.
        tags: as given when the run was created.
    """

    run_id: str
    step: str | None
    attempt: int | None
    deadline: float | None
    replaying: bool
    trace_id: str
    tags: Mapping[str, str]


def current() -> Current:
    """Where the running code stands.

    Raises:
        OutsideRun: not in a run.
    """
    scope = _scope("current")
    run, attempt = scope.run, ATTEMPT.get()
    return Current(
        run_id=run.run_id,
        step=attempt.key if attempt else None,
        attempt=attempt.number if attempt else None,
        deadline=attempt.deadline if attempt else None,
        replaying=attempt is None and run.history.replaying(scope.prefix),
        trace_id=run.row.trace_id,
        tags=MappingProxyType(run.row.tags),
    )


def idempotency_key() -> str:
    """The key under which the running step's effect is known outside: 32 hexadecimal digits.

    All attempts of one step of one run have the same key, in every process; any other step has
    another one.

    Raises:
        OutsideRun: not in the body of a step.
    """
    attempt = ATTEMPT.get()
    if attempt is None:
        raise OutsideRun("outlast.idempotency_key() has a value only inside a step of a run")
    return attempt.idempotency_key


def now() -> datetime:
    """The current time, in UTC. In workflow code it is recorded, so that a replay sees the same."""
    scope = SCOPE.get()
    if scope is None or ATTEMPT.get() is not None:
        return datetime.now(UTC)
    world = scope.run.world
    value = recorded_value(scope, "now", lambda: datetime.fromtimestamp(world.wall(), UTC))
    return cast(datetime, value)


def random() -> float:
    """A number in [0, 1). In workflow code a replay sees the same."""
    seed = _draw()
    return random_module.random() if seed is None else random_module.Random(seed).random()


def uuid4() -> uuid.UUID:
    """A random UUID. In workflow code a replay sees the same."""
    seed = _draw()
    return uuid.uuid4() if seed is None else uuid.UUID(bytes=seed[:16], version=4)


def _draw() -> bytes | None:
    """Random bytes that follow from the run and the position alone, so nothing need be recorded.
    None outside workflow code."""
    scope = SCOPE.get()
    if scope is None or ATTEMPT.get() is not None:
        return None
    run = scope.run
    run.check()
    seed = run.history.seed or run.row.uid
    return hashlib.sha256(f"{seed}\n{scope.draw()}".encode()).digest()


def patched(name: str) -> bool:
    """Whether this run takes new code, where old runs and new ones must differ:

        if outlast.patched("2026-12-tax"):
            due = await tax_by_region(order)
        else:
            due = await tax(order)

    A run has one answer for a name, in every turn and every process. It is recorded when it is
    first asked for: False if recorded calls are still to be repeated then, since the run has been
    past this point with the old code, else True. The question has no key, so to add it or to
    remove it shifts no call. Outside a run the answer is True.

    Args:
        name: of the change.

    Raises:
        UsageError: in the body of a step (decide in the workflow, and pass the answer on), or the
            name is not printable text.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"outlast.patched({name!r}): a name of printable text is expected")
    scope, attempt = SCOPE.get(), ATTEMPT.get()
    if scope is None:
        return True
    if attempt is not None:
        raise UsageError(
            f"run {scope.run.run_id}: outlast.patched({name!r}) was called in step {attempt.key}; "
            "ask in the workflow, where the answer is recorded, and pass it to the step"
        )
    return patched_in_run(scope, name)


def sleep(seconds: float) -> Pending[None]:
    """A durable timer: after a crash, only the rest is waited for.

    Use `await outlast.sleep(60)`, or `outlast.sleep(60).result()` in plain code.

    Raises:
        OutsideRun: not in workflow code.
        UsageError: `seconds` is negative or not a finite number.
    """
    if not 0 <= seconds <= sys.float_info.max:
        raise UsageError(f"outlast.sleep({seconds!r}): a finite number of seconds is expected")
    scope = _scope("sleep")
    if ATTEMPT.get() is not None:
        raise OutsideRun(
            "outlast.sleep() is for workflow code; inside a step use an ordinary sleep"
        )
    scope.run.check()
    flow = run_sleep(scope.run, scope.take(), float(seconds), call_site(scope))
    return Pending(scope.run, scope, "sleep", flow)


def charge(*, usd: Decimal | float | str | None = None, tokens: int | None = None) -> None:
    """Report what the running attempt has cost so far, on top of what it has reported before.

    It counts at once, whatever becomes of the attempt: an error later on, or the end of the
    process. If the step declares a cost of its own as well, the larger of the two is charged.

    Args:
        usd: US dollars. tokens: tokens of a model.

    Raises:
        OutsideRun: not in the body of a step of a run.
        UsageError: this is no cost.
    """
    attempt = ATTEMPT.get()
    if attempt is None:
        raise OutsideRun("outlast.charge() is for the body of a step, in a run")
    try:
        usage = reported(Decimal(usd) if isinstance(usd, str) else usd, tokens)
    except (ValueError, ArithmeticError) as problem:
        raise UsageError(f"outlast.charge(): {problem}") from None
    drive_sync(_charged(attempt, usage), attempt.run)


def _charged(attempt: AttemptInfo, usage: Usage) -> Flow:
    bill = charge_now(attempt.run, attempt, usage)
    entries = tuple(Entry(event, attempt.key) for event in bill.events)
    yield Write(entries, "record", durable=False, along=bill.along)
    return None


def _scope(name: str) -> Scope:
    scope = SCOPE.get()
    if scope is None:
        raise OutsideRun(f"outlast.{name}() was called outside a run")
    return scope


def as_completed(awaitables: Iterable[Awaitable[T]]) -> Iterator[Awaitable[T]]:
    """`asyncio.as_completed` for workflow code: the tasks get their places in the given order, and
    a replay yields them in the recorded order of completion.

    Use `for pending in outlast.as_completed(calls): result = await pending`.
    """
    return asyncio.as_completed([asyncio.ensure_future(awaitable) for awaitable in awaitables])


class LogFilter(logging.Filter):
    """Adds `run_id`, `step`, `attempt` and `trace_id` to log records, and drops what workflow code
    logs again while it replays.

    Attach it to a handler: `handler.addFilter(outlast.LogFilter())`. Outside a run the fields are
    empty strings.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        scope = SCOPE.get()
        here = current() if scope is not None else None
        record.run_id = here.run_id if here else ""
        record.step = (here.step if here else None) or ""
        record.attempt = (here.attempt if here else None) or ""
        record.trace_id = here.trace_id if here else ""
        return not (here and here.replaying)
