"""How a process hears of a kill: also by another way than its ear, and whoever else listens."""

import threading
from pathlib import Path

import pytest

import outlast
from outlast.engine import ear
from outlast.engine.run import Run, active_runs
from tests.ownership.children import until

NEVER = 3600.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def a_run(run_id: str) -> Run:
    def found() -> list[Run]:
        return [run for run in active_runs() if run.run_id == run_id]

    return until(found, f"run {run_id} to be executed")[0]


def test_who_hears_of_a_kill_by_its_heartbeat_says_that_nothing_runs_any_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ear, "INTERVAL", NEVER)
    ends: list[BaseException] = []

    @outlast.workflow
    def sleeps() -> None:
        outlast.sleep(NEVER).result()

    def body() -> None:
        try:
            outlast.run(sleeps, run_id="r", store=url, settings=outlast.Settings(lease=0.5))
        except outlast.RunKilled as killed:
            ends.append(killed)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    a_run("r")
    client = outlast.Client(url)
    until(lambda: client.run("r").status == "waiting", "the run to sleep")
    client.kill("r")
    until(lambda: client.kill("r").stopped, "the word that nothing of it is executed")
    thread.join(30)
    assert len(ends) == 1
    assert client.journal("r")[-1].kind == "run.stopped"
    client.revive("r")


def test_a_body_that_ends_between_a_kill_and_the_word_of_it_lets_go_of_the_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ear, "INTERVAL", NEVER)
    may_end = threading.Event()

    @outlast.step(effect="read", timeout=0.05, retry=outlast.Retry(attempts=2, initial=0.01))
    def lingers() -> None:
        assert may_end.wait(30)

    @outlast.workflow
    def stuck() -> None:
        lingers()

    with pytest.raises(outlast.RunHeld, match="stuck"):
        outlast.run(stuck, run_id="r", store=url, settings=outlast.Settings(grace=0.05))
    client = outlast.Client(url)
    assert not client.kill("r").stopped
    may_end.set()
    until(lambda: client.kill("r").stopped, "the word that nothing of it is executed")
    client.revive("r")


def test_a_listener_that_fails_keeps_no_other_run_from_hearing_of_its_kill(url: str) -> None:
    @outlast.workflow
    def sleeps() -> None:
        outlast.sleep(NEVER).result()

    def body(run_id: str) -> None:
        with pytest.raises(outlast.RunKilled):
            outlast.run(sleeps, run_id=run_id, store=url)

    def fail() -> None:
        raise RuntimeError("Event loop is closed")

    names = ("first", "second")
    threads = [threading.Thread(target=body, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    client = outlast.Client(url)
    a_run("second")
    with a_run("first").watch(fail):
        for name in names:
            client.kill(name)
            until(lambda name=name: client.kill(name).stopped, f"the end of {name}")
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
