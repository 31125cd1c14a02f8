"""A local that one turn changes and a later one reads is refused; what is accepted is durable."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import workflow
from tests.engine.loops import FINE, IN_PLACE, REBOUND, look, program
from tests.engine.tools import PATIENT, kinds, run_with_each_death

COLOURS = ["for", "async for"]


def refusal(flow: Callable[[], Any], url: str) -> str:
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(flow, run_id="r", store=url)
    assert isinstance(failed.value.__cause__, outlast.UsageError), failed.value
    return str(failed.value.__cause__)


# ---- set anew


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", REBOUND)
def test_a_local_that_is_set_in_one_turn_and_read_in_another_is_refused(
    what: str, colour: str, url: str
) -> None:
    name, stored, read, source = REBOUND[what]
    said = refusal(program(source, colour), url)
    assert f"run r: `{name}` is not durable here" in said
    assert f"changes it (desk.py:{stored})" in said
    assert f"(line {read})" in said
    assert "put it into the turn's record" in said
    if "two loops" not in what and "another one's end" not in what:
        assert [k for k in kinds(url) if k.startswith(("step", "turn"))] == [], "no turn began"


# ---- changed in place


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", IN_PLACE)
def test_a_local_that_a_turn_changes_in_place_is_refused_at_its_end(
    what: str, colour: str, url: str
) -> None:
    name, turn, source = IN_PLACE[what]
    said = refusal(program(source, colour), url)
    assert f"run r: `{name}` is not durable here: turn {turn} changed what it holds" in said
    assert "(desk.py:" in said
    assert "put it into the turn's record" in said
    assert len([k for k in kinds(url) if k.startswith("turn.saved")]) == turn, "was saved"


# ---- fine


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", FINE)
def test_what_is_accepted_gives_the_same_result_after_each_death(
    what: str, colour: str, url: str
) -> None:
    flow = program(FINE[what], colour)
    undisturbed = outlast.run(flow, run_id="undisturbed", store=url)

    def start(run_id: str) -> object:
        return outlast.run(flow, run_id=run_id, store=url, settings=PATIENT)

    results = [result for _, result in run_with_each_death(start, url)]
    assert len(results) > 2
    assert results == [undisturbed] * len(results)


@pytest.mark.parametrize("what", ["a counter", "a flag", "read behind the loop"])
def test_without_the_check_a_death_changes_the_result(
    what: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.engine.watch.watch", lambda *_: None)
    flow = program(REBOUND[what][3], "async for")
    undisturbed = outlast.run(flow, run_id="undisturbed", store=url)
    results = [
        result for _, result in run_with_each_death(
            lambda run_id: outlast.run(flow, run_id=run_id, store=url, settings=PATIENT), url
        )
    ]  # fmt: skip
    assert undisturbed in results
    assert any(result != undisturbed for result in results)


# ---- whose loop it is


def test_all_locals_of_a_loop_are_named_at_once(url: str) -> None:
    source = """
        a = b = 0
        TURN:
            a += 1
            b += a
            turn.log.append(b)"""
    said = refusal(program(source, "for"), url)
    assert "`a` is not" in said
    assert "`b` is not" in said


@pytest.mark.parametrize("colour", COLOURS)
def test_a_loop_in_a_generator_is_looked_at(colour: str, url: str) -> None:
    generator = """
        DEF numbered():
            n = 0
            TURN:
                n += 1
                yield n
        AFOR n in numbered():
            look(n)
        return n"""
    assert "`n` is not durable" in refusal(program(generator, colour), url)


class Worker:
    async def work(self) -> int:
        tried = 0
        async for turn in outlast.turns(n=0, max=3):
            tried += turn.n
        return tried


def test_a_loop_in_a_method_is_looked_at(url: str) -> None:
    @workflow
    async def flow() -> int:
        return await Worker().work()

    assert "`tried` is not durable" in refusal(flow, url)


@pytest.mark.parametrize("how", ["next", "progress", "helper", "comprehension"])
def test_a_loop_that_is_not_the_workflows_own_is_let_alone(how: str, url: str) -> None:
    def bar(items: Any) -> Any:
        shown = 0
        for item in items:
            shown += look(1)
            yield item

    @workflow
    def flow() -> list[int]:
        loop = outlast.turns(log=[], max=3)
        if how == "next":
            mine = loop.__iter__()
            for n in range(2):
                next(mine).log.append(n)
            return next(mine).log  # type: ignore[no-any-return]
        if how == "comprehension":
            return [turn.log.append(look(1)) or len(turn.log) for turn in loop]
        last = 0
        for turn in bar(loop) if how == "progress" else map(lambda turn: turn, loop):  # noqa: C417
            turn.log.append(last)
            last += look(1)
        return turn.log  # type: ignore[no-any-return]

    assert len(outlast.run(flow, run_id="r", store=url)) in (2, 3)


def test_globals_and_variables_of_an_enclosing_function_are_no_locals(url: str) -> None:
    ran, count = [], 0

    @workflow
    def flow() -> int:
        nonlocal count
        for turn in outlast.turns(n=0, max=3):
            ran.append(count)
            count += 1
            turn.n += 1
        return int(turn.n)

    assert outlast.run(flow, run_id="r", store=url) == 3
    assert ran == [0, 1, 2]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_function_with_many_instructions_is_read_right(colour: str, url: str) -> None:
    padding = "\n".join(f"            look({n}) if turn.other else None" for n in range(300))
    source = "\n        n = 0\n        TURN:\n            turn.log.append(n)\n" + padding
    assert "`n`" in refusal(program(source + "\n            n += 1", colour), url)


def test_no_frame_is_kept_by_the_loop(url: str) -> None:
    class Marker:
        pass

    marks: list[weakref.ref[Marker]] = []

    @workflow
    async def flow() -> int:
        mark = Marker()
        marks.append(weakref.ref(mark))
        kept = [1]
        async for turn in outlast.turns(n=0, max=3):
            turn.n += len(kept)
        await asyncio.sleep(0)
        return int(turn.n)

    gc.disable()
    try:
        outlast.run(flow, run_id="r", store=url)
        assert marks[0]() is None
    finally:
        gc.enable()
