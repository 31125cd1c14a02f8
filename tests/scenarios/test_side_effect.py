"""What people met with effects outside: fresh keys on retries, and work that was done twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from tests.effects.stage import Played, Stage
from tests.scenarios.bank import Bank, open_bank

PROGRAMS = Path(__file__).parent / "programs"
CUTS = ("timeout", "kill", "drop")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


@pytest.fixture
def bank() -> Iterator[Bank]:
    with open_bank() as bank:
        yield bank


def test_a_retried_payment_keeps_its_key_in_every_process(stage: Stage, bank: Bank) -> None:
    bank.drops = 1  # the first attempt: retried inside the process
    for _ in range(2):  # the next two: SIGKILL, and two other processes
        stage.kill_at("paid")
        assert stage.play(PROGRAMS / "pay.py", bank.url).killed
    assert stage.play(PROGRAMS / "pay.py", bank.url).result == [5, 5]
    first, second = dict.fromkeys(bank.requests)
    assert bank.requests == [first] * 4 + [second]
    assert [line.split()[1] for line in stage.effects()] == bank.requests
    # Equal arguments, but another step: two payments were meant, two were booked.
    assert bank.booked == {first: 5, second: 5}
    steps = stage.client().run("run").steps
    assert [(s.idempotency_key, s.attempts) for s in steps] == [(first, 4), (second, 1)]


def cut_off(stage: Stage, bank: Bank, declared: str, cut: str) -> Played:
    """Let the step do its work and cut it off once; then start the run again."""
    program = PROGRAMS / "send.py"
    if cut == "kill":
        stage.kill_at("sent")
        assert stage.play(program, bank.url, declared, cut).killed
    elif cut == "drop":
        bank.drops = 1
    return stage.play(program, bank.url, declared, cut)


@pytest.mark.parametrize("cut", CUTS)
def test_work_that_must_not_be_repeated_waits_for_a_decision(
    stage: Stage, bank: Bank, cut: str
) -> None:
    played = cut_off(stage, bank, "once", cut)
    assert played.stopped == ("RunHeld", "in-doubt")
    assert len(bank.requests) == 1
    # Starting it again changes nothing.
    again = stage.play(PROGRAMS / "send.py", bank.url, "once", cut)
    assert again.stopped == ("RunHeld", "in-doubt")
    stage.client().settle("run", "send#0", outlast.Done(7))
    assert stage.play(PROGRAMS / "send.py", bank.url, "once", cut).result == 7
    assert len(bank.requests) == 1


@pytest.mark.parametrize("cut", CUTS)
def test_work_that_may_be_repeated_is_under_the_same_key(
    stage: Stage, bank: Bank, cut: str
) -> None:
    assert cut_off(stage, bank, "idempotent", cut).result == 7
    first, second = bank.requests
    assert first == second
    assert bank.booked == {first: 7}


@pytest.mark.parametrize("cut", CUTS)
def test_a_check_finds_out_that_it_was_done(stage: Stage, bank: Bank, cut: str) -> None:
    assert cut_off(stage, bank, "checked", cut).result == 7
    assert len(bank.requests) == 1
    assert stage.step("send#0").reconciled == "done"


def test_a_check_finds_out_that_it_was_not_done(stage: Stage, bank: Bank) -> None:
    bank.books_first = False
    assert cut_off(stage, bank, "checked", "drop").result == 7
    first, second = bank.requests
    assert first == second
    assert bank.booked == {first: 7}


@pytest.mark.parametrize("cut", CUTS)
def test_a_check_that_fails_leaves_the_doubt(stage: Stage, bank: Bank, cut: str) -> None:
    bank.down = True
    assert cut_off(stage, bank, "checked", cut).stopped == ("RunHeld", "in-doubt")
    assert "503" in (stage.step("send#0").reconciled or "")
    bank.down = False
    assert stage.play(PROGRAMS / "send.py", bank.url, "checked", cut).result == 7
    assert len(bank.requests) == 1
