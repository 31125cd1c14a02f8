"""Any nested values, through a real crash: a child makes them and dies by SIGKILL, a second one
resumes its run and compares. The children are forked, so both know what hypothesis drew."""

import os
import signal
import sys
import traceback
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outlast
from tests.strategies import assert_same, stored_values

FOLDER = Path(sys.argv[1])
runs = 0


def live(values: list[object], number: int, *, dies: bool) -> None:
    @outlast.step
    def make(index: int) -> object:
        assert dies, "a completed step ran again"
        return values[index]

    @outlast.workflow(name="crashing")
    def flow() -> int:
        made = [make(index) for index in range(len(values))]
        assert_same(values, made)  # live, too, the workflow sees the stored form
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(made)

    url = f"sqlite:///{FOLDER}/store.db"
    assert outlast.run(flow, run_id=f"run-{number}", store=url) == len(values)


def child(values: list[object], number: int, *, dies: bool) -> int:
    """Exit status of a forked child, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            live(values, number, dies=dies)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@given(st.lists(stored_values, min_size=10, max_size=40))
@settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def every_value_survives(values: list[object]) -> None:
    global runs
    runs += 1
    assert child(values, runs, dies=True) == -signal.SIGKILL
    assert child(values, runs, dies=False) == 0


if __name__ == "__main__":
    every_value_survives()
    print(runs)
