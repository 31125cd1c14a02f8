"""Renaming a file or a module alone changes nothing, even where its classes stand in the record.
The run remembers the new place."""

import json
from typing import cast

import pytest

import outlast
from outlast.events import RunClaimed, RunCreated
from tests.changes.programs import HEAD, Ended, Workshop, in_colour
from tests.engine.tools import dying_at

DESK = (
    HEAD
    + """
from dataclasses import dataclass

@dataclass
class Hit:
    title: str

class Missing(Exception):
    pass

# Nothing is annotated, so no annotation leads to the classes.

@outlast.step
async def find(hit):
    did("find", hit.title)
    return Hit(hit.title * 2)

@outlast.step
async def fail():
    did("fail")
    raise Missing("no such", Hit("x"))

@outlast.step
async def act(n):
    did("act", n)
    return n

@outlast.workflow
async def desk(first=Hit("a")):
    found = await find(first)
    assert type(found) is Hit
    try:
        await fail()
    except Missing as missing:
        why = missing.args[1]
    assert type(why) is Hit
    async for turn in outlast.turns(hits=[first], max=3):
        turn.hits.append(found)
        await act(len(turn.hits))
        assert {type(hit) for hit in turn.hits} == {Hit}
    return [found, why, *turn.hits]

if __name__ == "__main__":
    import json
    print(json.dumps([hit.title for hit in outlast.run(desk, run_id="r")]))
"""
)
RESULT = ["aa", "x", "a", "aa", "aa", "aa"]
ONCE = ["find a", "fail", "act 2", "act 3", "act 4"]


def program(colour: str) -> str:
    return in_colour(DESK, colour) if colour == "async" else _plain(DESK)


def _plain(text: str) -> str:
    return in_colour(text.replace("async for", "for"), "sync")


def titles(ended: Ended) -> list[str]:
    return [hit["title"] for hit in cast(list[dict[str, str]], ended.result)]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_run_goes_on_from_a_renamed_file_and_remembers_it(colour: str, shop: Workshop) -> None:
    shop.write(program(colour))
    shop.die_at("act 2")
    assert shop.run().killed
    (shop.folder / "new").mkdir()
    (shop.folder / "desk.py").rename(shop.folder / "new/place.py")
    gone = shop.resume()
    assert gone.code == 2
    assert "outlast run" in gone.stderr
    shop.die_at("act 3")
    assert shop.run("new/place.py:desk").killed
    # Nothing but the id: the run has remembered the place.
    assert titles(shop.resume()) == RESULT
    assert sorted(shop.effects()) == sorted([*ONCE, "act 2", "act 3"])
    (created,) = cast(list[RunCreated], shop.events("run.created"))
    assert created.source is not None
    assert created.source.module == "desk"
    sources = [event.source for event in cast(list[RunClaimed], shop.events("run.claimed"))]
    assert [source and source.module for source in sources] == [None, "place", None]
    # The result of the completed run is read from a third place as well.
    (shop.folder / "new/place.py").rename(shop.folder / "third.py")
    assert json.loads(shop.python("third.py").stdout) == RESULT


def test_a_run_goes_on_from_a_moved_module(shop: Workshop) -> None:
    shop.write(program("async"), "office/desk.py")
    shop.write("", "office/__init__.py")
    shop.die_at("act 3")
    assert shop.run("office.desk:desk").killed
    (shop.folder / "office").rename(shop.folder / "bureau")
    assert titles(shop.run("bureau.desk:desk")) == RESULT


def test_a_run_of_a_main_program_goes_on_from_a_renamed_one_and_under_the_command_line(
    shop: Workshop,
) -> None:
    shop.write(program("sync"))
    shop.die_at("act 2")
    assert shop.python("desk.py").killed
    (shop.folder / "desk.py").rename(shop.folder / "place.py")
    shop.die_at("act 3")
    assert shop.python("place.py").killed
    (shop.folder / "place.py").rename(shop.folder / "third.py")
    shop.die_at("act 4")
    assert shop.run("third.py:desk").killed
    assert titles(shop.resume()) == RESULT


def test_another_class_of_the_same_name_in_the_new_place_is_the_one(shop: Workshop) -> None:
    """The old file stays behind and is imported, too: its class is another one now."""
    shop.write(program("sync"))
    shop.die_at("act 2")
    assert shop.run().killed
    shop.write("import desk as old\n" + program("sync"), "place.py")
    assert titles(shop.run("place.py:desk")) == RESULT


@outlast.workflow(name="placed")
def placed() -> int:
    return 1


def test_a_workflow_without_a_place_leaves_the_known_one(shop: Workshop) -> None:
    @outlast.workflow(name="placed")
    def local() -> int:
        return 2

    for start in (placed, local):
        with dying_at(shop.url, kind="run.completed"), pytest.raises(outlast.StoreError):
            outlast.run(start, run_id="r", store=shop.url)
        source = outlast.Client(shop.url)._row("r").source
        assert source is not None
        assert source.name == "placed"
    assert outlast.run(local, run_id="r", store=shop.url) == 2
