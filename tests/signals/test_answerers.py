"""Who answers a question: one person, and nobody that a run has started."""

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import outlast
from outlast import Approval, workflow
from tests.effects.stage import DEADLINE, ROOT, Stage
from tests.signals.test_questions import desk
from tests.signals.test_signals import once

ANSWERING = Path(__file__).parent / "programs" / "answering.py"


def test_a_later_answer_is_told_who_was_first(stage: Stage) -> None:
    once(desk, stage)
    client = stage.client()
    token = client.inbox()[0].question
    client.answer(token, Approval(True), by="ann")
    before = stage.kinds()
    with pytest.raises(outlast.UsageError, match="answered by ann at"):
        client.answer(token, Approval(False), by="bob")
    assert stage.kinds() == before


def test_of_two_processes_that_answer_at_once_one_wins(stage: Stage) -> None:
    once(desk, stage)
    token = stage.client().inbox()[0].question
    children = [
        subprocess.Popen(
            [sys.executable, str(ANSWERING), stage.url, token, by],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for by in ("ann", "bob")
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    said = [json.loads(child.communicate(timeout=DEADLINE)[0]) for child in children]
    winner = ("ann", "bob")[said.index("accepted")]
    assert sorted(answer == "accepted" for answer in said) == [False, True]
    assert any(f"answered by {winner} at" in answer for answer in said)
    assert once(desk, stage) == [True, winner]
    assert stage.kinds().count("question.answered") == 1


@pytest.mark.parametrize("named", ["question", "run"])
def test_who_answers_a_run_that_has_ended_is_told_who_answered_it(named: str, stage: Stage) -> None:
    once(desk, stage)
    client = stage.client()
    token = client.inbox()[0].question
    client.answer("run", Approval(True, "go"), by="ann")
    once(desk, stage)
    with pytest.raises(outlast.UsageError, match=r'answered by ann at .*"go"'):
        client.answer(token if named == "question" else "run", Approval(False))


def test_no_run_can_answer_a_question(stage: Stage) -> None:
    refused: list[str] = []

    def try_it() -> None:
        try:
            stage.client().answer("run", Approval(True))
        except outlast.UsageError as error:
            refused.append(str(error))

    @outlast.step
    def tool() -> None:
        try_it()

    @workflow
    def agent() -> None:
        tool()
        try_it()

    once(desk, stage)
    once(agent, stage, "agent")
    assert len(refused) == 2
    assert all("a run cannot answer" in text for text in refused)
    assert len(stage.client().inbox()) == 1


@pytest.mark.parametrize("how", ["thread", "thread of a thread", "pool", "executor"])
def test_no_thread_that_a_run_started_can_answer(how: str, stage: Stage) -> None:
    said: list[str] = []

    def try_it() -> None:
        try:
            stage.client().answer("run", Approval(True))
        except outlast.UsageError as error:
            said.append(str(error))

    def in_thread(do: Callable[[], object]) -> None:
        thread = threading.Thread(target=do)
        thread.start()
        thread.join()

    @outlast.step
    async def tool() -> None:
        if how == "thread":
            in_thread(try_it)
        elif how == "thread of a thread":
            in_thread(lambda: in_thread(try_it))
        elif how == "pool":
            with ThreadPoolExecutor() as pool:
                pool.submit(try_it).result()
        else:
            await asyncio.get_running_loop().run_in_executor(None, try_it)

    @workflow
    async def agent() -> None:
        await tool()

    once(desk, stage)
    once(agent, stage, "agent")
    assert len(said) == 1
    assert "a run cannot answer" in said[0]
    assert len(stage.client().inbox()) == 1


def test_a_person_may_answer_through_a_pool_whose_threads_a_run_has_started(stage: Stage) -> None:
    asked, answered = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:

        @outlast.step
        def tool() -> None:
            pool.submit(int).result()
            asked.set()
            assert answered.wait(DEADLINE)

        @workflow
        def agent() -> None:
            tool()

        once(desk, stage)
        thread = threading.Thread(target=once, args=(agent, stage, "agent"))
        thread.start()
        assert asked.wait(DEADLINE)
        # As a web framework does it: with the context of the request.
        context = contextvars.copy_context()
        pool.submit(context.run, stage.client().answer, "run", Approval(True)).result()
        answered.set()
        thread.join()
    assert once(desk, stage) == [True, ""]


def test_no_process_can_answer_that_a_tool_started_behind_the_library(stage: Stage) -> None:
    program = Path(__file__).parent / "programs" / "meddling.py"
    once(desk, stage)
    assert stage.play(program).result == 2
    assert len(stage.client().inbox()) == 1


def test_no_process_that_a_tool_started_can_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(desk, stage)
    monkeypatch.setenv("OUTLAST_ATTEMPT", "run/act#0/1")
    with pytest.raises(outlast.UsageError, match="a tool cannot answer"):
        stage.client().answer("run", Approval(True))
    monkeypatch.setenv("OUTLAST_ATTEMPT", "")
    stage.client().answer("run", Approval(True))
    assert once(desk, stage) == [True, ""]
