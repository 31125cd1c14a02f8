"""What processes that execute runs are told of the commands: which runs they were about."""

from collections.abc import Callable

import pytest

import outlast
from outlast import Client
from outlast.emergency import read_news
from outlast.worker.stores import get_store
from tests.control.stoppable import Stoppable

COMMANDS: dict[str, Callable[[Client], object]] = {
    "signal": lambda client: client.signal("r", "go", 1),
    "answer": lambda client: client.answer("r", 1),
    "pause": lambda client: client.pause("r"),
    "resume": lambda client: client.resume("r"),
    "kill": lambda client: client.kill("r"),
    "revive": lambda client: (client.kill("r"), client.revive("r")),
    "undo": lambda client: (client.kill("r"), client.undo("r")),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_to_one_run_is_no_news_for_the_others(stoppable: Stoppable, command: str) -> None:
    @outlast.workflow
    async def waits() -> None:
        if command == "answer":
            await outlast.ask("How many?", type=int)
        await outlast.wait_signal("go", type=int)

    for run_id in ("r", "other"):
        with pytest.raises(outlast.RunWaiting):
            outlast.run(waits, run_id=run_id, store=stoppable.url, wait=False)
    store = get_store(stoppable.url).store
    known = read_news(store, 0).version
    COMMANDS[command](stoppable.client)
    news = read_news(store, known)
    assert news.version > known
    assert news.about == frozenset({"r"})
