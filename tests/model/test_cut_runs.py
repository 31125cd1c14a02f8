"""Wherever a run is cut, the same code comes to the undisturbed result: after `accept_from` in the
run itself, and in a fork."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import outlast
from outlast.worker.stores import get_store
from tests.checkers import check_all
from tests.engine.test_loading import check_nothing_is_missed
from tests.engine.tools import PATIENT, dying_at, journal
from tests.model.interpreter import DELAY, RAN, Program, main
from tests.model.test_interruptions import PROGRAMS


def execute(url: str, run_id: str, program: Program) -> object:
    return outlast.run(main, program, run_id=run_id, store=url, settings=PATIENT)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    program=PROGRAMS,
    seed=st.integers(0, 2**32),
    deaths=st.lists(st.integers(3, 40), min_size=1, max_size=3),
    cuts=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3),
    forks=st.booleans(),
)
def test_a_cut_run_comes_to_the_undisturbed_result(
    program: Program, seed: int, deaths: list[int], cuts: list[float], forks: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'store.db'}"
        DELAY.seed(seed)
        RAN.clear()
        client, run_id = outlast.Client(url), "run"
        try:
            expected = execute(url, "undisturbed", program)
            for number, (death, place) in enumerate(zip(deaths, cuts, strict=False)):
                with dying_at(url, death) as died:
                    try:
                        execute(url, run_id, program)
                    except outlast.StoreError:
                        assert died()
                known = [s.key for s in client.run(run_id).steps] if _exists(url, run_id) else []
                assume(known or number)
                if not known:
                    break
                step = known[int(place * len(known))]
                if forks:
                    made = f"fork-{number}"
                    client.fork(run_id, step, new_id=made, repeat_effects=True)
                    check_all(url, run_id)
                    run_id = made
                elif client.run(run_id).status != "completed":
                    client.accept_from(run_id, step)
                check_nothing_is_missed(url, run_id)
            assert execute(url, run_id, program) == expected
            check_all(url, run_id)
        finally:
            get_store(url).store.close()


def _exists(url: str, run_id: str) -> bool:
    try:
        return bool(journal(url, run_id))
    except outlast.UnknownRun:
        return False
