"""Whether a tool that failed lately is called, and how what becomes of a call counts.

A breaker is *closed* until `failures` failures lie within `window` seconds. Then it is *open* and
nobody is let through. `cooldown` seconds after that trip it is *half-open*: it lets `probes` calls
through. When so many of them have succeeded it closes; one that fails opens it again. A call that
says nothing about the tool (a *neutral* outcome) neither opens nor closes it, and gives its place
back.

Each opening and each closing begins a new *period*. What becomes of a call that was let through in
an earlier one changes nothing, nor what becomes of a probe that has lost its place.

Everything here is a pure function; `outlast.breakers` keeps the states.
"""

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

OnOpen = Literal["fail", "wait"]
Phase = Literal["closed", "open", "half-open"]
Outcome = Literal["success", "failure", "neutral"]

MOST = 1000
"""Failures and probes are remembered one by one."""

LONGEST = 1e9
"""Seconds; what is added to a clock has to stay a time that can be written down."""

PROBE = 60.0
"""Seconds after which to ask again, at the latest, while others try whether the tool works."""

SKEW = 60.0
"""Seconds by which the wall clocks of two machines may well differ."""

FAULT_CHARS = 300
"""What is kept of the text of a fault."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a tool that keeps failing is left alone, for all runs and processes of a store together.

    Attributes:
        name: who gives the same one shares the breaker; None for the name of the step.
        failures: how many failures within `window` open it; at most 1000.
        window: seconds for which a failure counts.
        cooldown: seconds after the trip until it is tried again. Failures of calls that were under
            way do not push it back.
        probes: how many calls are let through then, at most 1000. All of them have to succeed for
            the breaker to close; the first that fails opens it again.
        max_trips: after so many trips in a row, without having closed in between, a call with
            `on_open="wait"` waits no longer and fails. The tool is tried all the same after each
            cool-down.
        on_open: what a call does that is not let through: `fail` raises `BreakerOpen`, `wait`
            parks the run until the cool-down is over.

    Raises:
        ValueError: a setting makes no sense; it is named.
    """

    name: str | None = None
    failures: int = 5
    window: float = 60.0
    cooldown: float = 30.0
    probes: int = 1
    max_trips: int = 3
    on_open: OnOpen = "fail"

    def __post_init__(self) -> None:
        if self.name is not None:
            _check_name(self.name)
        _check_whole("failures", self.failures, MOST)
        _check_whole("probes", self.probes, MOST)
        _check_whole("max_trips", self.max_trips, 10**9)
        _check_seconds("window", self.window)
        _check_seconds("cooldown", self.cooldown)
        if self.on_open not in ("fail", "wait"):
            raise ValueError(f"Breaker(on_open={self.on_open!r}): 'fail' or 'wait' is expected")


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"Breaker(name={name!r}): a text that is not empty is expected")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"Breaker(name={name!r}): it has characters that no text has") from None


def _check_whole(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"Breaker({name}={value!r}): a whole number from 1 to {most} is expected")


def _check_seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Breaker({name}={value!r}): a number of seconds is expected")
    if not 0 < value <= LONGEST:
        raise ValueError(f"Breaker({name}={value}): more than 0 and at most 1e9 s is expected")


class Moment(Struct, frozen=True):
    """A point in time as a process sees it: by the wall clock, which may be set in either
    direction, and in seconds since the boot named by `boot_id`."""

    wall: float
    boot: float
    boot_id: str


class Who(Struct, frozen=True):
    """An attempt: number `attempt` of step `key`, opened by the owner of that epoch."""

    run_id: str
    epoch: int
    key: str
    attempt: int


class State(Struct, frozen=True, omit_defaults=True):
    """What is remembered of a breaker; its times are in seconds of its own, which never go back.

    Attributes:
        t: those seconds as they were at `clock`, when the state was changed last.
        period: grows with each opening and each closing.
        tripped: when it was opened; None if it is closed.
        cooldown: of this trip, if an operator chose one.
        failures: when the last ones were.
        needed: how many failures open it, by the settings of the step that failed last.
        trips: how often it was opened by failures since it was closed.
        probes: who holds a place; `passed`: how many have succeeded since the cool-down.
        fault: text of the last fault; `faulted`: when that was, by the wall clock.
    """

    t: float = 0.0
    clock: Moment | None = None
    period: int = 0
    tripped: float | None = None
    cooldown: float | None = None
    failures: tuple[float, ...] = ()
    needed: int = 0
    trips: int = 0
    probes: tuple[Who, ...] = ()
    passed: int = 0
    fault: str = ""
    faulted: float | None = None

    @property
    def closed(self) -> bool:
        """Whether everybody is let through."""
        return self.tripped is None


class Admitted(Struct, frozen=True):
    """The call may be made. `probe`: it holds a place; `state` then says so and has to be kept."""

    state: State
    probe: bool


class Refused(Struct, frozen=True):
    """The call is not made.

    Attributes:
        until: when to ask again, by the wall clock; `retry_in`: in seconds from now. That is the
            end of the cool-down; while all places are taken, one cool-down from now, at most a
            minute.
        fault: the last fault of the tool.
        final: the breaker was opened `max_trips` times in a row, so that waiting is of no use.
    """

    until: float
    retry_in: float
    fault: str
    final: bool


def phase(breaker: Breaker, state: State, now: Moment) -> Phase:
    """Where a breaker stands, although nobody may have called since."""
    if state.tripped is None:
        return "closed"
    # Once somebody was let through it stays half-open, even if the cool-down becomes longer.
    if state.probes or state.passed or _rest(breaker, state, now) <= 0:
        return "half-open"
    return "open"


