"""A run of any program, cut off anywhere, fits the program's own code. No body runs for that."""

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

import outlast
from outlast.testing import replay
from tests.engine.tools import journal
from tests.model.interpreter import RAN, main
from tests.model.test_interruptions import QUICK, Interruptions


class Replays(Interruptions):
    """One run, executed in several lives, and replayed after each of them."""

    @invariant()
    def fits(self) -> None:
        for run_id in ("disturbed", "undisturbed"):
            try:
                before = journal(self._url, run_id)
            except outlast.UnknownRun:
                continue
            ran = RAN.copy()
            told = replay(run_id, main, store=self._url)
            assert told.calls == told.recorded
            assert ran == RAN
            assert journal(self._url, run_id) == before
            if before[-1].kind == "run.completed":
                assert told.result == self._expected


class TestReplays(Replays.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(QUICK, max_examples=40)


@pytest.mark.soak
class TestManyReplays(Replays.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(QUICK, max_examples=300, stateful_step_count=12, derandomize=False)
