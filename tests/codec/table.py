"""The table in docs/values.md: what is stored how, and what is refused, found by trying it out.

`make values` writes it into the page; a test fails if the page differs.
"""

import math
import socket
import threading
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from outlast.codec import decode, encode
from outlast.errors import NotStorable
from tests.codec import kinds
from tests.strategies import assert_same

PAGE = Path(__file__).parents[2] / "docs" / "values.md"
BEGIN = "<!-- written by `make values` -->\n"
END = "<!-- end of the table -->\n"

STORED: list[tuple[str, object]] = [
    ("`None`, `bool`", True),
    ("`int` of 64 bits", 2**53 + 1),
    ("larger `int`", 2**70),
    ("`float`", -0.0),
    ("NaN, infinities", math.inf),
    ("`complex`", 1 - 2j),
    ("`str`, NUL included", "naïve\0"),
    ("`str` with lone surrogates", "\udc97"),
    ("`bytes`", b"\xff"),
    ("`bytearray`", bytearray(b"\xff")),
    ("`list`", [1, "a"]),
    ("`tuple`", (1, "a")),
    ("`dict` with text keys", {"a": 1}),
    ("`dict` with other keys, or keys that begin with `$`", {1: "a", (2, 3): "b"}),
    ("`set`", {2, 1}),
    ("`frozenset`", frozenset({1})),
    ("`range`", range(0, 9, 3)),
    ("`collections.OrderedDict`", OrderedDict(b=1, a=2)),
    ("`collections.Counter`", Counter("aab")),
    ("`collections.defaultdict` of a built-in factory", defaultdict(list, {"a": [1]})),
    ("`datetime`", datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
    (
        "`datetime` in a zone, with `fold`",
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ),
    ("`date`", date(2026, 1, 2)),
    ("`time`", time(3, 4)),
    ("`timedelta`", timedelta(days=1, seconds=2)),
    ("`timezone`", timezone(timedelta(hours=1))),
    ("`zoneinfo.ZoneInfo` with a key", ZoneInfo("Europe/Berlin")),
    ("`decimal.Decimal`", Decimal("1.10")),
    ("`fractions.Fraction`", Fraction(1, 3)),
    ("`uuid.UUID`", UUID(int=7)),
    ("paths of `pathlib`", PurePosixPath("a/b")),
    ("`enum` member, also of `StrEnum` and `IntEnum`", kinds.Colour.RED),
    ("combination of `enum.Flag`", kinds.Rights(3)),
    ("named tuple", kinds.Pair(1, 2)),
    ("dataclass, generic or not", kinds.Hit("a")),
    ("attrs class", kinds.AttrsPoint(1)),
    ("msgspec `Struct`", kinds.Point(1)),
    ("pydantic model, generic or not", kinds.Model(name="a")),
    ("`msgspec.UNSET`", msgspec.UNSET),
]
"""What is stored, with an example each."""


class Text(str):
    __slots__ = ()


class Zone(tzinfo):
    pass


def _numbers() -> Iterator[int]:
    yield 1


def _loop() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


def _local() -> object:
    class Inside(kinds.Hit):
        pass

    return Inside("a")


def _surplus() -> object:
    hit = kinds.Hit("a")
    hit.note = "not a field"  # type: ignore[attr-defined]
    return hit


REFUSED: list[tuple[str, object]] = [
    ("any other object", object()),
    ("lock", threading.Lock()),
    ("socket, file, connection", socket.socket.__new__(socket.socket)),
    ("generator, iterator", _numbers()),
    ("function, method, lambda", _numbers),
    ("class, type", int),
    ("module", math),
    ("exception (raise it instead)", ValueError("a")),
    ("`slice`", slice(1)),
    ("`collections.deque`", deque([1])),
    ("`memoryview`", memoryview(b"a")),
    ("subclass of a built-in type", Text("a")),
    ("`UserDict`, `UserList`", UserDict()),
    ("`defaultdict` of another factory", defaultdict(lambda: 1)),
    ("time zone that is neither `timezone` nor `ZoneInfo`", datetime(2026, 1, 2, tzinfo=Zone())),
    ("value that contains itself", _loop()),
    ("class made in a function, unless it is annotated", _local()),
    ("data class with attributes beside its fields", _surplus()),
]
"""What is refused, with an example each."""


def table() -> str:
    """The table. Every row was tried out on its example."""
    lines = ["| stored exactly | for example, in JSON |", "|---|---|"]
    for name, value in STORED:
        data = encode(value)
        assert_same(value, decode(data))
        lines.append(f"| {name} | {_code(data.decode())} |")
    lines += ["", "| refused | what the error says |", "|---|---|"]
    for name, value in REFUSED:
        try:
            encode(value)
        except NotStorable as refusal:
            said = str(refusal).partition(": ")[2].partition("; return plain data")[0]
            lines.append(f"| {name} | {_code(said)} |")
        else:
            raise AssertionError(f"{name} is stored after all")
    return "".join(f"{line}\n" for line in lines)


def _code(text: str) -> str:
    for module in ("tests.codec.kinds", "tests.codec.table"):
        text = text.replace(module, "desk")
    return f"`{text}`"


def page() -> str:
    """The page with its table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
