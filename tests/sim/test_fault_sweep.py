"""The 1st, then the 2nd, ... write transaction fails. The run stops with a storage error, and once
the store is well again it goes on to the one right result."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

import outlast
from tests.checkers import check_all
from tests.crash.programs import agent, one_step
from tests.crash.programs.job import Job
from tests.sim.faulty import Fault, FaultyDatabase, How

MOST = 400
"""More transactions than any of these runs has."""

Start = Callable[[Job], object]


def run_agent(job: Job) -> object:
    agent.use(job)
    workflow = agent.asynchronous if job.asynchronous else agent.plain
    return outlast.run(workflow, run_id=job.run_id, store=job.url)


def run_one_step(job: Job) -> object:
    one_step.use(job)
    workflow = one_step.asynchronous if job.asynchronous else one_step.plain
    return outlast.run(workflow, job.flavour, run_id=job.run_id, store=job.url)


@pytest.fixture(autouse=True)
def _faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.open.SqliteDatabase", FaultyDatabase)
    monkeypatch.setattr(FaultyDatabase, "fault", None)


COLOURS = pytest.mark.parametrize(
    "asynchronous", [pytest.param(False, id="plain"), pytest.param(True, id="async")]
)
WAYS = pytest.mark.parametrize("how", get_args(How))


@COLOURS
@WAYS
def test_whichever_write_fails_a_step_comes_to_the_undisturbed_result(
    folder: Path, how: How, asynchronous: bool
) -> None:
    for flavour in ("read", "undeclared", "once, reconciled"):
        job = Job("one_step", str(folder / flavour), flavour, asynchronous)
        sweep(job, run_one_step, one_step.RESULT, how, range(MOST))


@COLOURS
@WAYS
def test_whichever_write_fails_an_agent_comes_to_the_undisturbed_result(
    folder: Path, how: How, asynchronous: bool
) -> None:
    job = Job("agent", str(folder), asynchronous=asynchronous)
    sweep(job, run_agent, agent.RESULT, how, range(MOST))


@COLOURS
def test_a_store_that_fails_at_each_takeover_makes_no_crash_loop(
    folder: Path, asynchronous: bool
) -> None:
    job = Job("one_step", str(folder), "read", asynchronous)
    FaultyDatabase.fault = Fault("refused from then on", at=2)  # leaves an open attempt
    with pytest.raises(outlast.StoreError):
        run_one_step(job)
    for _ in range(2 * outlast.Settings().max_crashes):
        FaultyDatabase.fault = Fault("refused from then on", at=1)  # after the claim
        with pytest.raises(outlast.StoreError):
            run_one_step(job)
    FaultyDatabase.fault = None

    assert run_one_step(job) == one_step.RESULT
    check_all(job.url, "run", job.effects)


@COLOURS
@WAYS
def test_whichever_write_fails_a_step_in_doubt_is_held_and_not_repeated(
    folder: Path, how: How, asynchronous: bool
) -> None:
    body_ran: list[str] = []

    @outlast.step(effect="once")
    def send() -> None:
        body_ran.append(outlast.idempotency_key())
        raise RuntimeError("no answer")

    @outlast.workflow
    def plain() -> None:
        send()

    @outlast.workflow
    async def later() -> None:
        send()

    for at in range(MOST):
        body_ran.clear()
        url = f"sqlite:///{folder}/{at}.db"
        fault = FaultyDatabase.fault = Fault(how, at)
        with pytest.raises((outlast.StoreError, outlast.RunHeld)) as stop:
            outlast.run(later if asynchronous else plain, run_id="run", store=url)
        assert stop.type is (outlast.StoreError if fault.struck else outlast.RunHeld)
        FaultyDatabase.fault = None

        with pytest.raises(outlast.RunHeld) as held:
            outlast.run(later if asynchronous else plain, run_id="run", store=url)
        assert held.value.reason == "in-doubt"
        assert len(body_ran) <= 1
        check_all(url, "run")
        if not fault.struck:
            assert at > 3
            return
    pytest.fail("raise the limit")


@COLOURS
def test_a_store_that_fails_again_and_again_makes_no_crash_loop(
    folder: Path, asynchronous: bool
) -> None:
    """No process died, so the run needs nobody: it goes on as soon as the store is well again."""
    job = Job("one_step", str(folder), "read", asynchronous)
    for _ in range(2 * outlast.Settings().max_crashes):
        FaultyDatabase.fault = Fault("refused", at=2)  # after the claim and the opening
        with pytest.raises(outlast.StoreError):
            run_one_step(job)
    FaultyDatabase.fault = None

    assert run_one_step(job) == one_step.RESULT
    check_all(job.url, "run", job.effects)


def sweep(job: Job, start: Start, result: object, how: How, positions: range) -> None:
    for at in positions:
        folder = Path(job.folder) / str(at)
        folder.mkdir(parents=True)
        here = Job(job.program, str(folder), job.flavour, job.asynchronous)
        if not fails_once_and_recovers(here, start, result, Fault(how, at)):
            assert at > positions.start, "nothing failed at all"
            return
    pytest.fail(f"a run has more than {positions.stop} transactions; raise the limit")


def fails_once_and_recovers(job: Job, start: Start, result: object, fault: Fault) -> bool:
    """Returns whether the run came to the fault at all."""
    FaultyDatabase.fault = fault
    where = f"{fault.how} at transaction {fault.at}"
    try:
        value = start(job)
    except outlast.StoreError:
        assert fault.struck
    else:
        assert not fault.struck, f"{where}: the run returned {value} as if nothing had happened"
        assert value == result
    FaultyDatabase.fault = None

    assert start(job) == result, where
    seen = check_all(job.url, "run", job.effects)
    assert seen.row.status == "completed"
    for stored, _ in seen.journal:
        assert b"StoreError" not in stored.data, f"{where}: taken for a tool's fault"
    return fault.struck
