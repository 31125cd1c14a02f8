"""Runs a workflow under unusual circumstances. Options: `store`, `how`."""

import asyncio
import functools
import json
import sys

import uvloop

import outlast

options = json.loads(sys.argv[1])
store, how = options["store"], options["how"]


@outlast.step
async def fetch(number):
    await asyncio.sleep(0)
    return number


@outlast.step
def compute(number):
    return number * 2


@outlast.workflow
async def job():
    loop = type(asyncio.get_running_loop()).__module__
    numbers = await asyncio.gather(*(fetch(n) for n in range(5)))
    async for turn in outlast.turns(total=0, max=3):
        turn.total += compute(len(numbers))
    await outlast.sleep(0)
    return [loop, numbers, turn.total, __debug__]


@outlast.workflow
def plain():
    return [compute(n) for n in range(5)]


def main():
    if how == "uvloop.run":
        return uvloop.run(outlast.execute(job, run_id="r", store=store))
    if how == "uvloop policy":
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    if how == "plain":
        return outlast.run(plain, run_id="r", store=store)
    if how == "plain in a loop":
        return asyncio.run(outlast.execute(plain, run_id="r", store=store))
    return outlast.run(functools.partial(job), run_id="r", store=store)


first = main()
again = main()
assert first == again or how == "never", (first, again)
print(json.dumps({"result": first}))
