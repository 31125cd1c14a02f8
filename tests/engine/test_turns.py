"""Agent loops: the accumulated state is restored exactly, and only the current turn replays."""

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

import outlast
from outlast import step, workflow
from tests.engine.tools import (
    PATIENT,
    Bodies,
    dying_at,
    kinds,
    run_through_deaths,
    run_with_each_death,
)

PROGRAM = Path(__file__).parent / "programs" / "agent.py"


@dataclasses.dataclass
class Point:
    x: int


@dataclasses.dataclass
class Desk:
    chat: list[str] = dataclasses.field(default_factory=list)
    seen: set[int] = dataclasses.field(default_factory=set)
    at: Point = dataclasses.field(default_factory=lambda: Point(0))


@dataclasses.dataclass(slots=True)
class SlottedDesk:
    chat: list[str]
    seen: set[int]
    at: Point


class StructDesk(msgspec.Struct):
    chat: list[str]
    seen: set[int]
    at: Point


@attrs.define
class AttrsDesk:
    chat: list[str] = attrs.field(validator=attrs.validators.max_len(1000))
    seen: set[int]
    at: Point


class ModelDesk(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_assignment=True)
    chat: list[str]
    seen: set[int]
    at: Point

    @pydantic.model_validator(mode="after")
    def agree(self) -> "ModelDesk":
        # Holds between any two statements of the workflow, not between two assignments.
        assert self.at.x == len(self.chat)
        return self


class Agent:
    def __init__(self, bodies: Bodies) -> None:
        @step
        def look(n: int) -> str:
            bodies(f"look {n}")
            return f"saw {n}"

        @step
        async def act(n: int) -> str:
            bodies(f"act {n}")
            return f"did {n}"

        self.look, self.act = look, act


@pytest.fixture
def agent(bodies: Bodies) -> Agent:
    return Agent(bodies)


def fields() -> dict[str, Any]:
    return {"chat": [], "seen": set(), "at": Point(0)}


RECORDS: list[Callable[[], Any]] = [
    Desk,
    lambda: SlottedDesk(**fields()),
    lambda: StructDesk(**fields()),
    lambda: AttrsDesk(**fields()),
    lambda: ModelDesk(**fields()),
]
NAMES = ["dataclass", "slots", "Struct", "attrs", "pydantic"]


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
@pytest.mark.parametrize("after", [False, True], ids=["uncommitted", "committed"])
def test_plain_loop_survives_a_death_at_every_write(
    record: Callable[[], Any], after: bool, url: str, agent: Agent, bodies: Bodies
) -> None:
    @workflow
    def flow() -> dict[str, Any]:
        for turn in outlast.turns(record(), max=3):
            text = agent.look(len(turn.seen))
            turn.at.x += 1  # in place, deep down
            turn.chat.append(text)  # in place
            turn.seen = {*turn.seen, len(turn.seen)}  # assigned
        return {"chat": turn.chat, "seen": turn.seen, "at": turn.at, "is": type(turn).__name__}

    undisturbed = outlast.run(flow, run_id="undisturbed", store=url)
    bodies.ran.clear()

    def start(run_id: str) -> dict[str, Any]:
        return outlast.run(flow, run_id=run_id, store=url, settings=PATIENT)

    deaths = 0
    for run_id, result in run_with_each_death(start, url, after=after):
        deaths += 1
        assert result == undisturbed
        assert result["at"] == Point(3)
        interrupted = sum(k.startswith("step.interrupted") for k in kinds(url, run_id))
        assert bodies.ran.total() <= 3 + interrupted, "what is completed ran again"
        bodies.ran.clear()
    assert deaths == 9  # opened and completed three times, two turns saved, the end


@pytest.mark.parametrize("after", [False, True], ids=["uncommitted", "committed"])
def test_async_loop_with_tasks_survives_a_death_at_every_write(
    after: bool, url: str, agent: Agent, bodies: Bodies
) -> None:
    async def both(n: int) -> str:
        return await agent.act(n) + await agent.act(n + 1)

    @workflow
    async def flow() -> list[str]:
        first = await agent.act(-1)
        chat = []
        async for turn in outlast.turns(chat=[first], max=3):
            n = len(turn.chat)
            turn.chat += await asyncio.gather(both(n), both(n + 10), agent.act(n + 20))
            if n > 3:
                break
        chat = turn.chat
        async for second in outlast.turns(total=0, max=2):
            second.total += len(await agent.act(100 + second.total))
        return [*chat, str(second.total), await agent.act(200)]

    undisturbed = outlast.run(flow, run_id="undisturbed", store=url)

    def start(run_id: str) -> list[str]:
        return outlast.run(flow, run_id=run_id, store=url, settings=PATIENT)

    deaths = 0
    for run_id, result in run_with_each_death(start, url, after=after):
        deaths += 1
        assert result == undisturbed
        completed = [k for k in kinds(url, run_id) if k.startswith("step.completed")]
        assert len(completed) == len(set(completed))
    assert deaths >= 15


