"""Questions: shown to a person, bound to what was shown, answered once, by nobody but a person."""

import asyncio
import contextvars
import itertools
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Approval, workflow
from outlast.engine import asking
from outlast.testing import replay
from tests.effects.stage import Stage, wait_for
from tests.signals.test_signals import once


@workflow
def desk() -> list[object]:
    said = outlast.ask("Refund 900 EUR?", details={"order": "A-17"}).result()
    return [said.approved, said.note]


@workflow
async def desk_async() -> list[object]:
    said = await outlast.ask("Refund 900 EUR?", details={"order": "A-17"})
    return [said.approved, said.note]


@workflow
def hasty() -> str:
    try:
        return outlast.ask("Quick?", str, timeout=0).result()
    except outlast.AskTimeout as late:
        return f"{late.key} was late"


DESKS = pytest.mark.parametrize("flow", [desk, desk_async])


@DESKS
def test_a_question_is_listed_with_all_that_it_shows(flow: Any, stage: Stage) -> None:
    assert once(flow, stage) is None
    (question,) = stage.client().inbox()
    assert (question.run_id, question.key, question.what) == ("run", "ask#0", "question")
    assert (question.prompt, question.details) == ("Refund 900 EUR?", '{"order": "A-17"}')
    assert (question.workflow, question.due_at) == (stage.client().run("run").workflow, None)
    assert "approved" in json.dumps(question.schema)
    assert stage.client().run("run").questions == [question]


@DESKS
@pytest.mark.parametrize("named", ["question", "run"])
def test_an_answer_reaches_the_workflow(flow: Any, named: str, stage: Stage) -> None:
    once(flow, stage)
    client = stage.client()
    (question,) = client.inbox()
    token = question.question if named == "question" else "run"
    assert client.answer(token, Approval(True, "go"), by="ann") == question
    assert client.inbox() == []
    assert client.unfinished() == ["run"]
    assert once(flow, stage) == [True, "go"]
    replay("run", flow, store=stage.url)


@DESKS
def test_a_process_that_waits_is_woken_by_the_answer(flow: Any, stage: Stage) -> None:
    results: list[Any] = []
    settings = outlast.Settings(max_sleep=3600)
    outlast.submit(flow, run_id="run", store=stage.url)
    thread = threading.Thread(
        target=lambda: results.append(
            outlast.run(flow, run_id="run", store=stage.url, settings=settings)
        ),
        daemon=True,
    )
    thread.start()
    wait_for(lambda: bool(stage.client().inbox()), "the question")
    stage.client().answer("run", {"approved": False, "note": "no"})
    thread.join()
    assert results == [[False, "no"]]


def test_an_answer_that_does_not_fit_is_refused_with_the_reason(stage: Stage) -> None:
    once(desk, stage)
    before = stage.kinds()
    for value in (True, {"approved": "yes"}, "go"):
        with pytest.raises(outlast.UsageError, match="does not fit, nothing was written"):
            stage.client().answer("run", value)
    assert stage.kinds() == before


def test_a_question_that_nobody_answers_in_time_is_an_error_that_stays(stage: Stage) -> None:
    assert once(hasty, stage) == "ask#0 was late"
    assert once(hasty, stage) == "ask#0 was late"
    replay("run", hasty, store=stage.url)


def test_a_late_answer_is_refused(stage: Stage) -> None:
    @workflow
    def slow() -> str:
        outlast.wait_signal("go").result()
        try:
            return outlast.ask("Quick?", str, timeout=0.001).result()
        except outlast.AskTimeout:
            outlast.wait_signal("end").result()
            return "late"

    once(slow, stage)
    client = stage.client()
    client.signal("run", "go")
    # The run leaves at the question, or, should the time be over by then, at the next wait.
    once(slow, stage)
    once(slow, stage)
    (opened,) = [e for e in client.journal("run") if e.key == "ask#1" and e.kind == "wait.opened"]
    token = json.loads(opened.data)["name"]
    with pytest.raises(outlast.UsageError, match="timed out at"):
        client.answer(token, "yes")
    wait_for(lambda: once(slow, stage) is None and "wait.ended" in stage.kinds("ask#1"), "the end")
    with pytest.raises(outlast.UsageError, match="timed out at"):
        client.answer(token, "yes")
    client.signal("run", "end")
    assert once(slow, stage) == "late"


def test_an_answer_that_came_in_time_counts_although_the_run_looks_late(stage: Stage) -> None:
    program = Path(__file__).parent / "programs" / "deadline.py"
    stage.play(program)
    stage.client().answer("run", "yes")
    stage.later(7200)
    assert stage.play(program).result == "yes"


def test_other_words_at_a_recorded_place_never_get_the_answer(stage: Stage) -> None:
    amounts = iter([900, 90000])

    @workflow
    def edited() -> bool:
        return outlast.ask(f"Refund {next(amounts)} EUR?", bool).result()

    once(edited, stage)
    stage.client().answer("run", True)
    with pytest.raises(outlast.RunHeld, match="diverged"):
        outlast.run(edited, run_id="run", store=stage.url, wait=False)


