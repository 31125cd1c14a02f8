"""An asynchronous step that cannot be cancelled. Its second process finds nothing to wait for."""

import asyncio
import json
import sys
from pathlib import Path

import outlast


@outlast.step
async def stubborn(folder: str) -> str:
    mark = Path(folder) / "begun"
    if mark.exists():
        return "done"
    mark.touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            continue


@outlast.step(timeout=0.05, retry=outlast.Retry(attempts=2, initial=0))
async def late(folder: str) -> str:
    return await stubborn(folder)


@outlast.workflow
async def work(folder: str, timed: bool) -> str:
    return await (late(folder) if timed else stubborn(folder))


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    settings = outlast.Settings(grace=options["grace"])
    outlast.run(
        work, options["folder"], False, run_id="r", store=options["store"], settings=settings
    )
