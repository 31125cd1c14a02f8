"""The scenes of the outage and of the shortage, played for real and audited."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Client, events
from outlast.demo import audit_shortage, outage, rest, shortage
from outlast.demo.agent import PAYMENTS
from outlast.demo.audit import Check
from outlast.demo.children import Children, DemoFailed
from outlast.demo.watch import STORE, Watch

pytestmark = pytest.mark.timeout(300)


Scene = Callable[[Children, str, Path, outage.Say], list[Check]]


def play(scene: Scene, children: Children, folder: Path) -> list[str]:
    """Play a scene whose audit has to pass; returns what was said."""
    said: list[str] = []
    checks = scene(children, store_of(folder), folder / "scene", said.append)
    assert all(check.ok for check in checks), (checks, said)
    return said


def store_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'outlast.db'}"


def failed(folder: Path) -> list[str]:
    watch = Watch(store_of(folder), outage.RUN_IDS)
    return [check.name for check in outage.inspect(folder / "scene", watch) if not check.ok]


def test_a_bank_that_fails_is_left_alone_by_two_desks_and_tried_by_one(
    children: Children, tmp_path: Path
) -> None:
    said = play(outage.play, children, tmp_path)
    for word in ("open ", "half-open ", "closed "):
        assert any(line.startswith(word) for line in said), said

    client = Client(store_of(tmp_path))
    views = [client.run(run_id) for run_id in outage.RUN_IDS]
    kinds = [event.kind for event in client.journal(STORE) if event.key == PAYMENTS.name]
    client.close()
    assert [view.status for view in views] == ["completed"] * 2
    assert [kind for kind in kinds if kind != "breaker.declared"][-1] == "breaker.closed"
    # What waits for the bank has not been tried: refusals cost no attempt.
    patient = [s for view in views for s in view.steps if s.name == "refund_patiently"]
    assert all(step.attempts <= 2 for step in patient)

    # Cooked books: one more request, a second after the trip.
    log = tmp_path / "scene" / "bank" / "requests.jsonl"
    honest = log.read_text()
    lines = [json.loads(line) for line in honest.splitlines()]
    trip = [line["outcome"] for line in lines].index("unavailable") + PAYMENTS.failures - 1
    extra = {**lines[0], "order_id": "NL-1099", "at": lines[trip]["at"] + 1}
    lines.insert(trip + 1, extra)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "bank left alone while open" in failed(tmp_path)
    log.write_text(honest)
    assert failed(tmp_path) == []

    # And a booking that no mail asked for.
    ledger = tmp_path / "scene" / "bank" / "ledger.jsonl"
    ledger.write_text(ledger.read_text() + ledger.read_text().splitlines(keepends=True)[0])
    assert failed(tmp_path) == ["every refund booked once"]


def test_a_run_at_its_limit_is_given_more_and_pays_for_nothing_twice(
    children: Children, tmp_path: Path
) -> None:
    said = play(shortage.play, children, tmp_path)
    assert any(line.startswith("held      over-budget: ") for line in said), said

    watch = Watch(store_of(tmp_path), (shortage.RUN_ID,))
    journal = watch.journal(shortage.RUN_ID)
    kinds = [event.kind for event in journal]
    held = kinds.index("run.held")
    assert "step.completed" in kinds[:held]
    assert "step.completed" in kinds[held:]
    budgeted = [events.decode(e.kind, e.data) for e in journal if e.kind == "run.budgeted"]
    added = [bytes(e.added) for e in budgeted if isinstance(e, events.RunBudgeted) and e.by]
    assert added == [b'{"usd":"0.02"}']

    # Cooked books: the answer that was paid for last is on the bill again.
    folder = tmp_path / "scene"
    lines = audit_shortage.bill(folder / "model")
    text = (folder / "model" / "bill.jsonl").read_text()
    with (folder / "model" / "bill.jsonl").open("a") as file:
        file.write(text.splitlines(keepends=True)[-1])
    checks = shortage.inspect(folder, watch, lines[:2])
    assert [check.name for check in checks if not check.ok] == [
        "no answer paid for twice",
        "the run's account fits the bill",
    ]


def test_a_desk_that_does_not_come_to_its_limit_is_no_scene(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortage, "LIMIT", "5")
    with pytest.raises(DemoFailed, match="did not come to its limit"):
        shortage.play(children, store_of(tmp_path), tmp_path / "scene", lambda _: None)


@pytest.mark.parametrize("probed", [False, True])
def test_a_desk_that_tries_the_bank_again_already_is_not_killed(
    children: Children, tmp_path: Path, probed: bool
) -> None:
    (port,) = children.serve("bank", "--data", str(tmp_path / "bank"))  # any process will do
    telling = outage.Telling(lambda _: None)
    telling.probed = probed
    watch = Watch(store_of(tmp_path), outage.RUN_IDS)
    assert outage._kill(children.last, watch, telling) is not probed
    if probed:
        assert asyncio.run(rest.get(f"http://127.0.0.1:{port}/ledger")) == {"bookings": []}
    else:
        assert children.last.returncode == -signal.SIGKILL
