"""A file is edited between a SIGKILL and the resume: what does not fit is held before it runs, with
both sides shown, and the old file resumes it; what fits goes on (P10)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.events import RunHeld
from tests.changes.programs import HEAD, Workshop, in_colour, line_of

DESK = (
    HEAD
    + """
@outlast.step
async def look(n: int) -> int:
    did("look", n)
    return n

@outlast.step
async def think(n: int) -> int:
    did("think", n)
    return n * 10

@outlast.step
async def act(n: int) -> int:
    did("act", n)
    return n * 100

@outlast.step
async def tell(n: int) -> int:
    did("tell", n)
    return n * 1000

@outlast.workflow
async def desk():
    found = await look(1)
    idea = await think(2)
    done = await act(3)
    told = await tell(4)
    return [found, idea, done, told]
"""
)
LOOK, THINK, ACT, TELL = (
    "    found = await look(1)\n",
    "    idea = await think(2)\n",
    "    done = await act(3)\n",
    "    told = await tell(4)\n",
)
RESULT = [1, 20, 300, 4000]
BEFORE = ["look 1", "think 2", "act 3"]
"""What was done when the run was killed, inside the last of them."""


class Killed:
    """A run that was killed in `act`, for any number of tests."""

    def __init__(self, folder: Path, colour: str) -> None:
        self.shop = Workshop(folder)
        self.colour = colour
        self.text = in_colour(DESK, colour)
        self.shop.write(self.text)
        self.shop.die_at("act 3")
        assert self.shop.run().killed
        assert self.shop.effects() == BEFORE
        self._kept = self.shop.keep()

    def again(self) -> Workshop:
        self.shop.restore(self._kept)
        return self.shop

    def edited(self, *edits: tuple[str, str]) -> str:
        text = DESK
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        return in_colour(text, self.colour)


@pytest.fixture(scope="module", params=["sync", "async"])
def once_killed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killed]:
    killed = Killed(tmp_path_factory.mktemp("shop"), request.param)
    yield killed
    killed.shop.close()


@pytest.fixture
def killed(once_killed: Killed) -> Iterator[Killed]:
    shop = once_killed.again()
    yield once_killed
    shop.close()


Edits = list[tuple[str, str]]

MISFITS: dict[str, tuple[Edits, str, str]] = {
    "inserted": ([(THINK, f"    await tell(9)\n{THINK}")], "tell(9)", "n=9"),
    "deleted": ([(THINK, ""), ("idea,", "0,")], "act(3)", "n=3"),
    "swapped": ([(THINK + ACT, ACT + THINK)], "act(3)", "n=3"),
    "renamed": ([("def think", "def ponder"), ("think(2)", "ponder(2)")], "ponder(2)", "n=2"),
    "arguments": ([("think(2)", "think(20)")], "think(20)", "n=20"),
    "timer": ([(THINK, "    await outlast.sleep(60)\n")], "sleep(60)", "60 s"),
    "value": ([(THINK, "    outlast.now()\n")], "now()", ""),
    "loop": ([(THINK, "    for _ in outlast.turns(n=1, max=1): pass\n")], "turns(n=1", ""),
}
"""Edits, the call that does not fit any more, and its arguments as they are shown."""


@pytest.mark.parametrize("change", MISFITS)
def test_a_call_that_does_not_fit_is_held_before_it_runs_and_the_old_file_resumes(
    change: str, killed: Killed
) -> None:
    shop = killed.shop
    edits, call, arguments = MISFITS[change]
    text = killed.edited(*edits)
    shop.write(text)
    held = shop.resume()
    assert held.code == 3
    assert shop.effects() == BEFORE
    recorded = f"recorded: think#1 at desk.py:{line_of(killed.text, ' think(2)')} with n=2"
    place = f"{shop.folder}/desk.py:{line_of(text, call)}"
    now = f"now:      {call.partition('(')[0]} at {place}" + (
        f" with {arguments}" * bool(arguments)
    )
    assert {recorded, now} <= {line.strip() for line in held.stderr.splitlines()}, held.stderr
    _the_old_file_resumes(killed)


EARLY: dict[str, tuple[str, str]] = {
    "returns": ("    return []\n", "the workflow returns"),
    "raises": ("    raise ValueError('new')\n", "ValueError: new at {file}:{line}"),
}


@pytest.mark.parametrize("change", EARLY)
def test_an_end_before_all_is_repeated_that_was_recorded_is_held(
    change: str, killed: Killed
) -> None:
    shop = killed.shop
    added, said = EARLY[change]
    text = killed.edited((THINK, f"{added}{THINK}"))
    shop.write(text)
    held = shop.resume()
    assert held.code == 3
    assert shop.effects() == BEFORE
    assert "without asking for 2 recorded calls" in held.stderr
    recorded = f"recorded: think#1 at desk.py:{line_of(killed.text, ' think(2)')} with n=2"
    now = said.format(file=shop.folder / "desk.py", line=line_of(text, added.strip()))
    assert {recorded, f"now:      {now}"} <= {line.strip() for line in held.stderr.splitlines()}
    _the_old_file_resumes(killed)


def _the_old_file_resumes(killed: Killed) -> None:
    shop = killed.shop
    (held,) = shop.events("run.held")
    assert isinstance(held, RunHeld)
    assert (held.reason, held.step) == ("diverged", "think#1")
    assert "outlast resume r --accept-from 'think#1'" in held.fix
    assert "outlast fork r --from 'think#1'" in held.fix
    shop.write(killed.text)
    assert shop.resume().result == RESULT
    assert shop.effects() == [*BEFORE, "act 3", "tell 4"]


HARMLESS: dict[str, Edits] = {
    "a line above": [("import outlast", "import outlast\nimport json")],
    "a local renamed": [("found", "hits")],
    "another layout": [("think(2)", "think(\n        n=2,\n    )")],
    "a default": [("look(n: int)", "look(n: int = 1)"), ("look(1)", "look()")],
    "a body": [("return n * 1000", "return n * 1000 + 0")],
    "a call behind": [(TELL, f"{TELL}    await look(7)\n")],
    "options": [("@outlast.step\nasync def tell", "@outlast.step(timeout=60)\nasync def tell")],
}


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_no_recorded_call_goes_on(change: str, killed: Killed) -> None:
    shop = killed.shop
    shop.write(killed.edited(*HARMLESS[change]))
    assert shop.resume().result == RESULT
    behind = ["look 7"] if change == "a call behind" else []
    assert shop.effects() == [*BEFORE, "act 3", "tell 4", *behind]
    assert not shop.events("run.held")


def test_the_undisturbed_result_is_the_same(killed: Killed) -> None:
    assert killed.shop.run(run_id="calm").result == RESULT
