"""A kill and the end of a run fall on the same instant, in two processes, again and again."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import asdict, replace

from outlast.records import FINAL
from tests.checkers import check_all
from tests.crash.nursery import ROOT
from tests.crash.programs.racing import Answer, Race, Seen, run_id_of

ENDED = {"completed": "returned", "failed": "RunFailed", "killed": "RunKilled"}
"""What the process that executed the run is told, by the status that it has in the store."""


@pytest.mark.parametrize(
    "rounds", [100, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(400)])]
)
def test_a_kill_and_an_end_at_the_same_instant_agree_with_the_store(
    folder: Path, rounds: int
) -> None:
    seen, answers = race(Race(str(folder), rounds, seed=rounds), patience=6 * rounds / 20 + 60)

    statuses = Counter[str]()
    for number, (one, answer) in enumerate(zip(seen, answers, strict=True)):
        run_id = run_id_of(number)
        evidence = check_all(f"sqlite:///{folder}/store.db", run_id)
        status = evidence.row.status
        endings = [e.kind for _, e in evidence.journal if e.kind.removeprefix("run.") in FINAL]
        assert endings == [f"run.{status}"]
        assert (answer.run_id, answer.status, answer.now) == (run_id, status, status == "killed")
        assert (one.run_id, one.ended) == (run_id, ENDED[status])
        assert evidence.row.owner is None  # it was seen to that nothing of it runs any more
        statuses[status] += 1
    # Otherwise this was no race.
    assert min(statuses["killed"], statuses["completed"] + statuses["failed"]) > rounds / 10


def race(told: Race, patience: float) -> tuple[list[Seen], list[Answer]]:
    """Let both processes run to their end; what each has to say."""
    go_in, go_out = os.pipe()
    ack_in, ack_out = os.pipe()
    both = [
        start("execute", replace(told, hears=ack_in, says=go_out)),
        start("kill_all", replace(told, hears=go_in, says=ack_out)),
    ]
    # They are theirs alone: who waits for the other must see that it has ended.
    for end in (go_in, go_out, ack_in, ack_out):
        os.close(end)
    try:
        assert [process.wait(patience) for process in both] == [0, 0]
    finally:
        for process in both:
            if process.poll() is None:
                process.kill()
                process.wait()
    folder = Path(told.folder)
    seen = msgspec.json.decode((folder / "execute").read_bytes(), type=list[Seen])
    answers = msgspec.json.decode((folder / "kill_all").read_bytes(), type=list[Answer])
    return seen, answers


def start(role: str, told: Race) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.programs.racing", role, json.dumps(asdict(told))],
        pass_fds=(told.hears, told.says),
        cwd=ROOT,
    )
