"""What people met when values came back: as None, as another type, cut at a NUL, or never, because
what a finished step returned was too large to be recorded."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import outlast
from tests.effects.stage import Stage
from tests.scenarios.commands import DESK as COMMAND_DESK
from tests.scenarios.commands import command, look

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


@pytest.fixture
def bent(tmp_path: Path) -> Stage:
    """A stage whose store the test damages, so that nothing is checked in the end."""
    return Stage(tmp_path)


# ---- every value, straight and over a crash


@pytest.mark.parametrize("colour", ["plain", "asynchronous"])
def test_every_value_is_the_same_behind_a_crash_or_was_refused_where_it_was_made(
    stage: Stage, colour: str
) -> None:
    program = PROGRAMS / "values.py"
    straight = stage.play(program, "straight", colour).result
    stage.kill_at("between")
    assert stage.play(program, "cut", colour).killed
    assert stage.play(program, "cut", colour).result == straight
    assert isinstance(straight, list)
    seen, refused = straight
    assert set(seen) == {"same"}
    for number, word in enumerate(["object", "slice", "list_iterator", "function", "type"]):
        assert f"type {word} cannot be stored" in refused[number]
    made = [line for line in stage.effects() if line.startswith("cut made")]
    assert made == [f"cut made {n}" for n in range(len(refused))]  # done, so never tried again


def test_any_nested_values_survive_a_real_crash(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "crashing.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


# ---- done, and not storable


@pytest.mark.parametrize("what", ["lock", "large"])
@pytest.mark.parametrize("cut", [False, True])
def test_what_is_done_and_cannot_be_recorded_is_not_done_again(
    stage: Stage, what: str, cut: bool
) -> None:
    program = PROGRAMS / "too_large.py"
    if cut:
        stage.kill_at("after")
        assert stage.play(program, what).killed
    result = stage.play(program, what).result
    assert isinstance(result, list)
    assert ("_thread.lock" if what == "lock" else "the limit is 8,192 bytes") in result[0]
    assert stage.effects() == ["sent", "last"]
    step = stage.step("send#0")
    assert (step.status, step.attempts, step.fault) == ("failed", 1, "done-not-storable")


def test_arguments_that_are_too_large_are_refused_before_the_step_begins(stage: Stage) -> None:
    result = stage.play(PROGRAMS / "too_large.py", "arguments").result
    assert isinstance(result, list)
    assert "arguments of step take" in result[0]
    assert stage.effects() == ["last"]


def test_state_that_is_too_large_as_a_whole_ends_the_run_at_the_turn(stage: Stage) -> None:
    program = PROGRAMS / "too_large.py"
    for _ in range(2):
        played = stage.play(program, "state")
        assert played.stopped == ("RunFailed", None)
        assert "the record of turn 1" in str(played.outcome["text"])
    assert stage.effects() == ["turn", "last"]


# ---- classes that change while a run waits

DESK = """
import sys
from dataclasses import dataclass
from enum import Enum
import outlast
from tests.effects.stage import Stage

{classes}

stage = Stage(sys.argv[1])

@outlast.step
def find() -> {annotation}:
    stage.log("find")
    return {made}

@outlast.step
def use(text: str) -> str:
    stage.log("use")
    return text

@outlast.workflow
def flow() -> str:
    hit = find()
    stage.reach("between")
    return use(repr(hit))

