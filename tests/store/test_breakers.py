"""Breakers as the store keeps them: settings, places, results, an operator's commands."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.breakers import (
    AdmissionRefused,
    BreakerView,
    Reset,
    SettingsClash,
    Trip,
    read_breakers,
)
from outlast.errors import LostRun, StoreError, UsageError
from outlast.events import (
    BreakerClosed,
    BreakerDeclared,
    BreakerOpened,
    BreakerProbed,
    BreakerReset,
    BreakerTripped,
    Event,
    StepStarted,
    decode,
)
from outlast.journal import STORE, Along, Becomes, Entry, OwnerWrite, first_altered
from outlast.policy.breaker import Breaker, Outcome
from outlast.store import Row, SqlValue, Store, Tx, open_store
from outlast.views import read_events
from tests.store.breaker_stage import TOOL, Ahead, Owner, claim
from tests.store.helpers import query, url_of


@pytest.fixture
def world() -> Ahead:
    return Ahead()


@pytest.fixture
def store(tmp_path: Path, world: Ahead) -> Iterator[Store]:
    store = open_store(url_of(tmp_path / "a.db"), world)
    yield store
    store.close()


@pytest.fixture
def owner(store: Store) -> Owner:
    return claim(store, "r")


@pytest.fixture
def opened(owner: Owner) -> Owner:
    """An owner whose tool has failed so often that the breaker is open."""
    owner.calls("failure", "failure", "failure")
    return owner


def look(store: Store) -> BreakerView:
    (view,) = read_breakers(store)
    return view


def story(store: Store) -> list[Event]:
    events = read_events(store, STORE)
    assert first_altered(events) is None
    assert {event.key for event in events} <= {"tool"}
    return [decode(event.kind, event.data) for event in events]


def test_a_tool_without_settings_that_does_not_fail_leaves_no_trace(store: Store) -> None:
    owner = claim(store, "r")
    owner.declared = False
    owner.calls("success", "neutral", "success")
    assert read_breakers(store) == []
    assert read_events(store, STORE) == []


@pytest.mark.parametrize("before", [["success"], ["failure"]])
@pytest.mark.parametrize("declared", [False, True])
def test_nothing_is_read_or_written_for_a_call_once_the_breaker_is_known(
    owner: Owner, declared: bool, before: list[Outcome]
) -> None:
    """Neither for one that was never written, nor for one that has settings and a failure."""
    owner.declared = declared
    owner.calls(*before)
    report = owner.report(owner.call(), "success")
    owner.store.write(Silent(owner.admission(0), report), durable=False)


class Silent:
    """Writes things, none of which may need a statement or an event."""

    def __init__(self, *items: Along) -> None:
        self.items = items

    def apply(self, tx: Tx) -> None:
        for item in self.items:
            item.check(Mute(tx))
            item.apply(Mute(tx))


class Mute:
    """A transaction in which nothing but what is remembered can be used."""

    def __init__(self, tx: Tx) -> None:
        self.memo = tx.memo

    def run(self, query: str, /, **params: SqlValue) -> list[Row]:
        raise AssertionError(f"{query} was run")

    def append(self, event: Row) -> None:
        raise AssertionError("an event was appended")


def test_it_opens_and_says_why(store: Store, opened: Owner) -> None:
    told = opened.refused()
    assert told.fault == "503"
    assert not told.final
    view = look(store)
    assert (view.name, view.state, view.failures, view.trips) == ("tool", "open", 3, 1)
    assert (view.last_fault, view.probes) == ("503", ())
    assert view.last_fault_at is not None
    assert view.until == pytest.approx(view.last_fault_at + 30, abs=0.1)
    declared, opening = story(store)
    assert isinstance(declared, BreakerDeclared)
    assert isinstance(opening, BreakerOpened)
    assert (opening.trips, opening.fault, opening.run_id) == (1, "503", "r")
    assert opening.step == "tool#0"
    assert opening.until == pytest.approx(view.until, abs=0.001)


def test_what_a_person_sees_is_current_without_a_call(
    store: Store, world: Ahead, opened: Owner
) -> None:
    world.seconds += 31
    view = look(store)
    assert (view.state, view.until, view.failures) == ("half-open", None, 3)
    world.seconds += 60
    assert (look(store).state, look(store).failures) == ("half-open", 0)


def test_a_clock_that_is_set_does_not_change_the_cool_down(
    store: Store, world: Ahead, opened: Owner
) -> None:
    for jump in (-3600.0, 3600.0, -world.wall()):
        world.off = jump
        world.seconds = 20.0
        assert 9 < opened.refused().retry_in <= 10
        assert look(store).until == pytest.approx(world.wall() + 10, abs=1)
    world.seconds = 31.0
    opened.call()


def test_a_probe_that_succeeds_closes_it(store: Store, world: Ahead, opened: Owner) -> None:
    world.seconds += 31
    who = opened.call(7)
    told = opened.refused()
    assert told.retry_in == 30
    assert look(store).probes == ("r",)
    opened.end(who, "success")
    view = look(store)
    assert (view.state, view.failures, view.trips, view.probes) == ("closed", 0, 0, ())
    probed, closed = story(store)[2:]
    assert probed == BreakerProbed("r", "tool#7", 1)
    assert closed == BreakerClosed("r", "tool#7")
    opened.calls("success")


def test_a_probe_that_fails_opens_it_again(store: Store, world: Ahead, opened: Owner) -> None:
    for trips in (2, 3):
        world.seconds += 31
        opened.calls("failure")
        assert look(store).trips == trips
        assert opened.refused().final == (trips == 3)
    assert [type(event) for event in story(store)[2:]] == [BreakerProbed, BreakerOpened] * 2


def test_mistakes_of_the_caller_decide_nothing(store: Store, world: Ahead, owner: Owner) -> None:
    for _ in range(10):
        owner.calls("neutral")
    assert look(store).failures == 0
    owner.calls("failure", "neutral", "failure", "neutral")
    assert look(store).state == "closed"
    owner.calls("failure")
    assert look(store).state == "open"
    world.seconds += 31
    owner.calls("neutral")  # as a probe
    view = look(store)
    assert (view.state, view.trips, view.probes) == ("half-open", 1, ())
    owner.calls("success")
    assert look(store).state == "closed"


def test_late_results_of_an_earlier_period_change_nothing(
    store: Store, world: Ahead, owner: Owner
) -> None:
    late = [owner.call(number) for number in range(1, 10)]
    owner.calls("failure", "failure", "failure")
    until = look(store).until
    world.seconds += 20
    for who in late[:3]:
        owner.end(who, "failure")
    assert until is not None
    assert look(store).until == pytest.approx(until, abs=0.1)
    world.seconds += 11
    probe = owner.call()
    for who in late[3:6]:
        owner.end(who, "success")
    assert look(store).state == "half-open"
    owner.end(probe, "success")
    for who in late[6:]:
        owner.end(who, "failure")
    assert (look(store).state, look(store).failures) == ("closed", 0)


def test_a_refused_call_leaves_nothing_of_what_was_to_be_written_with_it(
    store: Store, opened: Owner
) -> None:
    row = query(Path(store.path), "SELECT * FROM breakers")
    opened.breaker = replace(TOOL, failures=9)  # the same step: new settings, were it not refused
    opened.refused()
    assert query(Path(store.path), "SELECT * FROM breakers") == row
    assert len(story(store)) == 2


def test_a_place_that_was_taken_is_free_again_if_its_write_fails(
    store: Store, world: Ahead, opened: Owner
) -> None:
    world.seconds += 31
    failing = OwnerWrite(
        "r",
        opened.epoch,
        world.wall(),
        (Entry(StepStarted(), "tool#1"),),
        "open",
        along=(opened.admission(1),),
        becomes=Becomes("no such status"),  # type: ignore[arg-type]
    )
    with pytest.raises(StoreError):
        store.write(failing, durable=False)
    assert look(store).probes == ()
    opened.calls("success")
    assert look(store).state == "closed"


def test_a_report_and_an_admission_in_one_write_see_each_other(store: Store, owner: Owner) -> None:
    """A failure that opens the breaker, with the attempt that was to follow it."""
    owner.calls("failure", "failure")
    report = owner.report(owner.call(), "failure")
    admission = owner.admission(9)
    write = owner.writing("open", StepStarted(), "tool#9", report, admission)
    with pytest.raises(AdmissionRefused):
        store.write(write, durable=False)
    assert (look(store).state, look(store).failures) == ("closed", 2)
    write = owner.writing("open", StepStarted(), "tool#9", admission, report)
    store.write(write, durable=False)
    assert (look(store).state, look(store).failures) == ("open", 3)


def test_of_fifty_tasks_of_a_loop_one_gets_through(
    store: Store, world: Ahead, opened: Owner
) -> None:
    """They are committed together, and the others leave nothing behind."""
    world.seconds += 31
    owners = [opened, *(claim(store, f"run-{i}") for i in range(49))]
    admissions = [owner.admission(1) for owner in owners]
    before = {owner.run_id: read_events(store, owner.run_id) for owner in owners}

    async def call_all() -> list[int | BaseException]:
        writes = [owner.opening(a) for owner, a in zip(owners, admissions, strict=True)]
        calls = [store.awrite(write, durable=False) for write in writes]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(call_all())
    through = [owner for owner, said in zip(owners, answers, strict=True) if isinstance(said, int)]
    refused = [said for said in answers if isinstance(said, AdmissionRefused)]
    assert (len(through), len(refused)) == (1, 49)
    (prober,) = through
    assert look(store).probes == (prober.run_id,)
    for owner in owners:
        if owner is not prober:
            assert read_events(store, owner.run_id) == before[owner.run_id]


def test_an_attempt_that_is_opened_twice_has_one_place(
    store: Store, world: Ahead, opened: Owner
) -> None:
    opened.breaker = replace(TOOL, probes=2)
    world.seconds += 31
    assert opened.call(7) == opened.call(7)
    assert look(store).probes == ("r",)
    assert [type(event) for event in story(store)].count(BreakerProbed) == 1


def test_a_place_is_free_once_somebody_else_has_taken_the_run(
    store: Store, world: Ahead, opened: Owner
) -> None:
    world.seconds += 31
    who = opened.call()
    other = claim(store, "other")
    other.refused()  # this very process works on it
    after = claim(store, "r")
    assert look(store).probes == ()
    probe = other.call()
    with pytest.raises(LostRun):
        opened.end(who, "success")
    after.refused()
    other.end(probe, "success")
    after.calls("success")


def test_a_place_is_free_once_the_run_is_let_go_of(
    store: Store, world: Ahead, opened: Owner
) -> None:
    world.seconds += 31
    opened.call()
    released = OwnerWrite("r", opened.epoch, world.wall(), (), "record", release=True)
    store.write(released, durable=False)
    claim(store, "other").calls("success")
    assert look(store).state == "closed"


def test_a_place_is_free_once_the_run_has_ended(store: Store, world: Ahead, opened: Owner) -> None:
    world.seconds += 31
    opened.call()
    write = OwnerWrite("r", opened.epoch, world.wall(), (), "record", becomes=Becomes("killed"))
    store.write(write, durable=False)
    claim(store, "other").calls("success")
    assert look(store).state == "closed"


def test_a_place_on_another_host_is_free_when_its_lease_is_over(
    store: Store, world: Ahead, opened: Owner
) -> None:
    world.seconds += 31
    far = claim(store, "far", lease=10, host="elsewhere")
    stalled = far.call()
    opened.refused()
    world.seconds += 11
    assert look(store).probes == ()
    probe = opened.call()
    # It was only stalled, but its place is gone.
    store.write(Silent(far.report(stalled, "failure")), durable=False)
    assert (look(store).state, look(store).probes) == ("half-open", ("r",))
    opened.end(probe, "success")
    assert look(store).state == "closed"


def test_only_a_name_means_the_settings_of_the_step_that_gave_some(
    store: Store, world: Ahead, owner: Owner
) -> None:
    owner.breaker = replace(TOOL, on_open="wait")
    owner.calls("success")
    other = claim(store, "other")
    other.breaker, other.declared, other.step = Breaker("tool"), False, "charge"
    other.calls("failure", "failure", "failure")
    with pytest.raises(AdmissionRefused) as refusal:
        other.call()
    assert refusal.value.breaker == owner.breaker
    assert look(store).settings == owner.breaker
    assert look(store).declared_by == ("tool",)


def test_only_a_name_means_the_defaults_where_nobody_gave_any(store: Store, owner: Owner) -> None:
    owner.breaker, owner.declared = Breaker("tool"), False
    for _ in range(4):
        owner.calls("failure")
    assert look(store).state == "closed"
    owner.calls("failure")
    view = look(store)
    assert (view.state, view.settings, view.declared_by) == ("open", Breaker("tool"), ())


def test_two_steps_with_different_settings_are_refused_with_both_named(
    store: Store, owner: Owner
) -> None:
    owner.step = "refund"
    owner.calls("success")
    other = claim(store, "other")
    other.step, other.breaker = "charge", replace(TOOL, failures=4, cooldown=5)
    before = read_events(store, "other")
    with pytest.raises(SettingsClash) as clash:
        other.call()
    assert str(clash.value) == (
        "breaker tool has two different settings: failures=3, cooldown=30 in step refund, and "
        "failures=4, cooldown=5 in step charge; give both the same ones, or each a name of its "
        "own\nIf refund has others by now or is gone: outlast breakers reset tool"
    )
    assert read_events(store, "other") == before
    assert look(store).settings == TOOL


def test_a_change_of_the_code_changes_the_settings(store: Store, owner: Owner) -> None:
    owner.calls("failure")
    owner.breaker = replace(TOOL, failures=2, on_open="wait")
    owner.calls("failure")
    assert (look(store).state, look(store).settings) == ("open", owner.breaker)
    declared = [event for event in story(store) if isinstance(event, BreakerDeclared)]
    assert [event.step for event in declared] == ["tool", "tool"]
    assert b'"failures":2' in bytes(declared[1].settings)


def test_steps_with_one_set_of_settings_may_change_it_together(store: Store, owner: Owner) -> None:
    """A deploy changes the settings that two steps share; which is called first does not matter."""
    shared = replace(TOOL, failures=7)
    for first, second in (("refund", "charge"), ("charge", "refund"), ("charge", "refund")):
        for owner.step in (first, second):
            owner.breaker = shared
            owner.calls("success")
        assert look(store).declared_by == (first, second)
        assert look(store).settings == shared
        shared = replace(shared, failures=shared.failures + 1)
    # If one alone was changed, the other is told.
    owner.step, owner.breaker = "charge", shared
    owner.calls("success")
    owner.step, owner.breaker = "refund", TOOL
    with pytest.raises(SettingsClash):
        owner.call()


def test_what_to_do_while_it_is_open_is_the_business_of_each_step(
    store: Store, opened: Owner
) -> None:
    opened.step, opened.breaker = "charge", replace(TOOL, on_open="wait")
    with pytest.raises(AdmissionRefused) as refusal:
        opened.call()
    assert refusal.value.breaker.on_open == "wait"
    assert look(store).settings.on_open == "fail"
    store.write(Reset("tool", store.world), durable=False)
    waiting = opened.breaker
    for _ in range(2):
        opened.step, opened.breaker = "tool", TOOL
        opened.calls("success")
        opened.step, opened.breaker = "charge", waiting
        opened.calls("success")
        assert look(store).settings.on_open == "fail"
    declared = [event.step for event in story(store) if isinstance(event, BreakerDeclared)]
    assert declared == ["tool", "tool", "charge"]


def test_an_operator_closes_it(store: Store, world: Ahead, opened: Owner) -> None:
    view = store.write(Reset("tool", world, "ann"), durable=True)
    assert view == look(store)
    assert (view.state, view.failures, view.trips) == ("closed", 0, 0)
    assert (view.settings, view.declared_by) == (Breaker("tool"), ())
    assert story(store)[-1] == BreakerReset("ann")
    # The settings are given anew, by whichever step comes first.
    opened.step = "charge"
    opened.breaker = replace(TOOL, failures=9)
    opened.calls("success")
    assert look(store).declared_by == ("charge",)


def test_results_of_calls_from_before_a_reset_change_nothing(
    store: Store, world: Ahead, owner: Owner
) -> None:
    calls = [owner.call(number) for number in range(1, 4)]
    store.write(Reset("tool", world), durable=True)
    for who in calls:
        owner.end(who, "failure")
    assert (look(store).state, look(store).failures) == ("closed", 0)
    owner.calls("failure", "failure", "failure")
    world.seconds += 31
    probe = owner.call()
    store.write(Reset("tool", world), durable=True)
    owner.end(probe, "failure")
    assert (look(store).state, look(store).failures) == ("closed", 0)


def test_a_reset_of_what_is_not_there_names_what_is(store: Store, world: Ahead) -> None:
    with pytest.raises(UsageError, match=r"no breaker 'tol' .*known: none"):
        store.write(Reset("tol", world), durable=True)
    for name in ("b", "a"):
        store.write(Trip(name, world), durable=True)
    with pytest.raises(UsageError, match=r"no breaker 'tol' .*known: a, b"):
        store.write(Reset("tol", world), durable=True)


def test_an_operator_opens_it(store: Store, world: Ahead, owner: Owner) -> None:
    """Also one that nobody has used yet."""
    view = store.write(Trip("tool", world, "ann \ud800", 100), durable=True)
    assert view.state == "open"
    assert view.until == pytest.approx(world.wall() + 100, abs=1)
    told = owner.refused()
    assert told.fault == "tripped by ann \\ud800"
    assert 99 < told.retry_in <= 100
    (tripped,) = story(store)
    assert isinstance(tripped, BreakerTripped)
    assert tripped.by == "ann \\ud800"
    assert tripped.until == pytest.approx(view.until, abs=0.1)
    world.seconds += 101
    owner.calls("success")
    assert look(store).state == "closed"


@pytest.mark.parametrize(("name", "seconds"), [("a", 0.0), ("a", float("nan")), ("", None)])
def test_an_operators_mistakes_are_told(
    store: Store, world: Ahead, name: str, seconds: float | None
) -> None:
    with pytest.raises(UsageError):
        store.write(Trip(name, world, "ann", seconds), durable=True)
    assert read_breakers(store) == []


def test_words_that_no_text_can_hold_are_kept_as_escapes(store: Store, owner: Owner) -> None:
    owner.end(owner.call(), "failure", "bad \udc97 byte")
    assert look(store).last_fault == "bad \\udc97 byte"


@pytest.mark.parametrize(
    ("column", "value"),
    [("settings", '{"failures": 0}'), ("declared_by", "{}"), ("state", '{"t": "x"}')],
)
def test_an_altered_row_is_told_and_a_reset_helps(
    store: Store, world: Ahead, opened: Owner, column: str, value: str
) -> None:
    world.seconds += 31
    probe = opened.call()
    query(Path(store.path), f"UPDATE breakers SET {column} = '{value}'")
    for look_at in (lambda: read_breakers(store), opened.call):
        with pytest.raises(StoreError, match="outlast breakers reset tool") as problem:
            look_at()
        assert problem.value.problem == "damaged"
    store.write(Reset("tool", world), durable=True)
    opened.end(probe, "failure")  # from before, though nobody can tell what was before
    assert (look(store).state, look(store).failures) == ("closed", 0)
    opened.calls("success")