def test_only_the_current_turn_and_what_stands_around_the_loop_replay(
    url: str, agent: Agent
) -> None:
    top, looked = [], []

    @workflow
    def flow() -> int:
        top.append("above")
        agent.look(100)
        for turn in outlast.turns(n=0, max=5):
            looked.append(turn.n)
            agent.look(turn.n)
            turn.n += 1
            agent.look(10 + turn.n)
        agent.look(200)
        return int(turn.n)

    death = dying_at(url, kind="step.started", key="look#1.t3.1")
    with death, pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    top.clear()
    looked.clear()
    assert outlast.run(flow, run_id="r", store=url) == 5
    assert (top, looked) == (["above"], [3, 4])
    assert outlast.Client(url).run("r").turn == 4


@pytest.mark.parametrize("how", ["break", "return", "exception", "exhausted", "continue"])
@pytest.mark.parametrize("colour", ["plain", "awaited"])
def test_every_way_out_of_a_loop_leads_on_to_the_same_keys(
    how: str, colour: str, url: str, agent: Agent
) -> None:
    def leave(turn: Any) -> bool:
        turn.n += 1
        if how == "exception" and turn.n == 2:
            raise ValueError("out")
        return bool(how in ("break", "return") and turn.n == 2)

    def plain_loop() -> int | None:
        for turn in outlast.turns(n=0, max=3):
            agent.look(turn.n)
            if leave(turn):
                if how == "return":
                    return int(turn.n)
                break
            if how == "continue":
                continue
            agent.look(turn.n + 10)
        return None

    caught: list[Exception] = []

    async def async_loop() -> int | None:
        async for turn in outlast.turns(n=0, max=3):
            agent.look(turn.n)
            if leave(turn):
                if how == "return":
                    return int(turn.n)
                break
            if how == "continue":
                continue
            agent.look(turn.n + 10)
        return None

    @workflow
    async def flow() -> str:
        for _ in range(2):
            try:
                if colour == "plain":
                    plain_loop()
                else:
                    await async_loop()
            except ValueError as exc:
                caught.append(exc)  # and with it the frame of the loop
                agent.look(300)
        agent.look(200)
        return "done"

    def start() -> str:
        return outlast.run(flow, run_id="r", store=url, settings=PATIENT)

    result, _ = run_through_deaths(start, url, first=2)
    assert result == "done"
    last = [k for k in kinds(url) if k.startswith("step.completed")][-1]
    assert last == f"step.completed look#{4 if how == 'exception' else 2}"
    turns = {"break": 1, "return": 1, "exception": 1, "exhausted": 2, "continue": 2}[how]
    saved = [k for k in kinds(url) if k.startswith("turn.saved")]
    assert len(saved) == 2 * turns


def test_turns_of_none_run_nothing(url: str, agent: Agent) -> None:
    @workflow
    def flow() -> str:
        for _ in outlast.turns(n=0, max=0):
            agent.look(1)
        return agent.look(2)

    assert outlast.run(flow, run_id="r", store=url) == "saw 2"
    assert {s.key for s in outlast.Client(url).run("r").steps} == {"look#1"}


def test_a_loop_without_max_goes_on_until_it_is_left(url: str) -> None:
    @workflow
    def flow() -> int:
        for turn in outlast.turns(n=0):
            turn.n += 1
            if turn.n == 40:
                return int(turn.n)
        return -1

    assert outlast.run(flow, run_id="r", store=url) == 40


# ---- what could lose a change is refused


def _fails(flow: Callable[[], Any], url: str) -> BaseException:
    with pytest.raises(outlast.RunFailed) as failed:
        outlast.run(workflow(flow), run_id="r", store=url)
    cause = failed.value.__cause__
    assert cause is not None
    return cause


def test_a_nested_loop_is_refused(url: str) -> None:
    def flow() -> None:
        for outer in outlast.turns(n=0, max=2):
            for _ in outlast.turns(m=0, max=2):
                outer.n += 1

    cause = _fails(flow, url)
    assert isinstance(cause, outlast.UsageError)
    assert "inside another one" in str(cause)


@dataclasses.dataclass(frozen=True)
class FrozenDesk:
    chat: list[str]


class FrozenStruct(msgspec.Struct, frozen=True):
    chat: list[str]


@attrs.frozen
class FrozenAttrs:
    chat: list[str]


class FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    chat: list[str]


