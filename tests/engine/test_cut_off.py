"""A journal whose end was cut off is not gone on with, and that it was stays visible."""

import apsw
import pytest

import outlast
from outlast import step, workflow
from outlast.store.open import parse_url
from tests.engine.tools import dying_at

paid: list[str] = []


@step
def look() -> str:
    return "seen"


@step(effect="once")
def pay() -> str:
    paid.append("paid")
    return "receipt"


@step
def tell() -> None:
    pass


@workflow
def desk() -> str:
    look()
    receipt = pay()
    tell()
    return receipt


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def cut_off(url: str, kind: str) -> None:
    """Delete the first event of that kind that belongs to `pay`, and all later ones."""
    connection = apsw.Connection(parse_url(url).path)
    connection.execute("DROP TRIGGER events_are_not_deleted")
    connection.execute(
        "DELETE FROM events WHERE seq >= (SELECT min(seq) FROM events WHERE key = 'pay#1' AND kind"
        " = ?)",
        (kind,),
    )
    connection.close()


def still_refused(url: str) -> None:
    client = outlast.Client(url)
    for _ in range(2):  # refusing it does not hide it
        assert not client.verify("r")[0].ok
        with pytest.raises(outlast.StoreError, match="cut off") as refused:
            outlast.run(desk, run_id="r", store=url)
        assert refused.value.problem == "damaged"
        with pytest.raises(outlast.StoreError, match="cut off"):
            client.fork("r", "@end")
    assert paid == ["paid"]


def test_a_run_that_was_released(url: str) -> None:
    with dying_at(url, kind="step.started", key="tell#2"), pytest.raises(outlast.StoreError):
        outlast.run(desk, run_id="r", store=url)
    with pytest.raises(outlast.RunWaiting):
        outlast.run(
            workflow(name="desk")(lambda: (look(), pay(), outlast.sleep(3600).result())),
            run_id="r",
            store=url,
            wait=False,
        )
    cut_off(url, "step.started")
    still_refused(url)


def test_a_run_whose_process_died_after_it_had_opened_a_once_step(url: str) -> None:
    with dying_at(url, kind="step.completed", key="pay#1"), pytest.raises(outlast.StoreError):
        outlast.run(desk, run_id="r", store=url)
    cut_off(url, "step.started")
    still_refused(url)