if __name__ == "__main__":
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
"""
HIT = "@dataclass\nclass Hit:\n    title: str\n"
FOUND = "Hit(title='a')"


def write_desk(stage: Stage, classes: str, annotation: str = "object", made: str = "None") -> Path:
    program = stage.folder / "desk.py"
    program.write_text(DESK.format(classes=classes, annotation=annotation, made=made))
    return program


FITS: dict[str, tuple[str, str, str]] = {
    "as it was": (HIT, "object", FOUND),
    "grown by a field with a default": (
        HIT + "    score: float = 0.5\n",
        "object",
        "Hit(title='a', score=0.5)",
    ),
    "renamed, the old name kept": (
        HIT.replace("Hit", "Find") + "Hit = Find\n",
        "object",
        "Find(title='a')",
    ),
    "moved and imported": ("from models import Hit\n", "object", FOUND),
    "moved and annotated": ("import models\n", "models.Hit", FOUND),
    "with a validator that refuses": (
        HIT + "    def __post_init__(self):\n        raise ValueError\n",
        "object",
        FOUND,
    ),
}


@pytest.mark.parametrize("change", FITS)
def test_a_class_that_changed_and_still_fits_is_read(stage: Stage, change: str) -> None:
    (stage.folder / "models.py").write_text("from dataclasses import dataclass\n" + HIT)
    stage.kill_at("between")
    assert stage.play(write_desk(stage, HIT, made="Hit('a')")).killed
    classes, annotation, read = FITS[change]
    assert stage.play(write_desk(stage, classes, annotation)).result == read
    assert stage.effects() == ["find", "use"]


MISFITS: dict[str, tuple[str, str]] = {
    "deleted": ("", "its type desk:Hit is neither in the annotations nor in an imported module"),
    "renamed": (HIT.replace("Hit", "Find"), "its type desk:Hit is neither"),
    "moved to a module that nobody imports": ("# see models.py", "its type desk:Hit is neither"),
    "grown by a field without a default": (
        HIT + "    score: float\n",
        "the new field 'score' of desk.Hit has no default",
    ),
    "a field is gone": ("@dataclass\nclass Hit:\n    name: str\n", "has no field 'title' any more"),
    "another kind of class": ("class Hit(Enum):\n    A = 1\n", "not a dataclass class any more"),
}


@pytest.mark.parametrize("change", MISFITS)
def test_a_class_that_does_not_fit_holds_the_run_and_its_bytes_are_kept(
    stage: Stage, change: str
) -> None:
    (stage.folder / "models.py").write_text("from dataclasses import dataclass\n" + HIT)
    stage.kill_at("between")
    assert stage.play(write_desk(stage, HIT, made="Hit('a')")).killed
    stored = stage.client().journal("run")
    classes, said = MISFITS[change]
    played = stage.play(write_desk(stage, classes))
    assert played.stopped == ("RunHeld", "unreadable")
    for words in (said, "run run is held", "find#0"):
        assert words in str(played.outcome["text"])
    assert stage.client().journal("run")[: len(stored)] == stored
    assert stage.effects() == ["find"]
    assert stage.play(write_desk(stage, HIT)).result == FOUND
    assert stage.effects() == ["find", "use"]


def test_a_class_of_the_main_program_is_found_by_the_command_line(stage: Stage) -> None:
    (stage.folder / "desk.py").write_text(COMMAND_DESK)
    (stage.folder / "die").touch()
    died = command(stage, "run", "desk.py:flow", '["a"]', "--id", "cli", "--in-process")
    assert died.returncode == -9
    done = command(stage, "resume", "cli", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == [{"title": "a"}]

    (stage.folder / "die").touch()
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    env = {**os.environ, "OUTLAST_STORE": stage.url, "PYTHONPATH": path}
    script = subprocess.run([sys.executable, "desk.py"], cwd=stage.folder, env=env, check=False)
    assert script.returncode == -9
    done = command(stage, "resume", "main", "--json")  # here the file is no main program
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == [{"title": "a"}]


# ---- damaged bytes


def alter(stage: Stage, seq: int, change: Callable[[bytes], bytes]) -> None:
    """Change an event behind the library's back, past the triggers that forbid it."""
    with closing(apsw.Connection(str(stage.folder / "store.db"))) as db:
        guards = list(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        for name, _ in guards:
            db.execute(f"DROP TRIGGER {name}")
        ((data,),) = db.execute("SELECT data FROM events WHERE seq = ?", (seq,)).fetchall()
        db.execute("UPDATE events SET data = ? WHERE seq = ?", (change(bytes(data)), seq))
        for _, sql in guards:
            db.execute(str(sql))


def flip(at: int) -> Callable[[bytes], bytes]:
    """One bit of the byte at a place, counted from the end if negative."""

    def change(data: bytes) -> bytes:
        bits = bytearray(data)
        bits[at] ^= 1
        return bytes(bits)

    return change


@pytest.mark.parametrize("what", ["{", "$dataclass", 'a"}'])
def test_a_flipped_bit_in_a_stored_value_holds_the_run(
    bent: Stage, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = write_desk(bent, HIT, made="Hit('a')")
    bent.kill_at("between")
    assert bent.play(program).killed
    (event,) = [e for e in bent.client().journal("run") if e.kind == "step.completed"]
    at = event.data.index(what.encode())
    alter(bent, event.seq, flip(at))
    damaged = bent.client().journal("run")[event.seq - 1].data
    for _ in range(2):
        played = bent.play(program)
        assert played.stopped == ("RunHeld", "unreadable")
        assert f"event {event.seq} of run run (step.completed of find#0)" in str(
            played.outcome["text"]
        )
    assert bent.effects() == ["find"]
    assert bent.client().journal("run")[event.seq - 1].data == damaged
    code, said = look(bent, capfd, "verify", "run")
    assert code != 0
    assert f"event {event.seq} was altered" in " ".join(said.split())
    for words in (["ls"], ["show", "run"], ["journal", "run"]):
        code, said = look(bent, capfd, *words)
        assert code == 0 or "outlast verify run" in said, said
    alter(bent, event.seq, flip(at))
    assert bent.play(program).result == FOUND
    assert bent.client().verify("run")[0].ok


@outlast.workflow
def answers() -> str:
    return "forty-two"


def test_a_flipped_bit_in_the_result_of_a_completed_run_is_not_handed_out(bent: Stage) -> None:
    outlast.run(answers, run_id="run", store=bent.url)
    last = bent.client().run("run").seq
    alter(bent, last, flip(-4))
    for _ in range(2):
        with pytest.raises(outlast.Unreadable, match=rf"event {last} of run run \(run.completed\)"):
            outlast.run(answers, run_id="run", store=bent.url)
    alter(bent, last, flip(-4))
    assert outlast.run(answers, run_id="run", store=bent.url) == "forty-two"
