"""Refuses what a turn loop would lose on resume: changes of locals that outlive their turn.

A local that is set anew is found in the code of the loop, before its first turn (`carried.py`). One
whose value changes in place is found at the end of the turn that did so, by a fingerprint:

- plain data of up to `LARGEST` bytes in canonical form, down to its last item;
- larger lists, dicts, sets and deques, and those of anything that is no plain data: how many items
  they have, and whether the first `MOST` are the same objects;
- everything else (clients, iterators, large data classes) is left alone.
"""

import gc
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import is_
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

from msgspec import Struct

from outlast import codec
from outlast.engine.carried import loop_at
from outlast.errors import NotStorable, UsageError

LARGEST = 16 * 1024
"""Bytes of one local: some 0.1 ms a turn, 0.3 ms at worst."""

MOST = 1_000
"""Items of one local that are looked at: some 20 µs a turn."""

_FIXED = frozenset(
    {int, float, complex, bool, str, bytes, type(None)}
    | {type, ModuleType, FunctionType, BuiltinFunctionType}
)
_UNSET = object()


class _Items(Struct, frozen=True):
    """The items of a container, by identity; they are kept alive, so that it stays theirs."""

    count: int
    first: tuple[object, ...]

    def same(self, other: "_Items | None") -> bool:
        if other is None or self.count != other.count:
            return False
        return len(self.first) == len(other.first) and all(map(is_, self.first, other.first))


class _Kept(Struct, frozen=True):
    """A local as it was when the loop began, and a line that reads it."""

    line: int
    before: str | _Items


class Watch:
    """The locals that a loop must leave as they are, and how they were when it began.

    It holds no frame: that would keep alive everything in the function that holds the loop.
    """

    def __init__(self, run_id: str, code: CodeType, kept: dict[str, _Kept]) -> None:
        self._run_id = run_id
        self._code = code
        self._kept = kept

    def look(self, frame: FrameType) -> Mapping[str, object]:
        """The locals as they are now; `frame` is where the loop asks for its next turn."""
        if frame.f_code is not self._code:  # somebody else asks
            return {}
        now = frame.f_locals
        return {name: now.get(name, _UNSET) for name in self._kept}

    def check(self, now: Mapping[str, object], turn: int) -> None:
        """Compare what `look` returned at the end of a turn.

        Raises:
            UsageError: the turn has changed a local.
        """
        for name, value in now.items():
            kept = self._kept[name]
            if not _is_same(kept.before, value):
                raise UsageError(
                    f"run {self._run_id}: `{name}` is not durable here: turn {turn} changed what "
                    f"it holds, and it is read beyond that turn ({_place(self._code, kept.line)}); "
                    "put it into the turn's record, or give the record a copy if the two share "
                    "what was changed"
                )


def watch(run_id: str, frame: FrameType, made_in: CodeType | None, record: object) -> Watch | None:
    """Look at a loop that is about to begin.

    Args:
        frame: of the function that asks for the loop's iterator.
        made_in: the function that called `outlast.turns`. If another one iterates, it is not the
            workflow's own loop but something like a progress bar, and is not looked at.
        record: the loop's record, which may change.

    Returns:
        None if nothing needs to be watched.

    Raises:
        UsageError: one turn sets a local, and a later one reads it.
    """
    code = frame.f_code
    loop = loop_at(code, frame.f_lasti) if code is made_in else None
    if loop is None:
        return None
    if loop.rebound:
        said = "; ".join(
            f"`{r.name}` is not durable here: a turn changes it ({_place(code, r.stored)}) and it "
            f"is read beyond that turn (line {r.read})"
            for r in loop.rebound
        )
        raise UsageError(
            f"run {run_id}: {said}; put it into the turn's record, or set it in every turn before "
            "it is read (on resume, earlier turns are not replayed)"
        )
    now = frame.f_locals
    kept = {}
    for name, line in loop.kept.items():
        value = now.get(name, _UNSET)
        fixed = value is _UNSET or type(value) in _FIXED
        if value is record or (fixed and name not in loop.shared):
            continue
        before = _fingerprint(value, record)
        if before is not None:
            kept[name] = _Kept(line, before)
    return Watch(run_id, code, kept) if kept else None


def _place(code: CodeType, line: int) -> str:
    return f"{Path(code.co_filename).name}:{line}"


def _fingerprint(value: object, record: object) -> str | _Items | None:
    digest = _digest(value)
    if digest is None or _reaches(value, record):
        return _items(value)
    return digest


def _is_same(before: str | _Items, value: object) -> bool:
    return before == _digest(value) if isinstance(before, str) else before.same(_items(value))


def _digest(value: object) -> str | None:
    if value is _UNSET:
        return ""
    try:
        return codec.digest(value, limit=LARGEST)
    except NotStorable:
        return None


def _items(value: object) -> _Items | None:
    items: Iterable[object]
    if isinstance(value, dict):
        half = MOST // 2
        items = (*islice(dict.keys(value), half), *islice(dict.values(value), half))
    elif isinstance(value, list):
        items = list.__iter__(value)
    elif isinstance(value, set):
        items = set.__iter__(value)
    elif isinstance(value, deque):
        items = deque.__iter__(value)
    else:
        return None
    return _Items(len(value), tuple(islice(items, MOST)))


def _reaches(value: object, record: object) -> bool:
    """Whether the record is a part of plain data, which may then change along with it. It counts
    as if it were where the search leads out of the data, which has at most that many parts."""
    seen = {id(value)}
    todo = [value]
    while todo and len(seen) < LARGEST:
        for part in gc.get_referents(todo.pop()):
            if part is record:
                return True
            if id(part) not in seen and not isinstance(part, type | ModuleType | FunctionType):
                seen.add(id(part))
                todo.append(part)
    return bool(todo)
