"""What people met with breakers: half-open lets everybody through, and the caller's own mistakes
open it, or close it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import outlast
from outlast.breakers import BreakerView, read_breakers
from outlast.events import decode
from outlast.journal import STORE
from outlast.views import read_events
from outlast.worker.stores import get_store
from tests.effects.stage import Stage, wait_for

PROGRAMS = Path(__file__).parent / "programs"
COOLED = 3601.0
CROWD = 58
"""How many call at once in one process."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


def look(stage: Stage) -> BreakerView:
    (view,) = read_breakers(get_store(stage.url).store)
    return view


def changes(stage: Stage) -> list[str]:
    """What befell the breakers, without their settings."""
    kinds = [event.kind for event in read_events(get_store(stage.url).store, STORE)]
    return [kind.removeprefix("breaker.") for kind in kinds if kind != "breaker.declared"]


# ---- half-open


@outlast.step(
    name="tool",
    breaker=outlast.Breaker("tool", failures=1, window=3600, cooldown=3600),
    retry=outlast.Retry(attempts=1),
)
def fails(n: int) -> None:
    raise outlast.Transient("busy")


@outlast.workflow
def opening() -> None:
    fails(0)


@contextmanager
def crowd(stage: Stage, name: str) -> "Iterator[subprocess.Popen[str]]":
    """A process of many that call at once when the flag `go` is set."""
    with stage.start(PROGRAMS / "herd.py", name) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


def outcomes(child: "subprocess.Popen[str]") -> list[str]:
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    found: list[str] = json.loads(out.splitlines()[-1])["result"]
    return found


def count(stage: Stage, word: str) -> int:
    return sum(line.startswith(word) for line in stage.effects())


def test_of_all_that_call_when_the_wait_ends_one_reaches_the_tool(stage: Stage) -> None:
    with pytest.raises(outlast.RunFailed):
        outlast.run(opening, run_id="opening", store=stage.url)
    assert look(stage).state == "open"
    stage.later(COOLED)
    with crowd(stage, "a") as a, crowd(stage, "b") as b:
        stage.set("go")
        wait_for(lambda: count(stage, "refused") == 2 * CROWD - 1, "all others to be refused")
        assert count(stage, "call") == 1
        assert look(stage).state == "half-open"
        assert len(look(stage).probes) == 1
        stage.set("release")
        results = [*outcomes(a), *outcomes(b)]
    assert sorted(results) == sorted(["refused"] * (2 * CROWD - 1) + ["worked"])
    assert changes(stage) == ["opened", "probed", "closed"]
    view = look(stage)
    assert (view.state, view.failures, view.trips) == ("closed", 0, 0)
    # Those who were refused have used no attempt of theirs.
    attempts = [step.attempts for name in "ab" for step in stage.client().run(name).steps]
    alone = [run for run in stage.client().runs() if "-" in run.run_id]
    attempts += [s.attempts for run in alone for s in stage.client().run(run.run_id).steps]
    assert sorted(attempts) == [0] * (2 * CROWD - 1) + [1]


def test_the_place_of_a_killed_probe_is_given_to_the_next_call(stage: Stage) -> None:
    with pytest.raises(outlast.RunFailed):
        outlast.run(opening, run_id="opening", store=stage.url)
    stage.later(COOLED)
    stage.kill_at("called-a")
    with crowd(stage, "a") as a:
        stage.set("go")
        a.communicate(timeout=30)
        assert a.returncode == -9
    assert changes(stage) == ["opened", "probed"]
    stage.set("release")
    with crowd(stage, "b") as b:
        assert outcomes(b).count("worked") >= 1
    assert changes(stage) == ["opened", "probed", "probed", "closed"]
    with crowd(stage, "a") as a:  # what was refused stays so, what was cut off is made
        results = outcomes(a)
    assert len(results) == CROWD
    assert "worked" in results


# ---- whose mistake it was


def test_only_faults_of_the_tool_open_a_breaker_and_close_it(stage: Stage) -> None:
    def play(run_id: str, calls: str, *, killed: bool = False) -> object:
        program = PROGRAMS / "calls.py"
        if killed:
            stage.kill_at("called")
            assert stage.play(program, run_id, calls).killed
        return stage.play(program, run_id, calls).result

    assert play("mistakes", ",".join(["400"] * 9 + ["404"])) == ["failed"] * 10
    assert changes(stage) == []
    # Over three processes, each killed once: the third 500 opens it.
    play("one", "500,400", killed=True)
    play("two", "500,400", killed=True)
    assert (look(stage).state, look(stage).failures) == ("closed", 2)
    assert play("three", "500,500,400", killed=True) == ["failed", "refused", "refused"]
    assert changes(stage) == ["opened"]
    assert stage.effects()[10:] == ["500", "400", "500", "400", "500"]
    # As a probe, a mistake of the caller decides nothing and gives its place back.
    stage.later(COOLED)
    neutral = ["400", "401", "404", "quota", "429", "bug"]
    assert play("probes", ",".join(neutral), killed=True) == ["failed"] * 6
    assert changes(stage) == ["opened"] + ["probed"] * 6
    assert (look(stage).probes, look(stage).trips) == ((), 1)
    # One fault of the tool opens it again, one success closes it.
    assert play("again", "500,ok") == ["failed", "refused"]
    stage.later(COOLED)
    assert play("well", "ok,400,ok") == ["worked", "failed", "worked"]
    assert changes(stage)[7:] == ["probed", "opened", "probed", "closed"]
    last = decode(*[(e.kind, e.data) for e in read_events(get_store(stage.url).store, STORE)][-1])
    assert last.kind == "breaker.closed"