def reopens(breaker: Breaker, state: State, now: Moment) -> float | None:
    """When the cool-down is over, by the wall clock; None if the breaker is not open."""
    if phase(breaker, state, now) != "open":
        return None
    return now.wall + _rest(breaker, state, now)


def recent(breaker: Breaker, state: State, now: Moment) -> tuple[float, ...]:
    """The failures that still count: those of the last `window` seconds."""
    since = _reading(state, now) - breaker.window
    return tuple(at for at in state.failures if at >= since)


def lets(breaker: Breaker, state: State, now: Moment) -> bool:
    """Whether somebody who asked now would be let through."""
    match phase(breaker, state, now):
        case "closed":
            return True
        case "open":
            return False
    return len(state.probes) < max(1, breaker.probes - state.passed)


def admit(breaker: Breaker, state: State, now: Moment, who: Who) -> Admitted | Refused:
    """Whether an attempt may open. Who is asked about twice has one place."""
    match phase(breaker, state, now):
        case "closed":
            return Admitted(state, probe=False)
        case "open":
            return _refused(breaker, state, now, _rest(breaker, state, now))
    if who in state.probes:
        return Admitted(state, probe=True)
    # At least one, or a breaker that needs fewer probes than it did would never close.
    if len(state.probes) >= max(1, breaker.probes - state.passed):
        return _refused(breaker, state, now, min(breaker.cooldown, PROBE))
    return Admitted(_at(state, now, probes=(*state.probes, who)), probe=True)


def record(
    breaker: Breaker, state: State, now: Moment, who: Who, period: int, outcome: Outcome, fault: str
) -> State:
    """The state after an attempt has ended: the very same one if that changes nothing.

    Args:
        period: the one in which the attempt was let through.
        fault: what a failure was, in words.
    """
    if period != state.period:
        return state
    if state.closed:
        return _failed(breaker, state, now, fault) if outcome == "failure" else state
    if who not in state.probes:
        return state
    if outcome == "failure":
        return _failed(breaker, state, now, fault)
    without = free(state, who)
    if outcome == "neutral":
        return without
    if state.passed + 1 >= breaker.probes:
        return reset(state, now)
    return _at(without, now, passed=state.passed + 1)


def free(state: State, who: Who) -> State:
    """The state without the place of an attempt of which nothing more will be heard."""
    if who not in state.probes:
        return state
    return replace(state, probes=tuple(other for other in state.probes if other != who))


def reset(state: State, now: Moment) -> State:
    """The state of a breaker that closes."""
    return State(
        t=_reading(state, now),
        clock=now,
        period=state.period + 1,
        fault=state.fault,
        faulted=state.faulted,
    )


def trip(state: State, now: Moment, fault: str, cooldown: float | None = None) -> State:
    """The state of a breaker that is opened from outside, whatever it was. It counts as no trip of
    the tool's.

    Args:
        fault: what those who are refused are told.
        cooldown: seconds, if not those of the settings.
    """
    opened = _opened(state, now, fault)
    return replace(opened, cooldown=cooldown)


def _failed(breaker: Breaker, state: State, now: Moment, fault: str) -> State:
    reading = _reading(state, now)
    # No more than can open it; a breaker that keeps being tried would gather them without end.
    failures = (*recent(breaker, state, now), reading)[-breaker.failures :]
    if state.closed and len(failures) < breaker.failures:
        fault = fault[:FAULT_CHARS]
        needed = breaker.failures
        return _at(state, now, failures=failures, needed=needed, fault=fault, faulted=now.wall)
    opened = _opened(state, now, fault)
    return replace(opened, failures=failures, needed=breaker.failures, trips=state.trips + 1)


def _opened(state: State, now: Moment, fault: str) -> State:
    return _at(
        state,
        now,
        period=state.period + 1,
        tripped=_reading(state, now),
        cooldown=None,
        probes=(),
        passed=0,
        fault=fault[:FAULT_CHARS],
        faulted=now.wall,
    )


def _refused(breaker: Breaker, state: State, now: Moment, seconds: float) -> Refused:
    return Refused(
        until=now.wall + seconds,
        retry_in=seconds,
        fault=state.fault,
        # While it is tried, nobody knows yet.
        final=phase(breaker, state, now) == "open" and state.trips >= breaker.max_trips,
    )


def _rest(breaker: Breaker, state: State, now: Moment) -> float:
    """Seconds that are left of the cool-down; none if it is over."""
    assert state.tripped is not None
    whole = breaker.cooldown if state.cooldown is None else state.cooldown
    return max(0.0, state.tripped + whole - _reading(state, now))


def _at(state: State, now: Moment, **changes: object) -> State:
    return replace(state, t=_reading(state, now), clock=now, **changes)


def _reading(state: State, now: Moment) -> float:
    """What time it is now in the state's own seconds."""
    return state.t if state.clock is None else state.t + _elapsed(state.clock, now)


def _elapsed(then: Moment, now: Moment) -> float:
    """Seconds between two moments, not fewer than none."""
    if then.boot_id == now.boot_id:
        return max(0.0, now.boot - then.boot)
    between = now.wall - then.wall
    if between < -SKEW:
        # Not another machine but another time: the clock was set back with a restart, or is not
        # set yet. At least as long as this boot has taken, or it would be waited for a day.
        return max(0.0, now.boot)
    return max(0.0, between)
