"""When a breaker opens, whom it lets through, what closes it."""

import math
from typing import Any

import msgspec
import pytest

from outlast.policy.breaker import (
    FAULT_CHARS,
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

B = Breaker("tool", failures=3, window=60, cooldown=30)
HOUR = 3600.0


def at(seconds: float, *, wall: float | None = None, boot_id: str = "here") -> Moment:
    """So many seconds after the first moment of a test."""
    return Moment(1_000_000.0 + seconds if wall is None else wall, 500.0 + seconds, boot_id)


def call(number: int) -> Who:
    return Who("run", 1, f"tool#{number}", 1)


def after(
    state: State,
    outcomes: str,
    *,
    start: float = 0.0,
    breaker: Breaker = B,
    period: int | None = None,
) -> State:
    """The state after calls that ended one second apart: F(ailure), S(uccess), N(eutral)."""
    kinds: dict[str, Outcome] = {"F": "failure", "S": "success", "N": "neutral"}
    for index, letter in enumerate(outcomes):
        which = state.period if period is None else period
        now = at(start + index)
        state = record(breaker, state, now, call(index), which, kinds[letter], f"fault {index}")
    return state


def admitted(state: State, number: int, now: Moment, breaker: Breaker = B) -> State:
    answer = admit(breaker, state, now, call(number))
    assert isinstance(answer, Admitted)
    assert answer.probe
    return answer.state


def refused(state: State, now: Moment, breaker: Breaker = B) -> Refused:
    answer = admit(breaker, state, now, call(99))
    assert isinstance(answer, Refused)
    return answer


def ended(state: State, number: int, outcome: Outcome, now: Moment, breaker: Breaker = B) -> State:
    return record(breaker, state, now, call(number), state.period, outcome, "503")


OPEN = after(State(), "FFF")  # tripped at 2 s


def test_a_closed_breaker_lets_everybody_through_and_remembers_nothing_of_it() -> None:
    state = State()
    answer = admit(B, state, at(0), call(1))
    assert isinstance(answer, Admitted)
    assert answer.state is state
    assert not answer.probe


@pytest.mark.parametrize("outcome", ["success", "neutral"])
def test_what_is_no_failure_leaves_a_closed_breaker_the_very_same(outcome: Outcome) -> None:
    for state in (State(), after(State(), "FF")):
        assert record(B, state, at(9), call(1), state.period, outcome, "") is state


def test_it_opens_at_the_set_number_of_failures_and_not_before() -> None:
    assert phase(B, after(State(), "FF"), at(2)) == "closed"
    assert phase(B, OPEN, at(2)) == "open"
    assert (OPEN.trips, OPEN.fault, OPEN.faulted) == (1, "fault 2", at(2).wall)


def test_a_success_between_failures_does_not_clear_them() -> None:
    assert phase(B, after(State(), "FSFSF"), at(5)) == "open"


@pytest.mark.parametrize(("gap", "expected"), [(60.0, "open"), (60.5, "closed")])
def test_only_failures_within_the_window_count(gap: float, expected: Phase) -> None:
    state = after(State(), "F")
    state = record(B, state, at(30), call(1), 0, "failure", "")
    state = record(B, state, at(gap), call(2), 0, "failure", "")
    assert phase(B, state, at(gap)) == expected


def test_failures_that_no_longer_count_are_forgotten() -> None:
    state = after(State(), "FF")
    assert len(recent(B, state, at(30))) == 2
    assert recent(B, state, at(100)) == ()
    assert len(after(state, "F", start=100).failures) == 1


def test_mistakes_of_the_caller_neither_open_it_nor_let_it_be() -> None:
    """Ten of them leave it closed; between failures of the tool they change nothing."""
    assert after(State(), "N" * 10) == State()
    assert phase(B, after(State(), "FNFN"), at(4)) == "closed"
    assert phase(B, after(State(), "FNFNF"), at(4)) == "open"


def test_while_open_nobody_is_let_through_and_is_told_until_when() -> None:
    told = refused(OPEN, at(10))
    assert told == Refused(until=at(32).wall, retry_in=22.0, fault="fault 2", final=False)
    assert reopens(B, OPEN, at(10)) == at(32).wall


def test_a_late_failure_does_not_push_the_cool_down_back() -> None:
    state = after(OPEN, "FFFF", start=20, period=0)
    assert state is OPEN
    # Nor does one of this period by somebody who was never let through.
    assert after(OPEN, "F", start=20) is OPEN


def test_it_is_half_open_once_the_cool_down_is_over_without_any_call() -> None:
    assert phase(B, OPEN, at(31.5)) == "open"
    assert phase(B, OPEN, at(32)) == "half-open"
    assert reopens(B, OPEN, at(32)) is None


@pytest.mark.parametrize("probes", [1, 3])
def test_half_open_lets_exactly_the_set_number_through(probes: int) -> None:
    breaker = Breaker("tool", failures=3, probes=probes)
    state = OPEN
    for number in range(probes):
        state = admitted(state, number, at(40), breaker)
    told = refused(state, at(41), breaker)
    assert (told.retry_in, told.until) == (30.0, at(71).wall)  # a cool-down from now
    assert len(state.probes) == probes
    for number in range(probes):
        assert phase(breaker, state, at(50)) == "half-open"
        state = ended(state, number, "success", at(50 + number), breaker)
        if number < probes - 1:  # a place is given once in a half-open period
            refused(state, at(50 + number), breaker)
    assert phase(breaker, state, at(60)) == "closed"
    assert (state.failures, state.trips) == ((), 0)


def test_a_probe_that_asks_twice_has_one_place() -> None:
    state = admitted(OPEN, 1, at(40))
    assert admit(B, state, at(41), call(1)) == Admitted(state, probe=True)


def test_one_failing_probe_opens_it_again_for_a_whole_cool_down() -> None:
    breaker = Breaker("tool", failures=3, probes=2)
    state = admitted(admitted(OPEN, 1, at(40), breaker), 2, at(40), breaker)
    state = ended(state, 1, "success", at(41), breaker)
    state = ended(state, 2, "failure", at(45), breaker)
    assert phase(breaker, state, at(74)) == "open"
    assert phase(breaker, state, at(75)) == "half-open"
    assert state.trips == 2
    admitted(admitted(state, 1, at(75), breaker), 2, at(75), breaker)  # both places are free


def test_a_neutral_probe_gives_its_place_back_and_decides_nothing() -> None:
    state = admitted(OPEN, 1, at(40))
    state = ended(state, 1, "neutral", at(41))
    assert phase(B, state, at(41)) == "half-open"
    assert state.trips == 1
    state = admitted(state, 2, at(41))
    assert phase(B, ended(state, 2, "success", at(42)), at(42)) == "closed"


def test_the_place_of_a_dead_attempt_is_free_and_its_late_result_counts_for_nothing() -> None:
    state = admitted(OPEN, 1, at(40))
    refused(state, at(40))
    state = admitted(free(state, call(1)), 2, at(41))
    for outcome in ("success", "failure", "neutral"):
        assert ended(state, 1, outcome, at(42)) is state
    assert free(state, call(1)) is state


def test_results_of_an_earlier_period_change_nothing() -> None:
    closed_again = ended(admitted(OPEN, 1, at(40)), 1, "success", at(41))
    for state in (OPEN, admitted(OPEN, 1, at(40)), closed_again, reset(OPEN, at(9))):
        for outcomes in ("FFFFFF", "SSSSSS", "NNNNNN"):
            assert after(state, outcomes, start=42, period=0) is state
    # They were let through half-open, and it has closed and opened since.
    opened_again = after(closed_again, "FFF", start=50)
    assert phase(B, opened_again, at(52)) == "open"
    assert record(B, opened_again, at(53), call(1), OPEN.period, "success", "") is opened_again


def test_every_opening_and_closing_begins_a_period() -> None:
    periods = [0, OPEN.period]
    again = ended(admitted(OPEN, 1, at(40)), 1, "failure", at(41))
    closed = ended(admitted(again, 1, at(80)), 1, "success", at(81))
    tripped = trip(closed, at(90), "by ann")
    periods += [again.period, closed.period, tripped.period, reset(tripped, at(91)).period]
    assert periods == [0, 1, 2, 3, 4, 5]


def test_after_too_many_trips_in_a_row_waiting_is_of_no_use_but_probes_go_on() -> None:
    breaker = Breaker("tool", failures=3, cooldown=30, max_trips=2)
    state, now = OPEN, 40
    assert not refused(state, at(3), breaker).final
    state = ended(admitted(state, 1, at(now), breaker), 1, "failure", at(now), breaker)
    assert refused(state, at(now + 1), breaker).final
    state = admitted(state, 2, at(now + 30), breaker)
    assert not refused(state, at(now + 30), breaker).final  # it is tried: nobody knows yet
    state = ended(state, 2, "success", at(now + 31), breaker)
    state = after(state, "FFF", start=100, breaker=breaker)
    assert state.trips == 1
    assert not refused(state, at(104), breaker).final


@pytest.mark.parametrize("jump", [-HOUR, HOUR, -at(0).wall, 365 * 24 * HOUR])
def test_a_clock_that_is_set_neither_lengthens_nor_shortens_the_cool_down(jump: float) -> None:
    def moved(seconds: float) -> Moment:
        return at(seconds, wall=at(seconds).wall + jump)

    told = refused(OPEN, moved(10))
    assert told.retry_in == 22.0
    assert told.until == moved(32).wall  # in the time that it is now
    assert phase(B, OPEN, moved(31.5)) == "open"
    assert phase(B, OPEN, moved(32)) == "half-open"


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_clock_that_is_set_neither_opens_nor_spares_a_closed_breaker(jump: float) -> None:
    two = after(State(), "FF")
    for seconds, expected in ((60.0, "open"), (70.0, "closed")):
        now = at(seconds, wall=at(seconds).wall + jump)
        assert phase(B, record(B, two, now, call(3), 0, "failure", ""), now) == expected


def test_after_a_restart_of_the_machine_the_wall_clock_counts() -> None:
    def restarted(seconds: float) -> Moment:
        return Moment(at(seconds).wall, 3.0, "after")

    assert phase(B, OPEN, restarted(31.5)) == "open"
    assert phase(B, OPEN, restarted(32)) == "half-open"


def test_a_clock_set_back_with_a_restart_costs_no_more_than_the_cool_down() -> None:
    for wall in (0.0, at(-HOUR).wall):
        assert phase(B, OPEN, Moment(wall, 29.0, "after")) == "open"
        assert phase(B, OPEN, Moment(wall, 30.0, "after")) == "half-open"


def test_another_machine_whose_clock_is_a_little_behind_finds_it_as_it_was_left() -> None:
    state = after(State(), "FF")
    behind = Moment(at(1).wall - 2, 1e7, "elsewhere")
    assert phase(B, record(B, state, behind, call(3), 0, "failure", ""), behind) == "open"


def test_its_time_never_goes_back() -> None:
    state = after(State(), "F")
    behind = Moment(at(3).wall, 9e6, "elsewhere")
    for now in (at(5), at(4), behind, at(4), Moment(0.0, 1.0, "after"), at(6), at(-HOUR)):
        later = record(B, state, now, call(1), state.period, "failure", "")
        assert later.t >= state.t
        state = reset(later, now)
        assert state.t >= later.t


def test_an_operator_closes_it_for_good_and_forgets_its_failures() -> None:
    state = reset(admitted(OPEN, 1, at(40)), at(41))
    assert phase(B, state, at(41)) == "closed"
    assert (state.failures, state.probes, state.trips, state.fault) == ((), (), 0, "fault 2")


@pytest.mark.parametrize("state", [State(), after(State(), "FF"), OPEN, admitted(OPEN, 1, at(40))])
def test_an_operator_opens_it_whatever_it_was(state: State) -> None:
    state = trip(state, at(50), "tripped by ann", cooldown=100)
    assert phase(B, state, at(149.5)) == "open"
    assert refused(state, at(50)).fault == "tripped by ann"
    assert phase(B, state, at(150)) == "half-open"
    assert state.trips in (0, 1)  # what an operator does says nothing about the tool
    # The cool-down that was chosen is of this trip alone.
    again = ended(admitted(state, 2, at(150)), 2, "failure", at(151))
    assert phase(B, again, at(181)) == "half-open"


def test_other_settings_count_for_what_is_already_remembered() -> None:
    assert phase(Breaker("tool", cooldown=10), OPEN, at(12)) == "half-open"
    stricter = Breaker("tool", failures=1)
    state = record(stricter, after(State(), "F"), at(2), call(1), 0, "failure", "")
    assert phase(stricter, state, at(2)) == "open"
    # A longer cool-down does not take back the place that a probe already has.
    probing = admitted(OPEN, 1, at(40))
    assert phase(Breaker("tool", cooldown=HOUR), probing, at(41)) == "half-open"


def test_fewer_probes_than_have_succeeded_already_do_not_keep_it_half_open() -> None:
    three, two = Breaker("tool", probes=3), Breaker("tool", probes=2)
    state = OPEN
    for number in (1, 2):
        state = ended(admitted(state, number, at(40), three), number, "success", at(41), three)
    state = admitted(state, 3, at(42), two)
    assert phase(two, ended(state, 3, "success", at(43), two), at(43)) == "closed"


def test_what_is_remembered_is_bounded() -> None:
    breaker = Breaker("tool", failures=3, window=1e9, cooldown=1)
    state = record(breaker, State(), at(0), call(0), 0, "failure", "x" * 10_000)
    for turn in range(1, 20):
        now = at(10 * turn)
        if not state.closed:
            state = admitted(state, turn, now, breaker)
        state = ended(state, turn, "failure", now, breaker)
    assert len(state.failures) == 3
    text = after(State(), "F", breaker=breaker).fault
    assert len(text) <= FAULT_CHARS
    state = record(breaker, State(), at(0), call(0), 0, "failure", "x" * 10_000)
    assert state.fault == "x" * FAULT_CHARS


@pytest.mark.parametrize("state", [State(), OPEN, admitted(OPEN, 1, at(40)), reset(OPEN, at(9))])
def test_a_state_and_its_settings_survive_being_stored(state: State) -> None:
    assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state
    settings = Breaker("a", 1, 60, 30, 2, 3, "wait")
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Breaker) == settings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("name", ""),
        ("name", 3),
        ("name", "\ud800"),
        ("failures", 0),
        ("failures", 2.0),
        ("failures", True),
        ("failures", 10**6),
        ("window", 0),
        ("window", -1.0),
        ("window", math.nan),
        ("window", math.inf),
        ("window", "60"),
        ("window", True),
        ("cooldown", 0.0),
        ("cooldown", math.inf),
        ("cooldown", None),
        ("probes", 0),
        ("probes", 1.5),
        ("max_trips", 0),
        ("max_trips", None),
        ("on_open", "retry"),
        ("on_open", None),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused_and_named(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=setting):
        Breaker(**{setting: value})
