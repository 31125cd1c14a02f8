"""The scenes of the worker that hangs and of the refunds that ask, played for real and audited."""

import os
from pathlib import Path

import pytest

from outlast import Client
from outlast.demo import ask, hung
from outlast.demo.case import ENDLESS, Case
from outlast.demo.children import Children, DemoFailed
from outlast.demo.crew import Crew
from outlast.demo.watch import Watch
from outlast.processes import Found
from outlast.world import start_ticks
from tests.demo.test_scenes import play, store_of

pytestmark = pytest.mark.timeout(300)


def double_a_booking(folder: Path) -> None:
    ledger = folder / "scene" / "bank" / "ledger.jsonl"
    ledger.write_text(ledger.read_text() + ledger.read_text().splitlines(keepends=True)[0])


def test_a_run_that_hangs_is_killed_from_another_process_and_the_others_complete(
    children: Children, tmp_path: Path
) -> None:
    said = play(hung.play, children, tmp_path)
    for word in ("hung ", "fenced ", "gone ", "completed all 6 others"):
        assert any(line.startswith(word) for line in said), said
    assert any(line.strip().startswith(f"$ outlast kill {hung.HUNG} ") for line in said), said

    client = Client(store_of(tmp_path))
    view = client.run(hung.HUNG)
    claims = {run_id: client.run(run_id).epoch for run_id in hung.OTHERS}
    client.close()
    assert view.status == "killed"
    assert view.kill is not None
    assert view.kill.stopped
    assert view.kill.why == "it hangs on its photo"
    assert len(view.kill.ended) == 1, "it swallows what is raised in it, so its process was ended"
    # Whoever shared its process has been taken up once more.
    beside = next(line for line in said if line.startswith("hung ")).split(", ")[1].split()[0]
    assert sum(epoch > 1 for epoch in claims.values()) == int(beside)

    # Cooked books: a process that still runs, and a refund that is booked twice.
    watch = Watch(store_of(tmp_path), hung.RUN_IDS)
    alive = Found(os.getpid(), start_ticks(os.getpid()) or 0)
    double_a_booking(tmp_path)
    checks = hung.inspect(tmp_path / "scene", watch, [alive])
    assert [check.name for check in checks if not check.ok] == [
        "nothing of it runs",
        "every refund booked once",
    ]


def test_a_large_refund_asks_and_is_answered_while_no_process_has_it(
    children: Children, tmp_path: Path
) -> None:
    said = play(ask.play, children, tmp_path)
    inbox = said.index("          $ outlast inbox")
    answer = said.index(f"          $ outlast answer {ask.APPROVED} --yes")
    listed = "\n".join(said[inbox:answer])
    assert "Refund EUR 649.00 for order NL-1008, Chandelier Hedda?" in listed
    assert "Refund EUR 399.00 for order NL-1016, Street lamp Pia?" in listed

    client = Client(store_of(tmp_path))
    approved, denied = (client.run(run_id).result for run_id in (ask.APPROVED, ask.DENIED))
    client.close()
    assert isinstance(approved, dict)
    assert approved["amount"] == 64900
    assert isinstance(denied, dict)
    assert denied["why"].endswith(ask.NOTE)

    double_a_booking(tmp_path)
    checks = ask.inspect(tmp_path / "scene", Watch(store_of(tmp_path), ask.RUN_IDS))
    assert [check.name for check in checks if not check.ok] == ["every refund booked once"]


def test_a_refund_that_does_not_ask_is_no_scene(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dict.fromkeys(ask.RUN_IDS, "NL-1011")
    monkeypatch.setattr(ask, "CASES", small)
    with pytest.raises(DemoFailed, match="has ended, and not as it should"):
        ask.play(children, store_of(tmp_path), tmp_path / "scene", lambda _: None)


def test_a_step_that_does_not_hang_is_no_scene(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "ENDLESS", "lamp.jpg")
    with pytest.raises(DemoFailed, match="outlast kill ended with code 1"):
        hung.play(children, store_of(tmp_path), tmp_path / "scene", lambda _: None)


def test_workers_leave_with_the_show_even_if_one_hangs(children: Children, tmp_path: Path) -> None:
    crew = Crew(children, store_of(tmp_path), lambda _: None, [hung.HUNG])
    (bank,) = children.serve("bank", "--data", str(tmp_path / "bank"))
    crew.queue({hung.HUNG: Case("NL-1007", ENDLESS, f"http://127.0.0.1:{bank}")})
    crew.start(processes=1, runs=1)
    crew.wait_for([hung.HUNG], lambda run_id: hung._hangs(crew.watch.journal(run_id)))
    worker = hung._process(crew.watch.journal(hung.HUNG))
    workers = children.last
    assert workers.stdin is not None
    workers.stdin.close()  # as when the show is killed
    workers.wait()
    assert not worker.alive
