"""Threads that a step has started are part of its run: as long as one works, it is not said that
nothing of a killed run is executed any more."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import outlast
from tests.ownership.children import until

PATIENCE = 30.0
SHORT = outlast.Settings(grace=0.1)

Starter = Callable[[Callable[[], None]], None]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


class Work:
    """Something that a thread does until it may end. Each waits here for itself."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.may_end.set()


def in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work).start()


def in_a_thread_of_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=in_a_thread, args=(work,)).start()


def in_a_pool(work: Callable[[], None]) -> None:
    pool = ThreadPoolExecutor()
    pool.submit(work)
    pool.shutdown(wait=False)


def execute(flow: Callable[[], object], url: str, ended: Callable[[BaseException], object]) -> None:
    def body() -> None:
        try:
            outlast.run(flow, run_id="r", store=url, settings=SHORT)
        except outlast.RunKilled as problem:
            ended(problem)

    threading.Thread(target=body).start()


@pytest.mark.parametrize(
    "starter", [in_a_thread, in_a_thread_of_a_thread, in_a_pool], ids=lambda s: s.__name__
)
def test_a_kill_is_not_confirmed_before_the_threads_of_its_steps_have_ended(
    url: str, work: Work, starter: Starter
) -> None:
    told = threading.Event()

    @outlast.step
    def act() -> None:
        starter(work)
        while True:
            threading.Event().wait(0.005)

    @outlast.workflow
    def flow() -> None:
        act()

    client = outlast.Client(url)
    execute(flow, url, lambda _: told.set())
    assert work.begun.wait(PATIENCE)
    client.kill("r", grace=0.1)
    assert told.wait(PATIENCE)  # the body has been interrupted
    killed = client.kill("r")
    assert killed.kill is not None
    assert not killed.stopped
    assert killed.kill.owner is not None
    work.may_end.set()
    until(lambda: client.kill("r").stopped, "the word that nothing of it is executed")
    assert client.journal("r")[-1].kind == "run.stopped"


def test_a_kill_of_an_asynchronous_step_waits_for_what_it_has_sent_to_a_thread(
    url: str, work: Work
) -> None:
    @outlast.step
    async def act() -> None:
        await asyncio.to_thread(work)

    @outlast.workflow
    async def flow() -> None:
        await act()

    async def main() -> None:
        client = outlast.Client(url)
        task = asyncio.create_task(outlast.execute(flow, run_id="r", store=url, settings=SHORT))
        await asyncio.to_thread(work.begun.wait, PATIENCE)
        client.kill("r", grace=0.1)
        with pytest.raises(outlast.RunKilled):
            await task
        assert not client.kill("r").stopped
        work.may_end.set()
        await asyncio.to_thread(until, lambda: client.kill("r").stopped, "the word")

    asyncio.run(main())


def test_what_a_pool_has_not_come_to_does_not_begin_after_a_kill(url: str, work: Work) -> None:
    told = threading.Event()
    handed: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:

        @outlast.step
        def act() -> None:
            handed.extend([pool.submit(work), pool.submit(lambda: None)])
            while True:
                threading.Event().wait(0.005)

        @outlast.workflow
        def flow() -> None:
            act()

        execute(flow, url, lambda _: told.set())
        assert work.begun.wait(PATIENCE)
        outlast.Client(url).kill("r", grace=0.1)
        assert told.wait(PATIENCE)
        work.may_end.set()
        assert handed[0].result(PATIENCE) is None
        assert isinstance(handed[1].exception(PATIENCE), outlast.StopRun)


def test_threads_of_the_program_and_of_pools_do_not_keep_a_killed_run(url: str, work: Work) -> None:
    told, ready = threading.Event(), threading.Event()
    beside = threading.Thread(target=work)
    with ThreadPoolExecutor(1) as pool:

        @outlast.step
        def act() -> None:
            assert pool.submit(int, "7").result() == 7  # its thread lives on, idle
            ready.set()
            while True:
                threading.Event().wait(0.005)

        @outlast.workflow
        def flow() -> None:
            act()

        beside.start()
        execute(flow, url, lambda _: told.set())
        assert ready.wait(PATIENCE)
        client = outlast.Client(url)
        client.kill("r", grace=0.1)
        assert told.wait(PATIENCE)
        until(lambda: client.kill("r").stopped, "the word that nothing of it is executed")
        assert beside.is_alive()
