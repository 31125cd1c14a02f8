"""A breaker against a model that knows the true time and remembers everything."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from outlast.policy.breaker import (
    Admitted,
    Breaker,
    Moment,
    Outcome,
    Phase,
    Refused,
    State,
    Who,
    admit,
    free,
    phase,
    recent,
    record,
    reopens,
    reset,
    trip,
)

OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(["success", "failure", "failure", "neutral"])
ONE_IN_FOUR = st.sampled_from([False, False, False, True])
BREAKERS = st.builds(
    Breaker,
    failures=st.integers(1, 4),
    window=st.integers(1, 60),
    cooldown=st.integers(1, 30),
    probes=st.integers(1, 3),
    max_trips=st.integers(1, 3),
)


@dataclass
class Call:
    """A call that was let through: in which era, and whether it holds a place."""

    who: Who
    era: int
    period: int
    probe: bool = False


@dataclass
class Model:
    """The rules once more, with true time and no thrift."""

    breaker: Breaker
    time: int = 0
    era: int = 0
    open_until: int | None = None
    failed_at: list[int] = field(default_factory=list)
    holders: list[Call] = field(default_factory=list)
    passed: int = 0
    trips: int = 0

    def phase(self) -> Phase:
        if self.open_until is None:
            return "closed"
        return "open" if self.time < self.open_until else "half-open"

    def counting(self) -> int:
        return sum(self.time - at <= self.breaker.window for at in self.failed_at)

    def open(self, seconds: float) -> None:
        self.open_until = self.time + int(seconds)
        self._next_era()

    def close(self) -> None:
        self.open_until = None
        self.failed_at, self.trips = [], 0
        self._next_era()

    def _next_era(self) -> None:
        self.era += 1
        self.holders, self.passed = [], 0

    def ends(self, call: Call, outcome: Outcome) -> bool:
        """What becomes of a call; whether that changes anything."""
        if call.era != self.era or (call.probe and call not in self.holders):
            return False
        if not call.probe and outcome != "failure":
            return False
        if call.probe:
            self.holders.remove(call)
        if outcome == "failure":
            self.failed_at.append(self.time)
            if call.probe or self.counting() >= self.breaker.failures:
                self.trips += 1
                self.open(self.breaker.cooldown)
        elif outcome == "success":
            self.passed += 1
            if self.passed == self.breaker.probes:
                self.close()
        return True


class Breakers(RuleBasedStateMachine):
    """Calls of any number of processes, whose clocks an administrator sets at will."""

    @initialize(breaker=BREAKERS)
    def start(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self.model = Model(breaker)
        self.state = State()
        self.wall = 1_000_000.0
        self.calls: list[Call] = []  # which may end; those that are dead still may speak
        self.made = 0

    def now(self) -> Moment:
        return Moment(self.wall + self.model.time, 100.0 + self.model.time, "boot")

    @rule(seconds=st.integers(0, 3))
    def a_little_time_passes(self, seconds: int) -> None:
        self.model.time += seconds

    @rule(seconds=st.sampled_from([-1, 0, 1]), newest=st.booleans())
    def a_failure_comes_to_the_edge_of_the_window(self, seconds: int, newest: bool) -> None:
        if self.model.failed_at:
            at = self.model.failed_at[-1 if newest else 0]
            edge = int(at + self.breaker.window + seconds)
            self.model.time = max(self.model.time, edge)

    @rule(seconds=st.sampled_from([-1, 0, 0, 0, 5]), calls=st.integers(0, 4))
    def the_cool_down_comes_to_its_end(self, seconds: int, calls: int) -> None:
        if self.model.open_until is not None:
            self.model.time = max(self.model.time, self.model.open_until + seconds)
            self.calls_are_made(calls)

    @rule(data=st.data(), outcome=OUTCOMES, dead=st.booleans())
    def a_probe_ends(self, data: st.DataObject, outcome: Outcome, dead: bool) -> None:
        if self.model.holders:
            call = data.draw(st.sampled_from(self.model.holders))
            if dead:
                self._is_gone(call)
            else:
                self.calls.remove(call)
                self._end(call, outcome)

    @rule(seconds=st.sampled_from([-86_400, -3600, -7, 7, 3600, 86_400]))
    def the_wall_clock_is_set(self, seconds: int) -> None:
        self.wall += seconds

    @rule(times=st.integers(1, 4))
    def calls_are_made(self, times: int) -> None:
        for _ in range(times):
            self.made += 1
            self._call(Who("run", 1, f"tool#{self.made}", 1))

    def _call(self, who: Who) -> None:
        model, now = self.model, self.now()
        answer = admit(self.breaker, self.state, now, who)
        stands = model.phase()
        call = Call(who, model.era, self.state.period, probe=stands != "closed")
        places = self.breaker.probes - model.passed - len(model.holders)
        if stands == "closed":
            assert answer == Admitted(self.state, probe=False)
            assert answer.state is self.state
        elif stands == "half-open" and places > 0:
            assert isinstance(answer, Admitted)
            assert answer.probe
            model.holders.append(call)
            self.state = answer.state
        else:
            assert isinstance(answer, Refused)
            wait = self.breaker.cooldown
            if stands == "open":
                assert model.open_until is not None
                wait = model.open_until - model.time
            assert answer.retry_in == wait
            assert answer.until == now.wall + wait
            tried = stands == "half-open"  # so nobody knows yet
            assert answer.final == (model.trips >= self.breaker.max_trips and not tried)
            return
        self.calls.append(call)

    @rule(outcomes=st.lists(OUTCOMES, min_size=1, max_size=5))
    def calls_are_made_and_end_at_once(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            before = len(self.calls)
            self.calls_are_made(1)
            if len(self.calls) > before:
                self._end(self.calls.pop(), outcome)

    @rule(data=st.data(), outcome=OUTCOMES)
    def a_call_ends(self, data: st.DataObject, outcome: Outcome) -> None:
        if self.calls:
            call = data.draw(st.sampled_from(self.calls))
            self.calls.remove(call)
            self._end(call, outcome)

    @rule(outcome=OUTCOMES)
    def all_calls_end(self, outcome: Outcome) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            self._end(call, outcome)

    def _end(self, call: Call, outcome: Outcome) -> None:
        before = self.state
        self.state = record(
            self.breaker, before, self.now(), call.who, call.period, outcome, "a fault"
        )
        assert self.model.ends(call, outcome) == (self.state is not before)

    @rule(data=st.data())
    def the_process_of_a_call_is_gone(self, data: st.DataObject) -> None:
        """It may have been stalled only, so that something is heard of it later all the same."""
        if not self.calls:
            return
        self._is_gone(data.draw(st.sampled_from(self.calls)))

    def _is_gone(self, call: Call) -> None:
        self.state = free(self.state, call.who)
        if call in self.model.holders:
            self.model.holders.remove(call)

    @rule(really=ONE_IN_FOUR)
    def an_operator_closes_it(self, really: bool) -> None:
        if not really:
            return
        self.state = reset(self.state, self.now())
        self.model.close()

    @rule(seconds=st.none() | st.integers(1, 50), really=ONE_IN_FOUR)
    def an_operator_opens_it(self, seconds: int | None, really: bool) -> None:
        if not really:
            return
        self.state = trip(self.state, self.now(), "by ann", seconds)
        self.model.open(seconds or self.breaker.cooldown)

    @invariant()
    def it_stands_where_the_model_does(self) -> None:
        state, now, model = self.state, self.now(), self.model
        assert phase(self.breaker, state, now) == model.phase()
        assert (state.trips, state.passed) == (model.trips, model.passed)
        assert [who.key for who in state.probes] == [call.who.key for call in model.holders]
        until = reopens(self.breaker, state, now)
        assert (until is not None) == (model.phase() == "open")
        if until is not None and model.open_until is not None:
            assert until - now.wall == model.open_until - model.time
        known = len(recent(self.breaker, state, now))
        assert known == min(model.counting(), self.breaker.failures)

    @invariant()
    def nobody_has_a_place_too_many(self) -> None:
        assert len(self.state.probes) + self.state.passed <= self.breaker.probes
        assert not (self.state.closed and self.state.probes)

    @invariant()
    def it_can_be_stored(self) -> None:
        stored = msgspec.json.encode(self.state)
        assert msgspec.json.decode(stored, type=State) == self.state


Breakers.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
TestBreakers = Breakers.TestCase
