"""What the engine's tests share: reading a journal, copying a store, a death at a chosen write."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, TypeVarTuple, cast

import outlast
from outlast import events
from outlast.records import StoredEvent
from outlast.worker.stores import get_store

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

PATIENT = outlast.Settings(max_crashes=1000, grace=0.5)
"""For tests that let one run die again and again without progress."""


class Bodies:
    """Counts how often the bodies of steps ran; kept outside the store."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.order: list[str] = []

    def __call__(self, name: str) -> None:
        self.ran[name] += 1
        self.order.append(name)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def journal(url: str, run_id: str = "r") -> list[StoredEvent]:
    return outlast.Client(url).journal(run_id)


def kinds(url: str, run_id: str = "r") -> list[str]:
    """The journal as `kind key`, without what comes and goes with processes."""
    skipped = ("run.created", "run.claimed", "run.released", "run.resumed")
    rows = journal(url, run_id)
    return [f"{e.kind} {e.key or ''}".strip() for e in rows if e.kind not in skipped]


def keymap(url: str, run_id: str = "r") -> set[tuple[str, str]]:
    """(key, arguments as shown) of all steps."""
    found = set()
    for row in journal(url, run_id):
        if row.kind == "step.started":
            event = cast(events.StepStarted, events.decode(row.kind, row.data))
            found.add((str(row.key), event.preview))
    return found


def copy_store(url: str, to: Path) -> str:
    """A copy of a store to which nobody writes now."""
    source = Path(url.removeprefix("sqlite:///"))
    to.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal"):
        part = source.with_name(source.name + suffix)
        if part.exists():
            shutil.copyfile(part, to.with_name(to.name + suffix))
    return url_of(to)


@contextmanager
def dying_at(
    url: str, number: int = 10**9, *, kind: str = "", key: str | None = None, after: bool = False
) -> Iterator[Callable[[], bool]]:
    """From some transaction on, this process writes nothing more to the store.

    For the journal that is the death of the process: what was open stays open.

    Args:
        number: the first transaction that fails, from 1.
        kind: or the first one that holds an event of this kind,
        key: and with this key.
        after: the transaction itself is committed, but nobody learns so.

    Yields:
        a function that tells whether it came to that.
    """
    database = get_store(url).store._database
    real = database.transact
    count, dead = 0, False

    def transact(items: Sequence[object], *, wait: bool = True) -> object:
        nonlocal count, dead
        count += 1
        entries = [e for item in items for e in getattr(item, "entries", ())]
        meant = any(e.event.kind == kind and key in (None, e.key) for e in entries)
        now = not dead and (count >= number or meant)
        if not dead and (after or not now):
            result = real(items, wait=wait)  # type: ignore[arg-type]
            if not now:
                return result
        dead = True
        raise outlast.StoreError("the test let the process die at this write", "io")

    database.transact = transact  # type: ignore[method-assign,assignment]
    try:
        yield lambda: dead
    finally:
        del database.transact


def run_through_deaths(
    start: Callable[[], R], url: str, *, after: bool = False, first: int = 1
) -> tuple[R, int]:
    """Let a run die at its 1st write, then (in its next life) at its 2nd, and so on until it ends.

    Returns its result and the number of deaths.
    """
    for number in range(first, 500):
        with dying_at(url, number, after=after) as died:
            try:
                result = start()
            except outlast.StoreError:
                assert died()
                continue
        return result, number - first
    raise AssertionError("the run does not end")


def run_with_each_death(
    start: Callable[[str], R], url: str, *, after: bool = False
) -> Iterator[tuple[str, R]]:
    """A run that dies at its first write and is resumed, another that dies at its second, and so on
    up to the last one. Yields run id and result of each."""
    for number in range(2, 500):  # the first write creates the run
        run_id = f"dies-at-{number}"
        with dying_at(url, number, after=after) as died:
            try:
                start(run_id)
            except outlast.StoreError:
                assert died()
            else:
                return
        yield run_id, start(run_id)
    raise AssertionError("the run does not end")
