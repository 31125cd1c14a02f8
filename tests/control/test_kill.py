"""Kill: the end of a run from outside, wherever it is, for good, until somebody takes it back."""

import dataclasses
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import outlast
from outlast.events import Parent, RunKilled, RunStopped, decode
from outlast.leases import Create, NewRun
from outlast.records import Killed
from outlast.views import read_run
from outlast.worker.stores import get_store
from tests.checkers import check_all
from tests.control.stoppable import Stoppable
from tests.ownership.children import until

COLOURS = pytest.mark.parametrize("colour", ["async", "plain"])


@outlast.workflow(name="flow")
def flow() -> None:
    raise AssertionError("a killed run was executed")


def submit(stoppable: Stoppable, run_id: str = "r") -> None:
    """A run that no worker has seen yet."""
    outlast.submit(flow, run_id=run_id, store=stoppable.url)


# ---- a killed run does not come back


def running(stoppable: Stoppable) -> None:
    stoppable.start_in_body("await")


def waiting_for_a_retry(stoppable: Stoppable) -> None:
    assert stoppable.start("retry", wait=False).end()["error"] == "RunWaiting"


def queued_again(stoppable: Stoppable) -> None:
    assert stoppable.start("doubt").end()["reason"] == "in-doubt"
    stoppable.client.resume("r")
    assert stoppable.status() == "queued"


def in_doubt(stoppable: Stoppable) -> None:
    assert stoppable.start("doubt").end()["reason"] == "in-doubt"


def owned_by_a_dead_worker(stoppable: Stoppable) -> None:
    stoppable.start_in_body("await").kill()
    assert stoppable.client.run("r").interrupted


def never_seen(stoppable: Stoppable) -> None:
    submit(stoppable)


PLACES = [running, waiting_for_a_retry, queued_again, in_doubt, owned_by_a_dead_worker, never_seen]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_killed_run_never_starts_a_step_again(
    stoppable: Stoppable, place: Callable[[Stoppable], None]
) -> None:
    place(stoppable)
    before = stoppable.executed
    answer = stoppable.client.kill("r", reason="enough", by="ann", wait=20)
    assert (answer.outcome, answer.status, answer.stopped) == ("killed", "killed", True)
    for _ in range(3):
        assert stoppable.command("resume", "--all").returncode == 0
        assert stoppable.command("resume", "r").returncode == 4
    with pytest.raises(outlast.RunKilled):
        outlast.run(flow, run_id="r", store=stoppable.url)
    assert stoppable.executed == before
    assert stoppable.status() == "killed"
    # Twice is the same as once.
    journal = stoppable.kinds()
    again = stoppable.client.kill("r", reason="once more", by="bob", wait=20)
    assert (again.outcome, again.status) == ("already", "killed")
    assert again.kill == answer.kill
    assert stoppable.kinds() == journal
    assert journal.count("run.killed") == 1
    check_all(stoppable.url, "r")


def test_a_kill_of_an_unknown_id_says_so(stoppable: Stoppable) -> None:
    submit(stoppable)
    with pytest.raises(outlast.UnknownRun, match="nope"):
        stoppable.client.kill("nope")
    assert stoppable.status() == "queued"


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_run_that_has_ended_stays_as_it_is(stoppable: Stoppable, status: str) -> None:
    @outlast.workflow
    def ends() -> int:
        return 1 // (status == "completed")

    try:
        outlast.run(ends, run_id="r", store=stoppable.url)
    except outlast.RunFailed:
        assert status == "failed"
    journal = stoppable.kinds()
    answer = stoppable.client.kill("r")
    assert (answer.outcome, answer.status, answer.kill) == ("already", status, None)
    assert stoppable.kinds() == journal


# ---- whoever executes it


@COLOURS
@pytest.mark.parametrize("where", ["timer", "retry", "await", "gate"])
def test_who_waits_for_a_run_hears_at_once_that_it_was_killed(
    stoppable: Stoppable, where: str, colour: str
) -> None:
    if where == "await" and colour == "plain":
        pytest.skip("plain code awaits nothing")
    child = stoppable.start(where, colour=colour)
    kind = "timer.set" if where == "timer" else "step.started"
    until(lambda: _has(stoppable, kind), "the wait")
    if where == "retry":
        until(lambda: _has(stoppable, "step.failed"), "the failure")
    answer = stoppable.client.kill("r", reason="enough", by="ann", wait=20)
    assert answer.stopped
    said = child.end()
    assert said["error"] == "RunKilled"
    assert "enough" in str(said["text"])
    assert "last" not in stoppable.executed
    note = decode("run.stopped", stoppable.journal()[-1].data)
    assert isinstance(note, RunStopped)
    assert note.by == "owner"
    check_all(stoppable.url, "r")


