"""No command decides by a journal that was altered, nor copies it to where nothing shows that."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import apsw
import pytest

import outlast
from outlast import Client, NotDone
from outlast.worker.stores import get_store
from tests.changes.programs import Workshop
from tests.changes.test_accept import PAY, Desk, flow, until
from tests.changes.test_fork import whole_store
from tests.engine.tools import Bodies

COMMANDS: dict[str, Callable[[Client], Any]] = {
    "fork": lambda client: client.fork("r", "look#2", new_id="f", repeat_effects=True),
    "accept": lambda client: client.accept_from("r", "look#2"),
    "settle": lambda client: client.settle("r", "send#3", NotDone()),
}

ALTERED = {
    "a result": (
        "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), '1', '7') AS BLOB) "
        "WHERE seq = 4",
        r"event 4 \(step.completed of look#0\) is not as it was written",
    ),
    "a result that is no JSON": (
        "UPDATE events SET data = x'7b' WHERE seq = 4",
        r"event 4 \(step.completed of look#0\) is not as it was written",
    ),
    "an event is gone": (
        "DELETE FROM events WHERE seq = 4",
        r"event 5 \(step.started of pay#1\) is not as it was written",
    ),
    "the beginning is gone": ("DELETE FROM events WHERE seq = 1", "run.created.* is missing"),
    "the end is gone": (
        "DELETE FROM events WHERE seq > 7",
        "was cut off or changed",
    ),
    "the row": ("UPDATE runs SET uid = 'x'", r"differs from what event 1 \(run.created\) says"),
}


def alter(url: str, statement: str) -> None:
    with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as database:
        for (trigger,) in list(
            database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ):
            database.execute(f'DROP TRIGGER "{trigger}"')
        database.execute(statement)


@pytest.mark.parametrize(("statement", "said"), ALTERED.values(), ids=list(ALTERED))
@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_an_altered_journal_is_not_decided_about(
    command: Callable[[Client], Any], statement: str, said: str, url: str, bodies: Bodies
) -> None:
    desk = Desk(bodies)

    async def body() -> None:
        for call in (desk.look(1), desk.pay(2), desk.look(3), desk.send(4)):
            await call

    until(flow(body), url, "send#3")
    alter(url, statement)
    before = whole_store(url)
    with pytest.raises(outlast.StoreError, match=said) as refused:
        command(Client(url))
    assert refused.value.problem == "damaged"
    assert "outlast verify r" in str(refused.value)
    assert whole_store(url) == before


def test_the_intact_journal_is_decided_about(url: str, bodies: Bodies) -> None:
    """So that it is the alteration which the commands above refuse."""
    desk = Desk(bodies)

    async def body() -> None:
        for call in (desk.look(1), desk.pay(2), desk.look(3), desk.send(4)):
            await call

    until(flow(body), url, "send#3")
    for name in ("fork", "settle", "accept"):
        COMMANDS[name](Client(url))


@pytest.mark.parametrize("how", [(), ("--in-process",)], ids=["worker", "in-process"])
def test_the_command_says_which_event_and_what_to_look_at(
    how: tuple[str, ...], shop: Workshop
) -> None:
    shop.write(PAY)
    shop.die_at("look 3")
    assert shop.run().killed
    alter(shop.url, ALTERED["a result"][0])
    before = Client(shop.url).journal("r")
    refused = shop.command("resume", "r", "--accept-from", "pay#1", "--store", shop.url, *how)
    assert refused.code == 7, refused
    assert "event 4 (step.completed of look#0) is not as it was written" in refused.stderr
    assert f"outlast --store {shop.url} verify r" in refused.stderr
    assert Client(shop.url).journal("r") == before
    held = shop.resume()
    assert held.code == 3
    assert "Deal with what is said above, then:" in held.stderr
    assert "importable" not in held.stderr
    get_store(shop.url).store.close()
    (shop.folder / "store.db").unlink()  # what must hold for every run does not for this one
