"""Several processes and one run: at most one of them executes it, and nobody waits for a ghost."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from outlast.world import World
from tests.ownership.children import children, lines, until
from tests.ownership.gated import Gated, gated_run

RECOVERING = Path(__file__).parent / "programs" / "recovering.py"


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Gated]:
    with gated_run(tmp_path) as run:
        yield run


# ---- a worker wakes after its lease has gone


@pytest.mark.parametrize("stop_at", ["body", "completion", "heartbeat"])
def test_a_worker_that_wakes_after_its_lease_writes_nothing_more(
    gated: Gated, stop_at: str
) -> None:
    # Stopped in the body; after all checks, right before the write; right before a heartbeat.
    inner = {} if stop_at == "body" else {"stop_at": stop_at}
    stale = gated.start_in_body(lease=1.0, **inner)
    if stop_at == "body":
        stale.send(signal.SIGSTOP)
    if stop_at != "heartbeat":
        gated.open_gate()
    until(stale.stopped, "the first worker to stand still")
    gated.open_gate()
    new = gated.start(if_owned="wait")
    result = ["one", f"middle by {new.pid}", "three"]
    assert new.end()["result"] == result
    before = gated.client.run("r")
    stale.send(signal.SIGCONT)
    said = stale.end()
    assert said["error"] == "LostRun", said
    after = gated.client.run("r")
    assert (after.status, after.result, after.epoch) == ("completed", result, before.epoch)
    journal = gated.client.journal("r")
    assert {e.kind for e in journal[before.seq :]} <= {"step.late"}
    assert gated.client.verify("r")[0].ok


def test_a_once_step_of_a_stopped_worker_is_in_doubt_for_the_next(gated: Gated) -> None:
    stale = gated.start_in_body(lease=0.8, effect="once")
    stale.send(signal.SIGSTOP)
    gated.open_gate()
    until(stale.stopped, "SIGSTOP")
    said = gated.start(effect="once", if_owned="wait").end()
    assert said["error"] == "RunHeld", said
    assert gated.executed == ["first", "middle"]
    stale.send(signal.SIGCONT)
    assert stale.end()["error"] == "LostRun"
    view = gated.client.run("r")
    assert (view.status, view.reason) == ("held", "in-doubt")
    late = [e for e in gated.client.journal("r") if e.kind == "step.late"]
    assert len(late) == 1
    assert f"middle by {stale.pid}".encode() in late[0].data, "shown to who settles the doubt"
    gated.client.settle("r", view.steps[-1].key, outlast.Done(f"middle by {stale.pid}"))
    assert gated.start(effect="once").end()["result"] == ["one", f"middle by {stale.pid}", "three"]
    assert gated.executed == ["first", "middle", "last"]


# ---- the lease of a worker that is alive and busy


def test_a_busy_worker_keeps_its_run_among_other_busy_processes(gated: Gated) -> None:
    busy = gated.start_in_body(colour="plain", lease=1.5, block=3.0)
    rivals = [gated.start(if_owned="wait", colour="plain") for _ in range(2)]
    result = ["one", f"middle by {busy.pid}", "three"]
    assert busy.end()["result"] == result
    assert [rival.end()["result"] for rival in rivals] == [result, result]
    assert gated.client.run("r").epoch == 1
    assert gated.executed == ["first", "middle", "last"]


# ---- many recoveries of one list


def recover(folder: Path, runs: int, workers: int) -> None:
    url = f"sqlite:///{folder}/store.db"
    ids = [f"run-{n:03}" for n in range(runs)]
    with children() as start:
        options = {"store": url, "folder": str(folder)}
        dead = start(RECOVERING, {**options, "runs": ids, "die": True})
        assert dead.end()["code"] == -signal.SIGKILL
        assert sorted(outlast.Client(url).unfinished()) == ids
        # A run that is started while the recovery is under way belongs to the one that starts it.
        started = [
            start(RECOVERING, {**options, "runs": [f"new-{n}"]} if n == 0 else options)
            for n in range(workers)
        ]
        for worker in started:
            assert worker.end().get("ok"), worker.stderr
    client = outlast.Client(url)
    views = client.runs(limit=runs + 10)
    assert {view.status for view in views} == {"completed"}
    assert len(views) == runs + 1
    counts = Counter(lines(folder / "log"))
    for run_id in ids:
        assert counts[f"prepare {run_id}"] == 1, "completed before the crash"
        assert counts[f"act {run_id}"] == 2, "once by the dead, once by exactly one of the living"
        assert client.run(run_id).epoch == 2
    assert all(verdict.ok for verdict in client.verify())


def test_several_recoveries_of_one_list_take_each_run_once(tmp_path: Path) -> None:
    recover(tmp_path, runs=30, workers=3)


@pytest.mark.soak
def test_eight_recoveries_of_a_hundred_runs_take_each_run_once(tmp_path: Path) -> None:
    recover(tmp_path, runs=100, workers=8)


# ---- running for ever, or dead while it works


def test_waiters_return_when_the_owner_dies(gated: Gated) -> None:
    owner = gated.start_in_body(lease=3600.0)
    said: list[BaseException] = []

    def wait() -> None:
        try:
            gated.client.wait("r")
        except TimeoutError as problem:
            said.append(problem)

    waiter = threading.Thread(target=wait)
    waiter.start()
    owner.kill()
    waiter.join(20)
    assert not waiter.is_alive()
    assert "interrupted" in str(said[0])
    assert "outlast resume r" in str(said[0])
    assert gated.client.runs()[0].interrupted


def test_a_run_that_waits_for_many_leases_is_waiting_and_never_taken_for_dead(url: str) -> None:
    lease = 0.3

    @outlast.workflow
    async def sleepy() -> str:
        await outlast.sleep(10 * lease)
        return "awake"

    said: list[object] = []
    settings = outlast.Settings(lease=lease)
    thread = threading.Thread(
        target=lambda: said.append(outlast.run(sleepy, run_id="r", store=url, settings=settings))
    )
    thread.start()
    client, world = outlast.Client(url), World()
    until(lambda: any(v.status == "waiting" for v in client.runs()), "the timer")
    end = world.boot() + 5 * lease
    while world.boot() < end:
        view = client.run("r")
        assert (view.status, view.interrupted) == ("waiting", False)
        assert view.due_at is not None
        with pytest.raises(outlast.RunOwned):
            outlast.run(sleepy, run_id="r", store=url)
        world.pause(0.05)
    thread.join()
    assert said == ["awake"]
    assert client.run("r").epoch == 1


def test_a_run_that_sleeps_without_a_process_is_not_interrupted(url: str) -> None:
    @outlast.workflow
    async def sleepy() -> str:
        await outlast.sleep(0.5)
        return "awake"

    with pytest.raises(outlast.RunWaiting) as caught:
        outlast.run(sleepy, run_id="r", store=url, wait=False)
    client = outlast.Client(url)
    view = client.run("r")
    assert (view.status, view.interrupted) == ("waiting", False)
    assert view.due_at == caught.value.due
    assert client.unfinished() == [], "not before it is due"
    until(client.unfinished, "the timer to be due")
    assert outlast.run(sleepy, run_id="r", store=url) == "awake"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def test_a_killed_process_group_shows_as_interrupted(tmp_path: Path, gated: Gated) -> None:
    # The program in a group of its own, as a supervisor or a terminal would have it.
    owner = gated.start_in_body(lease=3600.0, own_group=True)
    assert os.getpgid(owner.pid) == owner.pid
    os.killpg(owner.pid, signal.SIGKILL)
    owner.process.wait()
    assert gated.client.run("r").interrupted
