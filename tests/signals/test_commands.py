"""The commands signal, inbox and answer, and what show and journal say about them."""

import getpass
import json
from typing import Any

import pytest

import outlast
from outlast import Approval, workflow
from outlast.cli.main import main
from tests.effects.stage import Stage
from tests.signals.test_signals import once


@outlast.step(approval=True)
def pay(amount: int) -> int:
    return amount


@workflow
def desk() -> object:
    order = outlast.wait_signal("order", int).result()
    fine = outlast.ask("Is it fine?", bool, details={"order": order}).result()
    return [order, fine, pay(order)]


class Shell:
    """Carries out commands on the store of a stage."""

    def __init__(self, stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
        self._stage, self._capfd = stage, capfd

    def __call__(self, *words: str, code: int = 0) -> str:
        """What a command says, on stdout, or if it fails on stderr."""
        self._capfd.readouterr()
        assert main([*words, "--store", self._stage.url]) == code
        out, err = self._capfd.readouterr()
        return err if code else out

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(stage: Stage, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(stage, capfd)


def test_a_run_is_led_to_its_end_by_commands(stage: Stage, shell: Shell) -> None:
    once(desk, stage)
    assert "no questions" in shell("inbox")
    assert "waits for signal order" in shell("show", "run")
    assert "sent signal order to run run" in shell("signal", "run", "order", "7")
    assert "signal order 7" in shell("show", "run")
    once(desk, stage)
    (question,) = shell.json("inbox")
    assert (question["prompt"], question["details"]) == ("Is it fine?", '{"order": 7}')
    shown = shell("show", "run")
    assert "waits for an answer to: Is it fine?" in shown
    assert f"answer {question['question']} --yes" in shown
    assert "answered yes to: Is it fine?" in shell("answer", "run", "--yes")
    once(desk, stage)
    assert "approval of pay#2" in shell("inbox")
    shell("answer", "run", "--yes", "--note", "go")
    assert once(desk, stage) == [7, True, 7]
    said = shell("journal", "run")
    who = getpass.getuser()
    for words in (
        "waits for signal order",
        f"signal order sent by {who}: 7",
        "asks, question",
        "asks for leave, question",
        f"answered by {who}: True",
        "got event",
    ):
        assert words in said


def test_a_denial_says_by_whom_and_why(stage: Stage, shell: Shell) -> None:
    @workflow
    def paying() -> int:
        return pay(900)

    once(paying, stage)
    shell("answer", "run", "--no", "--note", "too much")
    with pytest.raises(outlast.RunFailed, match=r"denied by .*: too much"):
        once(paying, stage)
    assert "denied by" in shell("journal", "run")
    assert "denied" in shell("show", "run")


def test_a_question_is_shown_once_in_the_words_of_the_code(stage: Stage, shell: Shell) -> None:
    @outlast.step(approval=lambda amount: f"Pay {amount} EUR?")
    def pay_out(amount: int) -> int:
        return amount

    @workflow
    def paying() -> list[int]:
        return [pay_out(900), pay(900)]

    once(paying, stage)
    assert "approval of pay_out#0 with amount=900" in shell("inbox")
    assert "answered yes (fine) to: Pay 900 EUR?" in shell(
        "answer", "run", "--yes", "--note", "fine"
    )
    once(paying, stage)
    assert shell("inbox").count("amount=900") == 1


def test_what_is_refused_says_why(stage: Stage, shell: Shell) -> None:
    once(desk, stage)
    assert "does not fit" in shell("signal", "run", "order", '"seven"', code=2)
    assert "not JSON" in shell("signal", "run", "order", "{", code=2)
    assert "asks nothing" in shell("answer", "run", "--yes", code=2)
    assert "no question and no run" in shell("answer", "nowhere", "--yes", code=2)
    assert "say one of" in shell("answer", "run", code=2)
    assert "say one of" in shell("answer", "run", "--yes", "--no", code=2)
    assert "--note" in shell("answer", "run", "1", "--note", "x", code=2)


def test_any_json_is_an_answer_where_it_fits(stage: Stage, shell: Shell) -> None:
    @workflow
    def typed() -> list[str]:
        return outlast.ask("Which?", list[str]).result()

    once(typed, stage)
    assert "answer" in shell("inbox")
    assert "does not fit" in shell("answer", "run", "--yes", code=2)
    shell("answer", "run", '["a", "b"]')
    assert once(typed, stage) == ["a", "b"]


def test_a_signal_set_aside_is_shown_with_the_reason(stage: Stage, shell: Shell) -> None:
    outlast.submit(desk, run_id="run", store=stage.url)
    stage.client().signal("run", "order", "seven")
    once(desk, stage)
    assert "set aside, since it did not fit" in shell("show", "run")
    assert "does not fit and is set aside" in shell("journal", "run")


def test_the_default_answer_is_an_approval(stage: Stage, shell: Shell) -> None:
    @workflow
    def plain() -> Approval:
        return outlast.ask("Go on?").result()

    once(plain, stage)
    shell("answer", "run", "--no")
    assert once(plain, stage) == Approval(False)
