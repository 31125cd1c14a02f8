"""The audit sees when a kill was not the end of a run, and when it was that of others."""

import os
import subprocess
import sys

import pytest

from outlast import StoredEvent
from outlast.demo import audit_hung
from outlast.processes import Found
from outlast.world import start_ticks

BEFORE = "run.created run.claimed step.started"


def journal(kinds: str, key: str = "look_at#1") -> list[StoredEvent]:
    return [
        StoredEvent("run", seq, kind, key if kind.startswith("step.") else None, b"{}", 0.0, 1, b"")
        for seq, kind in enumerate(kinds.split(), 1)
    ]


@pytest.mark.parametrize(
    ("behind", "ok"),
    [
        ("run.killed", True),
        ("run.killed run.stopped", True),
        ("run.killed step.late run.stopped", True),
        ("", False),
        ("run.killed step.started", False),
        ("run.killed step.completed run.stopped", False),
        ("run.killed run.claimed", False),
        ("run.killed run.completed", False),
        ("run.killed run.killed", False),
        ("run.completed", False),
    ],
)
def test_behind_a_kill_stands_evidence_and_nothing_else(behind: str, ok: bool) -> None:
    assert audit_hung.check_fenced(journal(f"{BEFORE} {behind}")).ok is ok


def test_what_was_recorded_after_a_kill_is_named() -> None:
    check = audit_hung.check_fenced(journal(f"{BEFORE} run.killed step.completed"))
    assert "wrong: step.completed look_at#1" in check.found


def test_a_process_that_still_runs_is_seen_and_one_of_the_same_number_is_another() -> None:
    started = start_ticks(os.getpid())
    assert started is not None
    check = audit_hung.check_gone([Found(os.getpid(), started)])
    assert not check.ok
    assert f"wrong: {os.getpid()} still runs" in check.found
    assert audit_hung.check_gone([Found(os.getpid(), started - 1)]).ok
    child = subprocess.Popen([sys.executable, "-c", ""])
    gone = Found(child.pid, start_ticks(child.pid) or 0)
    child.wait()
    assert audit_hung.check_gone([gone]).ok
    assert not audit_hung.check_gone([]).ok


def test_every_other_run_has_to_complete() -> None:
    done = journal(f"{BEFORE} step.completed run.completed")
    assert audit_hung.check_completed({"a": done, "b": done}).ok
    for other in ("run.killed", "run.released", "run.failed", ""):
        check = audit_hung.check_completed({"a": done, "b": journal(f"{BEFORE} {other}")})
        assert not check.ok
        assert check.found.startswith("1 of 2; wrong: b: ")
    assert not audit_hung.check_completed({"a": done, "b": []}).ok