@pytest.mark.parametrize("answered", [False, True])
def test_a_question_whose_type_has_other_fields_by_now_is_asked_for_those(
    answered: bool, stage: Stage
) -> None:
    @dataclass
    class Price:
        eur: int

    old = Price

    @dataclass
    class Price:  # type: ignore[no-redef]
        cents: int

    types = iter([old, Price, Price, Price])

    @workflow
    def deployed() -> int:
        return int(outlast.ask("How much?", next(types)).result().cents)

    once(deployed, stage)
    client = stage.client()
    if answered:
        client.answer("run", {"eur": 5})
    assert once(deployed, stage) is None
    with pytest.raises(outlast.UsageError, match="cents"):
        client.answer("run", {"eur": 5})
    client.answer("run", {"cents": 500})
    assert once(deployed, stage) == 500
    replay("run", deployed, store=stage.url)


def test_an_answer_is_not_lost_as_its_question_is_asked_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = iter([int, object])

    @workflow
    def deployed() -> object:
        return outlast.ask("How much?", next(types)).result()

    # The same name of the type, or it would be another question.
    monkeypatch.setattr("outlast.api.asking._name_of", lambda expects: "Price")
    once(deployed, stage)
    look, looks = asking.next_mail, itertools.count()

    def at_the_last_moment(*of: Any) -> Any:
        found = look(*of)
        if next(looks) == 0:
            contextvars.Context().run(stage.client().answer, "run", 5)
        return found

    monkeypatch.setattr(asking, "next_mail", at_the_last_moment)
    assert once(deployed, stage) == 5


def test_a_dropped_question_is_void_and_its_token_with_it(stage: Stage) -> None:
    amounts = iter([900, 90000, 90000])

    @workflow
    def edited() -> bool:
        return outlast.ask(f"Refund {next(amounts)} EUR?", bool).result()

    once(edited, stage)
    client = stage.client()
    old = client.inbox()[0].question
    client.accept_from("run", "ask#0")
    assert client.inbox() == []
    with pytest.raises(outlast.UnknownRun):
        client.answer(old, True)
    once(edited, stage)
    (new,) = client.inbox()
    assert (new.prompt, new.question != old) == ("Refund 90000 EUR?", True)
    with pytest.raises(outlast.UnknownRun):
        client.answer(old, True)
    client.answer(new.question, False)
    assert once(edited, stage) is False


def test_the_same_question_of_another_run_has_another_token(stage: Stage) -> None:
    once(desk, stage)
    once(desk, stage, "other")
    first, second = stage.client().inbox()
    assert first.question != second.question
    with pytest.raises(outlast.UsageError, match="asks no question"):
        stage.client().answer("other", True, question=first.question)


def test_a_run_that_asks_several_questions_is_no_name_for_one(stage: Stage) -> None:
    @workflow
    async def two() -> list[bool]:
        return list(await asyncio.gather(outlast.ask("A?", bool), outlast.ask("B?", bool)))

    once(two, stage)
    client = stage.client()
    with pytest.raises(outlast.UsageError, match="several questions"):
        client.answer("run", True)
    for question in client.inbox():
        client.answer(question.question, question.prompt == "A?")
    assert once(two, stage) == [True, False]
    with pytest.raises(outlast.UsageError, match="asks nothing"):
        client.answer("run", True)


def test_yes_without_a_note_answers_where_true_or_false_is_expected(stage: Stage) -> None:
    @workflow
    def plain() -> bool:
        return outlast.ask("Fine?", bool).result()

    once(plain, stage)
    with pytest.raises(outlast.UsageError, match="does not fit"):
        stage.client().answer("run", Approval(True, "a note that nobody would see"))
    stage.client().answer("@last", Approval(True))
    assert once(plain, stage) is True


def test_a_step_may_be_called_as_the_question_is_in_a_journal(stage: Stage) -> None:
    @outlast.step(approval=True)
    def ask(prompt: str) -> str:
        return f"the model says: {prompt}"

    @workflow
    def agent() -> list[object]:
        return [outlast.ask("Fine?", bool).result(), ask("Fine?")]

    once(agent, stage)
    stage.client().answer("run", True)
    once(agent, stage)
    assert [(q.key, q.what) for q in stage.client().inbox()] == [("ask#1", "approval")]
    stage.client().answer("run", Approval(True))
    assert once(agent, stage) == [True, "the model says: Fine?"]


@pytest.mark.parametrize("first", ["step", "question"])
def test_a_step_and_a_question_of_one_name_are_told_apart(first: str, stage: Stage) -> None:
    firsts = iter([first == "step", first != "step"])

    @outlast.step(name="ask", approval=True)
    def act(prompt: str) -> bool:
        return True

    @workflow
    def edited() -> bool:
        return act("Fine?") if next(firsts) else outlast.ask("Fine?", bool).result()

    once(edited, stage)
    with pytest.raises(outlast.RunHeld, match="diverged"):
        outlast.run(edited, run_id="run", store=stage.url, wait=False)


def test_runs_that_have_ended_ask_nothing(stage: Stage) -> None:
    once(desk, stage)
    client = stage.client()
    token = client.inbox()[0].question
    client.kill("run")
    assert client.inbox() == []
    with pytest.raises(outlast.UsageError, match="killed"):
        client.answer(token, Approval(True))


def test_a_fork_keeps_the_answers_and_asks_the_open_questions_anew(stage: Stage) -> None:
    @workflow
    def two() -> list[bool]:
        return [outlast.ask("A?", bool).result(), outlast.ask("B?", bool).result()]

    once(two, stage)
    client = stage.client()
    client.answer("run", True)
    once(two, stage)
    client.fork("run", "@end", new_id="copy")
    once(two, stage, "copy")
    client.answer("copy", False)
    assert once(two, stage, "copy") == [True, False]
    assert [question.run_id for question in client.inbox()] == ["run"]
