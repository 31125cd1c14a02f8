"""`outlast.serving`: runs that are taken up and executed in one's own process."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

import outlast
from outlast.control import Allow, StopAll
from outlast.engine.run import EMERGENCY, active_runs
from outlast.events import RunClaimed
from outlast.store.queries import load_queries
from outlast.worker import pool
from outlast.worker.stores import get_store
from tests.ownership.children import events, until
from tests.serving.programs import desk
from tests.serving.stage import Stage

NUMBER = 12


def test_what_is_queued_or_interrupted_is_taken_up_at_the_start(stage: Stage) -> None:
    outlast.submit(desk.quick, "q", run_id="q", store=stage.url)
    process = stage.serve()
    outlast.submit(desk.gated, "i", run_id="i", store=stage.url)
    assert stage.at_gate("i") == process.pid
    process.kill()
    process.wait()
    outlast.submit(desk.quick, "late", run_id="late", store=stage.url)
    stage.open("i")
    with outlast.serving(desk.quick, desk.gated, store=stage.url):
        results = [outlast.Handle(i, stage.url).result(timeout=30).result() for i in ("i", "late")]
    assert results[0] != f"i by {process.pid}"
    assert results[1] == "late-2"
    assert [claim.crash for claim in claims(stage, "i")] == [False, True]


def claims(stage: Stage, run_id: str) -> list[RunClaimed]:
    found = events(stage.stored(run_id), "run.claimed")
    return [event for event in found if isinstance(event, RunClaimed)]


def test_start_returns_once_the_run_is_recorded_and_before_it_is_executed(stage: Stage) -> None:
    async def main() -> None:
        async with outlast.serving(desk.gated, store=stage.url):
            handle = await outlast.start(desk.gated, "a", run_id="a", store=stage.url)
            assert handle.run_id == "a"
            assert stage.kinds("a")[0] == "run.created"
            with pytest.raises(TimeoutError, match="run a is still"):
                await handle.result(timeout=0)
            stage.open("a")
            assert (await handle.result(timeout=30)).startswith("a by ")
            assert handle.status().status == "completed"

    asyncio.run(main())


def test_the_same_id_and_arguments_are_the_same_run(stage: Stage) -> None:
    first = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
    with outlast.serving(desk.quick, store=stage.url):
        assert first.result(timeout=30).result() == "a-2"
    again = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
    assert again.result(timeout=30).result() == "a-2"
    with pytest.raises(outlast.RunMismatch):
        outlast.submit(desk.quick, "b", run_id="a", store=stage.url)
    with pytest.raises(outlast.UnknownRun):
        outlast.Handle("other", stage.url)


def test_a_result_is_told_as_run_tells_it(stage: Stage) -> None:
    @outlast.workflow
    async def broken() -> None:
        raise KeyError("lamp")

    handle = outlast.submit(broken, run_id="b", store=stage.url)
    killed = outlast.submit(broken, run_id="k", store=stage.url)
    stage.client.kill("k", reason="enough")

    async def main() -> None:
        async with outlast.serving(broken, store=stage.url):
            with pytest.raises(outlast.RunFailed) as failed:
                await handle.result(timeout=30)
            assert isinstance(failed.value.__cause__, KeyError)
            with pytest.raises(outlast.RunKilled, match="enough"):
                await killed.result(timeout=30)

    asyncio.run(main())


def test_no_more_runs_are_executed_at_once_than_allowed(stage: Stage) -> None:
    active, most, lock = 0, 0, threading.Lock()

    def count(by: int) -> None:
        nonlocal active, most
        with lock:
            active += by
            most = max(most, active)

    async def main() -> None:
        pairs = asyncio.Barrier(2)

        @outlast.step
        async def together(n: int) -> None:
            count(1)
            await pairs.wait()
            count(-1)

        @outlast.workflow
        async def flow(n: int) -> None:
            await together(n)

        handles = [
            await outlast.start(flow, n, run_id=f"r{n}", store=stage.url) for n in range(NUMBER)
        ]
        async with outlast.serving(flow, concurrency=2, store=stage.url):
            await asyncio.gather(*(handle.result(timeout=30) for handle in handles))

    asyncio.run(main())
    assert most == 2


def test_runs_are_taken_up_while_plain_steps_keep_all_threads_of_the_loop_busy(
    stage: Stage,
) -> None:
    async def main() -> None:
        begun, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))

        @outlast.step
        def long() -> None:
            loop.call_soon_threadsafe(begun.set)
            assert go.wait(30)

        @outlast.workflow
        async def flow() -> None:
            await asyncio.to_thread(long)

        async with outlast.serving(flow, desk.quick, store=stage.url):
            await outlast.start(flow, run_id="f", store=stage.url)
            await begun.wait()
            other = await outlast.start(desk.quick, "a", run_id="a", store=stage.url)
            try:
                assert await other.result(timeout=30) == "a-2"
            finally:
                go.set()

    asyncio.run(main())


def test_two_processes_never_execute_one_run_twice(stage: Stage) -> None:
    stage.serve()
    stage.serve()
    handles = [
        outlast.submit(desk.quick, f"r{n}", run_id=f"r{n}", store=stage.url) for n in range(30)
    ]
    for handle in handles:
        handle.result(timeout=60).result()
    for handle in handles:
        assert stage.kinds(handle.run_id).count("run.claimed") == 1
    notes = [who for what, who, _ in stage.log if what == "note"]
    assert sorted(notes) == sorted(f"r{n}-{part}" for n in range(30) for part in (1, 2))


def test_at_the_end_open_steps_are_recorded_and_the_runs_released(stage: Stage) -> None:
    async def main() -> None:
        async with outlast.serving(desk.gated, store=stage.url):
            await outlast.start(desk.gated, "a", run_id="a", store=stage.url)
            await asyncio.to_thread(stage.at_gate, "a")
            asyncio.get_running_loop().call_later(0.05, stage.open, "a")

    asyncio.run(main())
    assert stage.kinds("a")[-2:] == ["step.completed", "run.released"]
    assert stage.client.run("a").status == "queued"
    assert stage.owner("a") is None
    with outlast.serving(desk.gated, store=stage.url):
        outlast.Handle("a", stage.url).result(timeout=30).result()
    assert [claim.crash for claim in claims(stage, "a")] == [False, False]


def test_a_plain_step_that_does_not_end_is_left_behind_without_a_crash(stage: Stage) -> None:
    begun, go = threading.Event(), threading.Event()

    @outlast.step
    def stubborn() -> str:
        begun.set()
        go.wait()
        return "done"

    @outlast.workflow
    def flow() -> str:
        return stubborn()

    outlast.submit(flow, run_id="s", store=stage.url)
    with outlast.serving(flow, store=stage.url, settings=outlast.Settings(grace=0.1)):
        assert begun.wait(30)
    assert stage.client.run("s").status == "queued"
    assert stage.owner("s") is not None, "nobody goes on with it beside its body"
    go.set()
    until(lambda: stage.owner("s") is None, "the run to be free once the body has ended")
    assert stage.kinds("s")[-1] == "run.released"


def test_what_goes_wrong_in_one_run_does_not_end_the_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    @outlast.workflow
    def leaving() -> None:
        raise SystemExit(3)

    leaver = outlast.submit(leaving, run_id="l", store=stage.url)
    handle = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
    with outlast.serving(desk.quick, leaving, store=stage.url):
        assert handle.result(timeout=30).result() == "a-2"
        until(lambda: "run l could not go on" in caplog.text, "the word about the other")
        until(lambda: stage.kinds("l").count("run.claimed") == 2, "the next try")
    assert leaver.status().status == "queued"


def test_nothing_is_taken_up_under_the_emergency_stop(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read_stop = pool.read_stop

    def looking(store: object) -> object:
        nonlocal looks
        looks += 1
        return read_stop(store)  # type: ignore[arg-type]

    monkeypatch.setattr(pool, "read_stop", looking)
    store = get_store(stage.url).store
    store.write(StopAll(time.time(), by="ann", why="costs"), durable=True)
    handle = outlast.submit(desk.quick, "a", run_id="a", store=stage.url)
    with caplog.at_level(logging.WARNING), outlast.serving(desk.quick, store=stage.url):
        until(lambda: looks > 3, "some looks")
        assert stage.kinds("a") == ["run.created"]
        store.write(Allow(time.time()), durable=True)
        assert handle.result(timeout=30).result() == "a-2"
    assert caplog.text.count("costs") == 1


def test_an_emergency_stop_that_ended_before_the_step_under_way_is_no_trouble_of_the_run(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), outlast.serving(desk.gated, store=stage.url):
        handle = outlast.submit(desk.gated, "a", run_id="a", store=stage.url)
        stage.at_gate("a")
        stage.client.stop_all("costs")
        (run,) = active_runs()
        until(lambda: run.stop == EMERGENCY, "the run to hear of the stop")
        stage.client.allow()
        stage.open("a")
        handle.result(timeout=30).result()
    assert "could not go on" not in caplog.text


def test_a_run_that_waits_long_leaves_the_process_until_it_is_due(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.0)

    @outlast.workflow
    async def patient() -> str:
        await outlast.sleep(0.3)
        return "rested"

    handle = outlast.submit(patient, run_id="p", store=stage.url)
    with outlast.serving(patient, store=stage.url):
        assert handle.result(timeout=30).result() == "rested"
    assert stage.kinds("p").count("run.claimed") == 2
    assert stage.kinds("p").count("run.released") == 1


def test_looking_for_runs_reads_none_of_those_that_wait(stage: Stage) -> None:
    get_store(stage.url)
    plan = explain(stage, load_queries()["find_ready"])
    assert "SEARCH r USING INDEX runs_by_due (due_at<?)" in plan
    assert "SCAN r" not in plan


def explain(stage: Stage, statement: str) -> str:
    connection = apsw.Connection(str(stage.folder / "store.db"))
    values = {"workflows": "[]", "without": "[]", "now": 0.0, "limit": 1}
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
    text = "\n".join(str(row[3]) for row in rows)
    connection.close()
    return text


def test_serving_refuses_what_it_cannot_serve(stage: Stage) -> None:
    with pytest.raises(outlast.UsageError, match="is not a workflow"):
        outlast.serving(print, store=stage.url)
    with pytest.raises(outlast.UsageError, match="needs workflows"):
        outlast.serving(store=stage.url)
    for number in (0, 2.5, "5"):
        with pytest.raises(outlast.UsageError, match="1 or more"):
            outlast.serving(desk.quick, concurrency=number, store=stage.url)  # type: ignore[arg-type]
    once = outlast.serving(desk.quick, store=stage.url)
    with once:
        pass
    with pytest.raises(outlast.UsageError, match="used already"):
        once.__enter__()
