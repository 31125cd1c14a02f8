"""Processes that share a breaker: its places are given once over all of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from outlast.breakers import BreakerView, read_breakers
from outlast.journal import STORE
from outlast.store import Store, open_store
from outlast.views import read_events
from tests.store.breaker_stage import TOOL, Ahead, claim
from tests.store.helpers import python, url_of

COOLED = TOOL.cooldown + 1


class Process:
    """A process that holds a run and makes calls when it is told to."""

    def __init__(self, path: Path, run_id: str, probes: int) -> None:
        program = "from tests.store.breaker_stage import main; main()"
        self.child = python(program, path, run_id, COOLED, probes)

    def tell(self, command: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def answer(self) -> object:
        """What it says next; blocks."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.child.communicate()[1]
        return json.loads(line)

    def ask(self, command: str) -> object:
        self.tell(command)
        return self.answer()

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


Start = Callable[..., Process]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store whose breaker `tool` was opened just now; seen from here the cool-down is over."""
    url = url_of(tmp_path / "a.db")
    before = open_store(url)
    claim(before, "first").calls("failure", "failure", "failure")
    before.close()
    store = open_store(url, Ahead(COOLED))
    yield store
    store.close()


@pytest.fixture
def start(store: Store) -> Iterator[Start]:
    """Starts processes that see the same, and ends them."""
    started: list[Process] = []

    def start(run_id: str, probes: int = 1) -> Process:
        process = Process(Path(store.path), run_id, probes)
        started.append(process)
        assert process.answer() == "ready"
        return process

    yield start
    for process in started:
        process.child.kill()
        process.child.communicate()


def look(store: Store) -> BreakerView:
    (view,) = read_breakers(store)
    return view


def test_the_places_are_given_once_over_two_processes_with_eight_threads_each(
    store: Store, start: Start
) -> None:
    both = [start("a"), start("b")]
    for process in both:
        process.tell("call 8")
    answers = {name: process.answer() for name, process in zip("ab", both, strict=True)}
    assert sorted(answers.values(), key=str) == [[0, 8], [1, 7]]
    (prober,) = [name for name in "ab" if answers[name] == [1, 7]]
    assert (look(store).state, look(store).probes) == ("half-open", (prober,))
    # Those who were refused are no failures of the tool, and the probe alone decides.
    for process in both:
        process.ask("end success")
    assert (look(store).state, look(store).failures, look(store).probes) == ("closed", 0, ())
    for process in both:
        process.tell("call 8")
    assert [process.answer() for process in both] == [[8, 0], [8, 0]]
    kinds = [event.kind for event in read_events(store, STORE)]
    assert sorted(kinds) == [
        "breaker.closed",
        "breaker.declared",
        "breaker.opened",
        "breaker.probed",
    ]


def test_several_places_are_all_given_and_none_more(store: Store, start: Start) -> None:
    both = [start("a", probes=3), start("b", probes=3)]
    for process in both:
        process.tell("call 8")
    counts = msgspec.convert([process.answer() for process in both], list[tuple[int, int]])
    through = [count for count, _ in counts]
    assert sum(through) == len(look(store).probes) == 3
    assert [process.ask("end failure") for process in both] == through
    assert (look(store).state, look(store).trips) == ("open", 2)  # the first one opened it


def test_a_killed_process_gives_its_place_back_at_once(store: Store, start: Start) -> None:
    prober = start("a")
    assert prober.ask("call 1") == [1, 0]
    here = claim(store, "b")
    here.refused()  # it lives, and its lease is an hour long
    assert look(store).probes == ("a",)
    prober.kill()
    assert look(store).probes == ()  # without anybody having called
    who = here.call()
    assert look(store).probes == ("b",)
    here.end(who, "success")
    assert look(store).state == "closed"


def test_a_crash_resets_nothing(store: Store, start: Start) -> None:
    """Failures that a killed process has counted count for the next one."""
    first = start("a")
    first.ask("call 1")
    first.ask("end success")
    for _ in range(2):
        first.ask("call 1")
        first.ask("end failure")
    first.kill()
    assert (look(store).state, look(store).failures) == ("closed", 2)
    second = start("b")
    second.ask("call 1")
    second.ask("end failure")
    assert (look(store).state, look(store).failures) == ("open", 3)
    assert second.ask("call 4") == [0, 4]