@pytest.mark.parametrize("cls", [FrozenDesk, FrozenStruct, FrozenAttrs, FrozenModel])
def test_a_frozen_record_is_refused(cls: Callable[..., Any], url: str) -> None:
    def flow() -> None:
        for _ in outlast.turns(cls(chat=[]), max=2):
            pytest.fail("the loop began")

    cause = _fails(flow, url)
    assert isinstance(cause, outlast.UsageError)
    assert "frozen" in str(cause)


@pytest.mark.parametrize("record", [[], {}, 3, "text", object(), Desk])
def test_what_is_no_record_is_refused(record: Any, url: str) -> None:
    def flow() -> None:
        for _ in outlast.turns(record, max=2):
            pytest.fail("the loop began")

    assert isinstance(_fails(flow, url), outlast.UsageError)


def test_a_field_that_was_not_declared_is_refused(url: str) -> None:
    def flow() -> None:
        for turn in outlast.turns(chat=[], max=2):
            turn.caht = ["lost on resume"]

    cause = _fails(flow, url)
    assert "caht" in str(cause)


@pytest.mark.parametrize("colour", ["async for", "for"])
def test_a_task_that_outlives_its_turn_is_refused(colour: str, url: str, agent: Agent) -> None:
    async def forever() -> None:
        await agent.act(1)
        await asyncio.Event().wait()

    async def turn() -> None:
        task = asyncio.create_task(forever())
        await agent.act(2)
        assert not task.done()

    async def flow() -> None:
        if colour == "for":
            for _ in outlast.turns(n=0, max=2):
                await turn()
        async for _ in outlast.turns(n=0, max=2):
            await turn()

    cause = _fails(flow, url)
    assert "turn 0 still runs at its end" in str(cause)


def test_a_task_that_is_awaited_in_its_turn_is_fine(url: str, agent: Agent) -> None:
    @workflow
    async def flow() -> int:
        async for turn in outlast.turns(n=0, max=3):
            async with asyncio.TaskGroup() as group:
                for n in range(3):
                    group.create_task(agent.act(n))
            await asyncio.wait_for(agent.act(9), 5)
            turn.n += 1
        return int(turn.n)

    assert outlast.run(flow, run_id="r", store=url) == 3


def test_a_value_that_cannot_be_stored_is_named(url: str) -> None:
    def flow() -> None:
        for turn in outlast.turns(chat=[], max=2):
            turn.chat.append(lambda: None)

    cause = _fails(flow, url)
    assert isinstance(cause, outlast.NotStorable)
    assert "'chat'" in str(cause)
    assert "turn 1" in str(cause)


def test_a_saved_field_that_the_record_has_no_more_holds_the_run(url: str) -> None:
    names = ["chat", "mood"]

    @workflow
    def flow() -> int:
        for turn in outlast.turns(**dict.fromkeys(names, 0), max=3):
            turn.chat += 1
        return int(turn.chat)

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    names = ["chat"]
    with pytest.raises(outlast.RunHeld, match="no longer has: mood"):
        outlast.run(flow, run_id="r", store=url)
    names = ["chat", "mood", "new"]
    assert outlast.run(flow, run_id="r", store=url) == 3


def test_the_next_turn_gets_the_stored_form_without_a_crash_too(url: str) -> None:
    shared: list[list[int]] = []

    @workflow
    def flow() -> bool:
        for turn in outlast.turns(chat=[], max=2):
            if shared:
                assert turn.chat == shared[0] == [1]
                return turn.chat is not shared[0]
            turn.chat.append(1)
            shared.append(turn.chat)
        return False

    assert outlast.run(flow, run_id="r", store=url) is True


# ---- a real process, really killed


@pytest.mark.parametrize(
    "point", ["act before", "turn 1", "think 1", "act right", "end 4", "think 4", "end 10"]
)
def test_a_killed_process_goes_on_in_its_turn(point: str, tmp_path: Path) -> None:
    def start(store: str, die_at: str) -> "subprocess.CompletedProcess[str]":
        log = tmp_path / f"{store}.log"
        command = [sys.executable, str(PROGRAM), f"sqlite:///{tmp_path}/{store}", str(log), die_at]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    undisturbed = start("undisturbed", "-")
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert start("killed", point).returncode == -9
    before = (tmp_path / "killed.log").read_text().split("\n")
    resumed = start("killed", "-")
    assert (resumed.returncode, resumed.stdout) == (0, undisturbed.stdout), resumed.stderr
    after = (tmp_path / "killed.log").read_text().split("\n")[len(before) - 1 :]
    assert after[0] == "top"
    turns = [line for line in after if line.startswith("turn ")]
    current = [line for line in before if line.startswith("turn ")][-1:] or ["turn 1"]
    assert turns[0] == current[0], "the current turn, no earlier one"
