"""Who may take a run: the dead are replaced at once, the living never, the unseen by lease."""

import signal
import threading
from typing import Literal

import msgspec
import pytest

import outlast
from outlast.engine.heart import Heart
from outlast.engine.preparation import Preparation, prepare_sync
from outlast.engine.run import Run
from outlast.events import RunClaimed
from outlast.leases import Claim, Claimed, Refused, lease_from
from outlast.store.writer import Store
from outlast.world import World
from tests.ownership.children import events, until
from tests.ownership.gated import Gated

COLOURS: list[Literal["async", "plain"]] = ["async", "plain"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_dead_owner_on_this_host_is_replaced_at_once(gated: Gated, colour: str) -> None:
    first = gated.start_in_body(colour=colour, lease=3600.0)
    first.kill()
    gated.open_gate()
    said = gated.start(colour=colour, lease=3600.0).end()
    assert said["result"][0] == "one"  # type: ignore[index]
    assert gated.executed == ["first", "middle", "middle", "last"]
    claims = events(gated.client.journal("r"), "run.claimed")
    assert [
        (c.crash, c.previous and c.previous.pid) for c in claims if isinstance(c, RunClaimed)
    ] == [
        (False, None),
        (True, first.pid),
    ]


def test_a_dead_owner_shows_from_outside_without_any_living_worker(gated: Gated) -> None:
    owner = gated.start_in_body(lease=3600.0)
    assert not gated.client.run("r").interrupted
    owner.kill()
    view = gated.client.run("r")
    assert (view.status, view.interrupted) == ("running", True)
    assert {s.name: s.status for s in view.steps} == {"first": "completed", "middle": "interrupted"}
    assert gated.client.unfinished() == ["r"]


def test_of_two_processes_one_wins_and_the_other_names_it(gated: Gated) -> None:
    winner = gated.start_in_body()
    loser = gated.start()
    said = loser.end()
    assert said["error"] == "RunOwned"
    assert f"process {winner.pid} on " in str(said["text"])
    gated.open_gate()
    assert winner.end()["result"] == ["one", f"middle by {winner.pid}", "three"]
    assert gated.executed == ["first", "middle", "last"]


def test_who_waits_for_an_owned_run_gets_its_result(gated: Gated) -> None:
    winner = gated.start_in_body()
    waiting = gated.start(if_owned="wait")
    plain_waiting = gated.start(if_owned="wait", colour="plain")
    gated.open_gate()
    result = winner.end()["result"]
    assert waiting.end()["result"] == result
    assert plain_waiting.end()["result"] == result
    assert gated.executed == ["first", "middle", "last"]


def test_who_waits_for_a_run_takes_it_over_when_its_owner_dies(gated: Gated) -> None:
    owner = gated.start_in_body(lease=3600.0)
    waiting = gated.start(if_owned="wait")
    owner.kill()
    gated.open_gate()
    assert waiting.end()["result"] == ["one", f"middle by {waiting.pid}", "three"]


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("if_owned", ["raise", "wait"])
def test_threads_of_one_process_never_share_a_run(
    url: str, threads: int, if_owned: Literal["raise", "wait"]
) -> None:
    gate, inside = threading.Event(), threading.Event()
    bodies: list[str] = []

    @outlast.step
    def held() -> str:
        bodies.append(threading.current_thread().name)
        inside.set()
        assert gate.wait(20)
        return "done"

    @outlast.workflow
    def work() -> str:
        return held()

    said: list[object] = []
    start = threading.Barrier(threads)

    def attempt() -> None:
        start.wait()
        try:
            said.append(outlast.run(work, run_id="r", store=url, if_owned=if_owned))
        except outlast.OutlastError as problem:
            said.append(problem)

    workers = [threading.Thread(target=attempt) for _ in range(threads)]
    for worker in workers:
        worker.start()
    assert inside.wait(20)
    if if_owned == "raise":
        until(lambda: len(said) == threads - 1, "the others to be refused")
    gate.set()
    for worker in workers:
        worker.join()
    assert len(bodies) == 1
    assert outlast.Client(url).run("r").epoch == 1
    if if_owned == "wait":
        assert said == ["done"] * threads
    else:
        assert said.count("done") == 1
        assert sum(isinstance(s, outlast.RunOwned) for s in said) == threads - 1


def test_a_claim_sees_one_that_another_thread_made_after_it_was_prepared(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go = threading.Event(), threading.Event()

    @outlast.step
    def held() -> str:
        inside.set()
        assert go.wait(20)
        return "done"

    @outlast.workflow
    def work() -> str:
        return held()

    results: list[str] = []
    first = threading.Thread(
        target=lambda: results.append(outlast.run(work, run_id="r", store=url))
    )

    def late(preparation: Preparation, store: Store) -> Run | Refused:
        if threading.current_thread() is threading.main_thread():
            first.start()
            assert inside.wait(20)
        return prepare_sync(preparation, store)

    monkeypatch.setattr("outlast.worker.execution.prepare_sync", late)
    with pytest.raises(outlast.RunOwned):
        outlast.run(work, run_id="r", store=url)
    go.set()
    first.join()
    assert results == ["done"]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_late_completion_is_kept_as_evidence_and_counts_for_nothing(
    gated: Gated, colour: str
) -> None:
    stale = gated.start_in_body(colour=colour, lease=0.8)
    stale.send(signal.SIGSTOP)
    until(stale.stopped, "SIGSTOP")
    gated.open_gate()
    new = gated.start(colour=colour, if_owned="wait")
    result = ["one", f"middle by {new.pid}", "three"]
    assert new.end()["result"] == result
    stale.send(signal.SIGCONT)
    said = stale.end()
    assert said["error"] == "LostRun", said
    assert "r" in str(said["text"])
    view = gated.client.run("r")
    assert (view.status, view.result, view.epoch) == ("completed", result, 2)
    late = [e for e in gated.client.journal("r") if e.kind == "step.late"]
    assert [e.epoch for e in late] == [1]
    assert f"middle by {stale.pid}".encode() in late[0].data
    assert gated.start(colour=colour).end()["result"] == result
    assert gated.executed == ["first", "middle", "middle", "last"]
    assert gated.client.verify("r")[0].ok


def test_an_owner_on_another_host_is_replaced_when_its_lease_ends(gated: Gated) -> None:
    foreign = gated.start_in_body(host="elsewhere", lease=4.0)
    foreign.kill()
    gated.open_gate()
    hasty = gated.start().end()
    assert hasty["error"] == "RunOwned", "nobody here can tell that the owner is dead"
    assert f"process {foreign.pid} on elsewhere" in str(hasty["text"])
    assert gated.client.run("r").interrupted is False
    assert gated.start(if_owned="wait").end()["result"]
    until(lambda: gated.client.run("r").status == "completed", "the end")


def test_an_owner_on_another_host_is_left_alone_while_its_heart_beats(gated: Gated) -> None:
    foreign = gated.start_in_body(host="elsewhere", lease=0.6)
    lease = gated.client._row("r").lease_boot or 0.0
    world = gated.client._store.world
    until(lambda: world.boot() > lease + 0.6, "two leases")
    assert gated.start().end()["error"] == "RunOwned"
    gated.open_gate()
    assert foreign.end()["result"] == ["one", f"middle by {foreign.pid}", "three"]


@pytest.mark.parametrize(
    ("field", "value", "verdict"),
    [
        ("host", "elsewhere", "foreign"),
        ("namespace", "pid:[1]", "foreign"),
        ("boot", "an-earlier-boot", "dead"),
        ("pid", 2**22 + 1, "dead"),
        ("started", 1, "dead"),
    ],
)
def test_what_the_identity_of_an_owner_tells(field: str, value: object, verdict: str) -> None:
    world = World()
    me = world.identity()
    assert world.liveness(me) == "alive"
    assert world.liveness(msgspec.structs.replace(me, **{field: value})) == verdict


@pytest.mark.parametrize("colour", COLOURS)
def test_a_worker_that_wakes_between_opening_and_body_starts_nothing(
    url: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []

    if colour == "plain":

        @outlast.step(effect="once")
        def pay() -> None:
            executed.append("pay")

        @outlast.workflow
        def work() -> None:
            pay()
    else:

        @outlast.step(name="pay", effect="once")
        async def pay_async() -> None:
            executed.append("pay")

        @outlast.workflow(name="work")
        async def work() -> None:
            await pay_async()

    def wakes_late(run: Run) -> bool:
        # What another process does while this one is stopped, once the lease is over.
        store, world = run.store, run.world
        with Heart(store).claiming() as owner:
            lease = lease_from(world, 60)
            claim = Claim(run.run_id, "work", world, owner, lease, world.wall())
            assert isinstance(store.write(claim, durable=False), Claimed)
        return True

    monkeypatch.setattr(Run, "lease_is_over", wakes_late)
    with pytest.raises(outlast.LostRun):
        outlast.run(work, run_id="r", store=url)
    assert executed == []
    assert outlast.Client(url).run("r").status == "running"


def test_a_lease_that_ended_unnoticed_is_taken_again_before_the_body(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @outlast.step(effect="once")
    def pay() -> str:
        return "paid"

    @outlast.workflow
    def work() -> str:
        return pay()

    monkeypatch.setattr(Run, "lease_is_over", lambda _: True)
    assert outlast.run(work, run_id="r", store=url) == "paid"
