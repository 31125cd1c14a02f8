"""A lease is kept whatever the run's own code does, and given up before it would run out."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import outlast
from outlast.engine.run import Run, active_runs
from outlast.world import World
from tests.ownership.children import until
from tests.ownership.gated import Gated

LEASE = 1.2


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_lease_is_kept_while_a_body_holds_the_loop_or_the_interpreter(
    gated: Gated, colour: str
) -> None:
    # async: time.sleep in the event loop; plain: a computation in the only thread.
    busy = gated.start_in_body(colour=colour, lease=LEASE, block=4 * LEASE)
    first = gated.client._row("r").lease_boot or 0.0
    until(lambda: World().boot() > first + LEASE, "two leases to pass")
    assert gated.start().end()["error"] == "RunOwned"
    assert busy.end()["result"] == ["one", f"middle by {busy.pid}", "three"]
    assert gated.client.run("r").epoch == 1


def test_a_short_lease_is_kept_beside_a_long_one(url: str) -> None:
    @outlast.step
    async def renewed(run_id: str) -> bool:
        client = outlast.Client(url)
        first = client._row(run_id).lease_boot or 0.0
        await asyncio.to_thread(
            until, lambda: (client._row(run_id).lease_boot or 0.0) > first, "the lease to move"
        )
        return True

    @outlast.workflow
    async def dozes() -> None:
        await outlast.sleep(3600)

    @outlast.workflow
    async def looks() -> bool:
        return await renewed("short")

    async def both() -> bool:
        long = outlast.Settings(lease=3600)
        dozing = asyncio.create_task(
            outlast.execute(dozes, run_id="long", store=url, settings=long)
        )
        client = outlast.Client(url)
        await asyncio.to_thread(
            until, lambda: bool(client.runs(status="waiting")), "the long one to wait"
        )
        short = outlast.Settings(lease=LEASE)
        try:
            return await outlast.execute(looks, run_id="short", store=url, settings=short)
        finally:
            dozing.cancel()

    assert asyncio.run(both())


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Nobody else can write to the store meanwhile."""
    # By the SQLite that the library uses: closing a file that another copy of it has open in this
    # process would drop the other's locks.
    connection = apsw.Connection(str(store))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_run_whose_lease_cannot_be_renewed_stops_before_the_lease_ends(
    tmp_path: Path, url: str, colour: str
) -> None:
    inside, go = threading.Event(), threading.Event()
    stopped_at: list[float] = []
    ends: list[float] = []
    executed: list[str] = []

    @outlast.step
    def first() -> str:
        executed.append("first")
        inside.set()
        assert go.wait(20)
        return "one"

    @outlast.step
    def last() -> str:
        executed.append("last")
        return "two"

    @outlast.workflow(name="work")
    def plain() -> list[str]:
        return [first(), last()]

    @outlast.workflow(name="work")
    async def asynchronous() -> list[str]:
        return [first(), last()]

    said: list[object] = []
    settings = outlast.Settings(lease=1.0, grace=1.0)
    workflow: object = plain if colour == "plain" else asynchronous

    def run() -> None:
        try:
            said.append(outlast.run(workflow, run_id="r", store=url, settings=settings))  # type: ignore[call-overload]
        except outlast.OutlastError as problem:
            said.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(20)
    (active,) = _runs_of(url)
    with locked(tmp_path / "store.db"):
        ends.append(outlast.Client(url)._row("r").lease_boot or 0.0)
        until(lambda: active.stop is not None, "the run to be stopped")
        stopped_at.append(World().boot())
        until(lambda: World().boot() > ends[0] + 1.0, "twice the lease")
    go.set()
    thread.join()
    assert stopped_at[0] < ends[0]
    assert isinstance(said[0], outlast.StoreError), said
    assert "lease of run r" in str(said[0])
    assert executed == ["first"], "nothing opens after the stop"
    # The result of what was open is not lost, and the run goes on with the store back.
    assert outlast.run(workflow, run_id="r", store=url) == ["one", "two"]  # type: ignore[call-overload]
    assert executed == ["first", "last"]


def _runs_of(url: str) -> list[Run]:
    path = url.removeprefix("sqlite:///")
    return [run for run in active_runs() if run.store.path == path]


def test_a_busy_store_that_comes_back_within_the_lease_stops_nothing(
    tmp_path: Path, gated: Gated
) -> None:
    owner = gated.start_in_body(lease=3.0)
    before = gated.client._row("r").lease_boot or 0.0
    with locked(tmp_path / "store.db"):
        until(lambda: World().boot() > before - 1.9, "a heartbeat to be missed")
    until(lambda: (gated.client._row("r").lease_boot or 0.0) > before, "a renewal")
    gated.open_gate()
    assert owner.end()["result"] == ["one", f"middle by {owner.pid}", "three"]


def test_each_run_keeps_the_length_of_its_own_lease(url: str) -> None:
    # A long lease beside a short one must not lend the short one its length.
    gate = threading.Event()
    inside = threading.Semaphore(0)

    @outlast.step
    def held() -> None:
        inside.release()
        assert gate.wait(20)

    @outlast.workflow
    def work() -> None:
        held()

    def run(run_id: str, lease: float) -> threading.Thread:
        settings = outlast.Settings(lease=lease)
        thread = threading.Thread(
            target=outlast.run,
            args=(work,),
            kwargs={"run_id": run_id, "store": url, "settings": settings},
        )
        thread.start()
        assert inside.acquire(timeout=20)
        return thread

    threads = [run("long", 600.0), run("short", 0.6)]
    client, world = outlast.Client(url), World()
    first = client._row("short").lease_boot or 0.0
    until(lambda: (client._row("short").lease_boot or 0.0) > first + 0.5, "some renewals")
    assert (client._row("short").lease_boot or 0.0) < world.boot() + 1.0
    assert (client._row("long").lease_boot or 0.0) > world.boot() + 300.0
    gate.set()
    for thread in threads:
        thread.join()
