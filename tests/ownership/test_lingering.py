"""A plain body cannot be stopped. While it still runs in a living process, that process keeps the
run, though the run has ended there: nobody reconciles, settles or repeats the step beside it."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import outlast
from outlast.engine.spec import workflow_spec
from outlast.events import RunClaimed
from outlast.worker.execution import IfOwned, Plan, run_plan
from outlast.worker.stores import get_store
from tests.ownership.children import Child, children, events, kinds, lines, until

PROGRAM = Path(__file__).parent / "programs" / "lingering.py"
Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    with children() as start_child:
        yield lambda **options: start_child(
            PROGRAM, {"store": url, "folder": str(tmp_path), **options}
        )


@pytest.fixture
def stuck(tmp_path: Path, start: Start) -> Child:
    """A process that lives on after its run was held, since a body outlived its timeout."""
    child = start(timeout=0.05, stay=True)
    until((tmp_path / f"over.{child.pid}").exists, "the run to be held")
    return child


def test_no_other_process_gets_a_stuck_run_while_the_body_lives(
    stuck: Child, start: Start, tmp_path: Path, url: str
) -> None:
    client = outlast.Client(url)
    assert (client.run("r").status, client.run("r").reason) == ("held", "stuck")
    said = start(resume=True).end()
    assert said["error"] == "RunOwned"
    assert f"process {stuck.pid} on " in str(said["text"])
    assert "a step that could not be stopped still runs" in str(said["text"])
    with pytest.raises(outlast.UsageError, match="no step of it runs there any more"):
        client.settle("r", "send#0", outlast.NotDone())
    assert lines(tmp_path / "log") == ["begins"]


def test_once_its_process_is_dead_the_run_is_taken_at_once_and_that_is_no_crash(
    stuck: Child, start: Start, tmp_path: Path, url: str
) -> None:
    stuck.kill()
    said = start(resume=True).end()
    assert (said["error"], outlast.Client(url).run("r").reason) == ("RunHeld", "in-doubt")
    assert lines(tmp_path / "log") == ["begins", "asked"]
    claims = events(outlast.Client(url).journal("r"), "run.claimed")
    assert [c.crash for c in claims if isinstance(c, RunClaimed)] == [False, False]


def test_once_the_body_has_ended_the_run_is_let_go_and_its_result_counts(
    stuck: Child, start: Start, tmp_path: Path, url: str
) -> None:
    waiting = start(resume=True, if_owned="wait")
    (tmp_path / "go").touch()
    assert waiting.end()["result"] == f"sent by {stuck.pid}"
    assert stuck.process.poll() is None, "it lives on, without the run"
    assert lines(tmp_path / "log") == ["begins", "ends"]


def test_a_process_that_was_asked_to_stop_keeps_the_run_until_its_thread_ends(
    start: Start, tmp_path: Path, url: str
) -> None:
    client = outlast.Client(url)
    child = start()
    until(lambda: lines(tmp_path / "log"), "the body")
    child.send(signal.SIGTERM)
    until(lambda: "run.released" in kinds(client.journal("r")), "the run to be released")
    child.send(signal.SIGSTOP)  # so that it lives for as long as this test looks at it
    until(child.stopped, "it to be stopped")
    assert client.unfinished() == []
    assert start(resume=True).end()["error"] == "RunOwned"
    child.kill()
    assert client.unfinished() == ["r"]
    assert start(resume=True).end()["error"] == "RunHeld"
    assert lines(tmp_path / "log") == ["begins", "asked"]


def test_it_holds_within_one_process_too(url: str) -> None:
    inside, go = threading.Event(), threading.Event()
    sent: list[str] = []

    @outlast.step(effect="once")
    def send() -> str:
        sent.append("begins")
        inside.set()
        assert go.wait(20)
        return "sent"

    @outlast.workflow
    async def flow() -> str:
        return await asyncio.to_thread(send)

    def resume(if_owned: IfOwned) -> object:
        spec = workflow_spec(flow)
        assert spec is not None
        return run_plan(Plan(spec, "r", if_owned=if_owned, resume=True), get_store(url))

    async def main() -> None:
        settings = outlast.Settings(grace=0.1)
        running = outlast.execute(flow, run_id="r", store=url, settings=settings)
        task = asyncio.create_task(running)
        await asyncio.to_thread(inside.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        client = outlast.Client(url)
        assert client.run("r").status == "queued"
        with pytest.raises(outlast.RunOwned, match="still runs"):
            await asyncio.to_thread(resume, "raise")
        go.set()
        await asyncio.to_thread(
            until, lambda: "step.late" in kinds(client.journal("r")), "the late result"
        )
        assert await asyncio.to_thread(resume, "wait") == "sent"
        assert sent == ["begins"]
        assert client._row("r").owner is None

    try:
        asyncio.run(main())
    finally:
        go.set()