def _has(stoppable: Stoppable, kind: str) -> bool:
    try:
        return kind in stoppable.kinds()
    except outlast.UnknownRun:
        return False


def test_nothing_is_recorded_as_done_once_kill_has_returned(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("deaf", colour="plain", grace=0.2)
    answer = stoppable.client.kill("r", grace=0.2)
    assert not answer.stopped
    assert answer.kill is not None
    assert str(child.pid) in str(answer.kill.owner)
    stoppable.open_gate()
    assert child.end()["error"] == "RunKilled"
    after = stoppable.kinds()[stoppable.kinds().index("run.killed") + 1 :]
    assert "step.completed" not in after
    assert "step.late" in after
    assert "last" not in stoppable.executed
    check_all(stoppable.url, "r")


def test_a_late_result_is_shown_and_settles_the_doubt_once_the_run_is_revived(
    stoppable: Stoppable,
) -> None:
    child = stoppable.start_in_body("deaf", colour="plain", grace=0.2)
    stoppable.client.kill("r", grace=0.2)
    stoppable.open_gate()
    child.end()
    until(lambda: "step.late" in stoppable.kinds(), "the late result")
    (step,) = stoppable.client.run("r").steps
    assert step.status == "in-doubt"
    assert step.late == "a result"
    assert "a result came too late: kept as evidence" in stoppable.command("show", "r").stdout
    until(lambda: stoppable.client.kill("r").stopped, "the process to let go")
    before = [line for line in stoppable.executed if line == "body"]
    done = stoppable.command("resume", "r", "--revive")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["late word", "end"]
    assert [line for line in stoppable.executed if line == "body"] == before
    assert "run.revived" in stoppable.kinds()
    check_all(stoppable.url, "r")


def test_a_process_that_does_not_let_go_is_named_and_ended_by_hard(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("deaf", colour="plain", grace=0.2)
    client = stoppable.client
    assert not client.kill("r", grace=0.2, wait=0.5).stopped
    with pytest.raises(outlast.UsageError, match=r"outlast kill r --hard"):
        client.revive("r")
    shown = stoppable.command("show", "r").stdout
    assert f"process {child.pid} on " in shown
    assert "has not let go of it yet" in shown
    answer = client.kill("r", hard=True)
    assert (answer.outcome, answer.stopped) == ("already", True)
    assert child.process.wait(20) < 0
    note = decode("run.stopped", stoppable.journal()[-1].data)
    assert isinstance(note, RunStopped)
    assert note.by == "operator"
    assert any(str(child.pid) in words for words in note.ended)
    check_all(stoppable.url, "r")


def test_hard_never_ends_the_process_that_asks_for_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    answers: list[Killed] = []

    @outlast.step
    def asks() -> None:
        answers.append(outlast.Client(url).kill("r", grace=0, hard=True))

    @outlast.workflow
    def suicidal() -> None:
        asks()

    with pytest.raises(outlast.RunKilled):
        outlast.run(suicidal, run_id="r", store=url)
    assert answers[0].outcome == "killed"
    assert outlast.Client(url).run("r").status == "killed"


def test_an_owner_that_has_died_since_the_kill_is_noted_by_the_operators_side(
    stoppable: Stoppable,
) -> None:
    child = stoppable.start_in_body("deaf", colour="plain", grace=0.2)
    answer = stoppable.client.kill("r", grace=0.2)
    assert not answer.stopped
    child.kill()
    (later,) = stoppable.client.await_stop([answer], 20)
    assert later.stopped
    row = read_run(get_store(stoppable.url).store, "r")
    assert row is not None
    assert row.owner is None
    assert stoppable.kinds()[-1] == "run.stopped"


def test_what_a_dead_worker_has_left_running_ends_with_the_kill(stoppable: Stoppable) -> None:
    child = stoppable.start_in_body("orphan", colour="plain")
    orphan = int((stoppable.folder / "orphan").read_text())
    child.kill()
    assert Path(f"/proc/{orphan}").exists()
    answer = stoppable.client.kill("r")
    assert not _lives(orphan)
    assert answer.kill is not None
    assert any(str(orphan) in words for words in answer.kill.ended)


def _lives(pid: int) -> bool:
    """Whether it runs; who ended it may not have been waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


# ---- families


def make_family(stoppable: Stoppable) -> None:
    """Runs `top`, `top/a` and `top/a/b`, each called by the one before, and a stranger."""
    submit(stoppable, "top")
    submit(stoppable, "stranger")
    store = get_store(stoppable.url).store
    for above, run_id in (("top", "top/a"), ("top/a", "top/a/b")):
        new = NewRun(run_id, "flow", b"{}", "digest")
        parent = Parent(run_id=above, key="flow#0", root="top")
        create = Create(new, run_id, run_id, 1.0, "", parent=parent)
        store.write(create, durable=True)


def statuses(stoppable: Stoppable) -> dict[str, str]:
    return {view.run_id: view.status for view in stoppable.client.runs()}


def test_children_go_with_their_parent_and_come_back_with_it(stoppable: Stoppable) -> None:
    make_family(stoppable)
    answer = stoppable.client.kill("top", reason="all of it", by="ann")
    assert [one.run_id for one in answer.all] == ["top", "top/a", "top/a/b"]
    killed = decode("run.killed", stoppable.journal("top/a/b")[-1].data)
    assert isinstance(killed, RunKilled)
    assert (killed.parent, killed.why, killed.by) == ("top", "all of it", "ann")
    assert statuses(stoppable)["stranger"] == "queued"
    stoppable.client.revive("top")
    assert set(statuses(stoppable).values()) == {"queued"}


def test_a_family_of_any_depth_is_killed_paused_and_taken_back(stoppable: Stoppable) -> None:
    """A workflow that calls itself without end is what a kill is for."""
    submit(stoppable, "top")
    store, above = get_store(stoppable.url).store, "top"
    for depth in range(sys.getrecursionlimit() + 1):
        new = NewRun(f"d{depth}", "flow", b"{}", "digest")
        parent = Parent(run_id=above, key="flow#0", root="top")
        store.write(Create(new, f"d{depth}", "trace", 1.0, "", parent=parent), durable=False)
        above = new.run_id
    answer = stoppable.client.kill("top")
    assert len(answer.all) == sys.getrecursionlimit() + 2
    assert answer.all[-1].run_id == above
    assert stoppable.client.run(above).status == "killed"
    stoppable.client.revive("top")
    assert stoppable.client.run(above).status == "queued"
    stoppable.client.pause("top")
    assert stoppable.client.run(above).status == "held"
    stoppable.client.resume("top")
    assert stoppable.client.run(above).status == "queued"


def test_a_child_is_killed_alone_unless_the_whole_family_is_meant(stoppable: Stoppable) -> None:
    make_family(stoppable)
    answer = stoppable.client.kill("top/a")
    assert [one.run_id for one in answer.all] == ["top/a", "top/a/b"]
    assert statuses(stoppable)["top"] == "queued"
    stoppable.client.revive("top/a/b")
    answer = stoppable.client.kill("top/a/b", tree=True)
    assert "top/a/b" in [one.run_id for one in answer.all]
    assert set(statuses(stoppable).values()) == {"killed", "queued"}
    assert statuses(stoppable) == {
        "top": "killed", "top/a": "killed", "top/a/b": "killed", "stranger": "queued",
    }  # fmt: skip


def test_a_child_that_was_revived_alone_is_killed_though_its_family_has_ended(
    stoppable: Stoppable,
) -> None:
    make_family(stoppable)
    stoppable.client.kill("top")
    stoppable.client.revive("top/a/b")
    answer = stoppable.client.kill("top/a/b", tree=True)
    assert (answer.run_id, answer.outcome) == ("top/a/b", "killed")


# ---- the store


def test_a_kill_waits_for_a_store_that_is_busy(stoppable: Stoppable) -> None:
    submit(stoppable)
    client, answers = stoppable.client, list[Killed]()
    other = apsw.Connection(str(stoppable.folder / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    killer = threading.Thread(target=lambda: answers.append(client.kill("r")))
    killer.start()
    other.execute("COMMIT")
    killer.join(30)
    assert answers[0].outcome == "killed"
    other.close()


# ---- damage


def alter_owner(stoppable: Stoppable) -> None:
    _execute(stoppable, "UPDATE runs SET owner = 'nonsense' WHERE run_id = 'r'")


def cut_off(stoppable: Stoppable) -> None:
    """The end of the journal, from the claim on."""
    _execute(stoppable, "DELETE FROM events WHERE run_id = 'r' AND seq > 1")


def remove_all(stoppable: Stoppable) -> None:
    _execute(stoppable, "DELETE FROM events WHERE run_id = 'r'")


DAMAGE = pytest.mark.parametrize(
    "damage", [alter_owner, cut_off, remove_all], ids=lambda damage: damage.__name__
)


def _execute(stoppable: Stoppable, change: str) -> None:
    with apsw.Connection(str(stoppable.folder / "store.db")) as connection:
        connection.execute("DROP TRIGGER events_are_not_deleted")
        connection.execute(change)


@COLOURS
@DAMAGE
def test_a_run_whose_record_is_damaged_is_killed_and_the_damage_stays_to_be_seen(
    stoppable: Stoppable, damage: Callable[[Stoppable], None], colour: str
) -> None:
    child = stoppable.start_in_body("gate", colour=colour)
    damage(stoppable)
    found = [verdict.problem for verdict in stoppable.client.verify()]

    answer = stoppable.client.kill("r", reason="enough", by="ann")
    assert (answer.outcome, answer.status) == ("killed", "killed")
    assert "altered" in (answer.problem or "") or "cut off" in (answer.problem or "")

    stoppable.open_gate()
    assert child.end()["error"] in ("RunKilled", "StoreError")
    assert "last" not in stoppable.executed
    with apsw.Connection(str(stoppable.folder / "store.db")) as connection:
        assert list(connection.execute("SELECT status FROM runs")) == [("killed",)]
        kinds = [kind for (kind,) in connection.execute("SELECT kind FROM events ORDER BY seq")]
    assert set(kinds[kinds.index("run.killed") + 1 :]) <= {"step.late", "run.stopped"}
    # The same is wrong with it as before.
    verdicts = stoppable.client.verify()
    assert not any(verdict.ok for verdict in verdicts)
    if damage is not remove_all:
        assert [verdict.problem for verdict in verdicts] == found


@DAMAGE
def test_the_command_kills_a_damaged_run_and_says_that_it_is(
    stoppable: Stoppable, damage: Callable[[Stoppable], None]
) -> None:
    submit(stoppable)
    stoppable.client.kill("r")
    stoppable.client.revive("r")
    damage(stoppable)
    done = stoppable.command("kill", "r")
    assert done.returncode == 0, done.stderr
    assert "its record is damaged" in done.stdout
    assert ("cannot be told" in done.stdout) == (damage is alter_owner)
    assert stoppable.command("kill", "r").returncode == 0


def test_a_run_whose_row_was_altered_is_killed_with_the_others(stoppable: Stoppable) -> None:
    for run_id in ("a", "r", "z"):
        submit(stoppable, run_id)
    alter_owner(stoppable)
    answers = {one.run_id: one for one in stoppable.client.kill_all(reason="enough", wait=0.1)}
    assert {run_id: one.outcome for run_id, one in answers.items()} == dict.fromkeys(
        ("a", "r", "z"), "killed"
    )
    assert "altered" in (answers["r"].problem or "")
    assert not answers["r"].stopped
    assert answers["a"].problem is None


def test_a_kill_reads_no_journal(stoppable: Stoppable, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(stoppable)
    store = get_store(stoppable.url).store
    read, asked = store.read, list[str]()
    monkeypatch.setattr(
        store, "read", lambda query, **p: (asked.append(query), read(query, **p))[1]
    )
    assert stoppable.client.kill("r", wait=1).stopped
    assert not [query for query in asked if query.startswith("read_events")]


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "5", None])
def test_a_grace_that_is_no_number_of_seconds_is_refused(
    stoppable: Stoppable, grace: float
) -> None:
    submit(stoppable)
    with pytest.raises(outlast.UsageError, match="grace"):
        stoppable.client.kill("r", grace=grace)
    assert stoppable.status() == "queued"


def test_an_owner_elsewhere_whose_lease_is_over_does_not_keep_a_run_from_being_revived(
    stoppable: Stoppable,
) -> None:
    stoppable.start_in_body("await").kill()
    store = get_store(stoppable.url).store
    row = read_run(store, "r")
    assert row is not None
    assert row.owner is not None
    elsewhere = json.dumps(
        {**{name: getattr(row.owner, name) for name in row.owner.__struct_fields__}, "host": "far"}
    )
    with apsw.Connection(str(stoppable.folder / "store.db")) as connection:
        connection.execute("UPDATE runs SET owner = ? WHERE run_id = 'r'", (elsewhere,))
    answer = stoppable.client.kill("r")
    assert not answer.stopped
    with pytest.raises(outlast.UsageError, match="not let go"):
        stoppable.client.revive("r")
    with apsw.Connection(str(stoppable.folder / "store.db")) as connection:
        connection.execute("UPDATE runs SET lease_wall = 1, lease_boot = 1 WHERE run_id = 'r'")
    assert stoppable.client.revive("r").status == "queued"
    assert dataclasses.asdict(stoppable.client.run("r"))["kill"] is None
