"""The one place that picks a store: by URL, one open store per file and process."""

import contextlib
import os
import re
import shlex
import threading
from dataclasses import dataclass, field
from pathlib import Path

from outlast.engine.heart import Heart
from outlast.errors import StoreError
from outlast.store.open import open_store, parse_url
from outlast.store.writer import Store

DEFAULT = "sqlite:///outlast.db"


@dataclass(slots=True)
class OpenStore:
    """A store and the heart that keeps this process's leases in it."""

    store: Store
    heart: Heart = field(init=False)

    def __post_init__(self) -> None:
        self.heart = Heart(self.store)


_lock = threading.Lock()
_open: dict[str, OpenStore] = {}


def url_or_default(url: str | None) -> str:
    """`url`, else $OUTLAST_STORE, else `outlast.db` in the current folder."""
    return url or os.environ.get("OUTLAST_STORE") or DEFAULT


def reaching(text: str, store: str | None) -> str:
    """A text of the library, which does not know how it was called, with commands that reach the
    store.

    Args:
        store: as the user has named it; None if commands reach it without that.
    """
    if store is None:
        return text
    return _COMMANDS.sub(lambda _: f"outlast --store {shlex.quote(store)}", text)


_COMMANDS = re.compile(
    r"\boutlast(?= (?:run|resume|fork|show|verify|journal|settle|ls|replay|breakers|kill|pause|"
    r"stop-all|allow|signal|inbox|answer|undo|worker)\b)"
)
"""Where a command begins in the text of an error."""


def get_store(url: str | None = None) -> OpenStore:
    """The store that a URL names, opened at its first use and kept until the process ends.

    Raises:
        StoreError, UsageError: see `outlast.store.open.open_store`.
    """
    full = url_or_default(url)
    path = parse_url(full).path
    with _lock:
        known = _open.get(path)
        if known is not None and _usable(known.store):
            return known
        _open.pop(path, None)
        opened = _open[path] = OpenStore(open_store(full))
        return opened


def in_place_of(opened: OpenStore, problem: StoreError) -> OpenStore:
    """What to go on with after a trouble of a store. If its file was replaced by another one, it is
    that one: whoever starts a run in this process from now on records it there."""
    if problem.problem in ("gone", "closed") and Path(opened.store.path).exists():
        with contextlib.suppress(StoreError):  # the next use of it says so
            return get_store(opened.store.url)
    return opened


def _usable(store: Store) -> bool:
    """Whether an open store can still be used; one whose file is gone is given up."""
    if store.closed or store.broken is not None:
        return False
    try:
        store.read("last_run")
    except StoreError as problem:
        if problem.problem == "gone":
            store.close()
            return False
        raise
    return True


def _after_fork() -> None:
    """A child starts without open stores, and without a lock that a parent's thread may hold."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
