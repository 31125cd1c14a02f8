"""Makes every value in one step each, and looks at each one in another step behind it.

`argv[2]` names the run and `argv[3]` is its colour. Point: `between`.
"""

import math
import sys
from collections import Counter, OrderedDict, defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import outlast
from tests.codec import kinds
from tests.effects.stage import Stage
from tests.strategies import assert_same

HARD = [
    *("a\0b", "\udc97", "\ud83d\ude00", "$tuple", math.nan, math.inf, -math.inf, -0.0),
    *(2**53 + 1, 2**63, -(2**63) - 1, 2**200, b"\xff", 1, True, 1.0, None, 3 + 0j, (1, "1")),
    *(frozenset({1}), Decimal("1.10"), UUID(int=7), Path("a"), timedelta(1, 2, 3)),
    *(kinds.Colour.RED, kinds.Level.HIGH, kinds.Word.YES, kinds.Rights(3), kinds.Pair(1, 2)),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
]
VALUES = [
    *HARD,
    *({value: "as a key"} for value in HARD),
    {(1, 2), (3, 4)},
    {frozenset({1}): {frozenset(): 2}},
    defaultdict(list, {1: [2]}),
    OrderedDict(b=1, a=2),
    Counter("aab"),
    {"items": (1, [2, (3,)])},
    bytearray(b"\0"),
    range(10**30, 0, -7),
    kinds.Hit("a", (1,)),
    kinds.Best("b", rank=kinds.Hit("c")),
    kinds.Holder(model=kinds.SubModel(name="a", extra_field=1)),
    kinds.IntCrate(item=1),
    kinds.Box[int](3),
    kinds.FrozenPoint(x=1, z=(2,)),
    kinds.AttrsPoint(1),
]
REFUSED = [object(), slice(1), iter([1]), lambda: 1, int, len, NotImplemented, sys, {1: object()}]

stage, name, colour = Stage(sys.argv[1]), *sys.argv[2:]


@outlast.step
def make(index: int) -> object:
    return VALUES[index]


@outlast.step
def fail(index: int) -> object:
    raise ValueError(HARD[index])


@outlast.step(retry=outlast.Retry(attempts=5, initial=0))
def refuse(index: int) -> object:
    stage.log(name, "made", index)
    return REFUSED[index]


@outlast.step
def look(index: int, value: object) -> str:
    try:
        assert_same(VALUES[index], value)
    except AssertionError as wrong:
        return f"{VALUES[index]!r} became {value!r} ({wrong})"
    return "same"


@outlast.workflow
def plain() -> object:
    made = [make(index) for index in range(len(VALUES))]
    errors = []
    for index in range(len(HARD)):
        try:
            fail(index)
        except ValueError as error:
            errors.append(error.args[0])
    refused = []
    for index in range(len(REFUSED)):
        try:
            refuse(index)
        except outlast.NotStorable as error:
            refused.append(str(error))
    stage.reach("between")
    seen = [look(index, value) for index, value in enumerate(made)]
    return seen + [look(index, value) for index, value in enumerate(errors)], refused


@outlast.workflow
async def asynchronous() -> object:
    return plain.plain()


if __name__ == "__main__":
    flow = plain if colour == "plain" else asynchronous
    stage.report(lambda: outlast.run(flow, run_id=name, store=stage.url))
