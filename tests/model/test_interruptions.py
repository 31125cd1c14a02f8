"""Whatever a workflow does and wherever it dies, its result is the undisturbed one (P1, P4), no
step is tried more often than it may be, and its account is what its journal tells (P5)."""

import asyncio
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import outlast
from outlast.events import StepAbandoned, StepCompleted, StepFailed, StepInterrupted, decode
from outlast.worker.stores import get_store
from tests.checkers import check_all
from tests.engine.test_loading import check_nothing_is_missed
from tests.engine.tools import PATIENT, dying_at, journal
from tests.model.interpreter import ATTEMPTS, DELAY, RAN, Program, main

LEAVES = st.sampled_from(
    [
        ("step",),
        ("plain",),
        ("fails",),
        ("flaky",),
        ("hopeless",),
        ("pays",),
        ("draw",),
        ("sleep",),
        ("late",),
    ]
)


def _grow(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.tuples(st.just("seq"), parts),
        st.tuples(st.just("gather"), parts),
        st.tuples(st.just("group"), parts),
        st.tuples(st.just("dash"), parts),
        st.tuples(st.just("race"), inner),
        st.tuples(st.just("turns"), st.integers(1, 3), inner),
    )


PROGRAMS: st.SearchStrategy[Program] = st.recursive(LEAVES, _grow, max_leaves=7)


class Interruptions(RuleBasedStateMachine):
    """One run, executed in several lives, next to an undisturbed run of the same program."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._url = f"sqlite:///{Path(self._folder.name) / 'store.db'}"
        RAN.clear()

    @initialize(program=PROGRAMS, seed=st.integers(0, 2**32))
    def begin(self, program: Program, seed: int) -> None:
        DELAY.seed(seed)
        self._program = program
        self._expected = self._execute("undisturbed", uv=False)

    @rule(number=st.integers(2, 25), after=st.booleans(), uv=st.booleans())
    def live(self, number: int, after: bool, uv: bool) -> None:
        """Live until a write, then die."""
        with dying_at(self._url, number, after=after) as died:
            try:
                result = self._execute("disturbed", uv)
            except outlast.StoreError:
                assert died()
            else:  # it has ended, in this life or in an earlier one
                assert result == self._expected

    @rule(passes=st.integers(1, 200))
    def leave(self, passes: int) -> None:
        """Live for a while, then be cancelled, as by Ctrl-C."""

        async def for_a_while() -> None:
            task = asyncio.create_task(self._start("disturbed"))
            for _ in range(passes):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})

        asyncio.run(for_a_while())

    def _start(self, run_id: str) -> Any:
        return outlast.execute(
            main, self._program, run_id=run_id, store=self._url, settings=PATIENT
        )

    def _execute(self, run_id: str, uv: bool) -> object:
        completed = self._completed(run_id)
        if completed:
            check_nothing_is_missed(self._url, run_id)
        ran = {key: RAN[run_id, key] for key in completed}
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else None) as runner:
                return runner.run(self._start(run_id))
        finally:
            again = {key for key in completed if RAN[run_id, key] != ran[key]}
            assert not again, f"completed, and ran again: {again}"

    def _completed(self, run_id: str) -> set[str]:
        try:
            events = journal(self._url, run_id)
        except outlast.UnknownRun:
            return set()
        return {str(e.key) for e in events if _is_over(e)}

    def teardown(self) -> None:
        try:
            if not hasattr(self, "_expected"):
                return
            assert self._execute("disturbed", uv=False) == self._expected
            accounts = [
                check_all(self._url, run_id, attempts=ATTEMPTS).account
                for run_id in ("undisturbed", "disturbed")
            ]
            undisturbed, disturbed = (a.spent_usd for a in accounts if a is not None)
            # An attempt that died before its report is counted, and nobody knows what it cost.
            died = [e for e in journal(self._url, "disturbed") if e.kind == StepInterrupted.kind]
            unheard = Decimal("0.001") * len(died)
            assert undisturbed <= disturbed + unheard, "something that was paid for is not counted"
        finally:
            get_store(self._url).store.close()
            self._folder.cleanup()


def _is_over(stored: outlast.StoredEvent) -> bool:
    event = decode(stored.kind, stored.data)
    if isinstance(event, StepFailed):
        return event.final  # after others the step is tried again
    return isinstance(event, StepCompleted | StepAbandoned)


QUICK = settings(
    max_examples=60,
    stateful_step_count=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class TestInterruptions(Interruptions.TestCase):  # type: ignore[name-defined,misc]
    settings = QUICK


@pytest.mark.soak
class TestManyInterruptions(Interruptions.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(QUICK, max_examples=300, stateful_step_count=12, derandomize=False)
