"""An agent loop that kills its own process where it is told to: agent.py STORE LOG DIE_AT."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import outlast
from outlast import step, workflow

STORE, LOG, DIE_AT = sys.argv[1:4]


def log(line: str) -> None:
    with Path(LOG).open("a") as file:
        file.write(line + "\n")
    if line == DIE_AT:
        os.kill(os.getpid(), signal.SIGKILL)


@step
async def think(chat: list[str]) -> str:
    log(f"think {len(chat)}")
    return f"thought {len(chat)}"


@step
async def act(what: str) -> str:
    log(f"act {what}")
    return what.upper()


@workflow
async def agent() -> list[str]:
    log("top")
    await act("before")
    async for turn in outlast.turns(chat=["hello"], max=10):
        log(f"turn {len(turn.chat)}")
        turn.chat.append(await think(turn.chat))
        turn.chat += await asyncio.gather(act("left"), act("right"))
        log(f"end {len(turn.chat)}")
        if len(turn.chat) > 9:
            break
    turn.chat.append(await act("behind"))
    return list(turn.chat)


if __name__ == "__main__":
    print(outlast.run(agent, run_id="r", store=STORE))
