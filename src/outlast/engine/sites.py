"""Where in the user's program a call was made: for reports. It is never compared.

Every call of a step pays for this, so only the code object and the offset in it are kept; the line
is looked up when it is written or shown.
"""

import contextlib
import os
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from msgspec import Struct

from outlast.errors import OutlastWarning

if TYPE_CHECKING:
    from outlast.engine.scope import Scope

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_DEMO = _PACKAGE + "demo" + os.sep  # workflows like those of a user
_STDLIB = str(Path(os.__file__).parent) + os.sep
_INSTALLED = (_STDLIB + "site-packages" + os.sep, _STDLIB + "dist-packages" + os.sep)


class Site(Struct, frozen=True):
    """A place in a program: an offset in a code object."""

    code: CodeType
    offset: int

    @property
    def line(self) -> int:
        """Its line, from 1; 0 if the code does not know."""
        return _line(self.code, self.offset)

    @property
    def short(self) -> str:
        """Such as `desk.py:41`: what the journal keeps."""
        return f"{self.code.co_filename.rpartition(os.sep)[2]}:{self.line}"

    @property
    def full(self) -> str:
        """The same with the whole path of the file."""
        file = self.code.co_filename
        return f"{file if file[:1] == '<' else Path(file).absolute()}:{self.line}"


def warn_at(site: Site | None, text: str) -> None:
    """Warn of something at the place of a call, where it can be changed.

    In the middle of a call: a program whose filters make errors of warnings would otherwise see one
    that is not recorded, and that a replay would not see.
    """
    file, line = ("<workflow>", 0) if site is None else (site.code.co_filename, site.line)
    with contextlib.suppress(OutlastWarning):
        warnings.warn_explicit(text, OutlastWarning, file, line)


def call_site(scope: "Scope", depth: int = 1) -> Site | None:
    """Where the running call was made: the nearest code that is neither outlast's nor the standard
    library's. None if there is none, as in a bare thread.

    Args:
        scope: in which the call is made. For a call in a thread (`asyncio.to_thread`) it is where
            the function that the scope's task runs waits for it, or where that task was created.
        depth: how many callers are certainly outlast's.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not _is_library(code.co_filename):
            return Site(code, frame.f_lasti)
        if code.co_name == "_call_item":  # of a fan-out; above it stands whoever runs the loop
            break
        frame = frame.f_back
    return _awaiting(scope) or scope.site


def raise_site(error: BaseException) -> Site | None:
    """Where an exception came from in the user's code, as deep as that goes."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_library(code.co_filename):
            found = Site(code, trace.tb_lasti)
        trace = trace.tb_next
    return found


@lru_cache(maxsize=1024)
def _is_library(file: str) -> bool:
    if file.startswith(_PACKAGE):  # first: it may be installed below the standard library
        return not file.startswith(_DEMO)
    if file.startswith(_STDLIB):
        return not file.startswith(_INSTALLED)
    return file.startswith("<frozen ")


def _awaiting(scope: "Scope") -> Site | None:
    """The line at which the function that a scope's task runs stands, if that is the user's.

    Asked from another thread, and the function may be running: its frame may be looked at, but to
    ask the coroutine what it awaits (`cr_await`) crashes the interpreter then.
    """
    frame: FrameType | None = getattr(scope.coro, "cr_frame", None)
    if frame is None or _is_library(frame.f_code.co_filename):
        return None
    return Site(frame.f_code, frame.f_lasti)


_LINES: dict[tuple[int, int], tuple[CodeType, int]] = {}
"""By the identity of a code object, whose hash takes longer than the rest; it is kept alive here,
so that the identity stays its own."""

_MOST_LINES = 10_000


def _line(code: CodeType, offset: int) -> int:
    known = _LINES.get((id(code), offset))
    if known is not None:
        return known[1]
    lines = (line for start, end, line in code.co_lines() if start <= offset < end)
    found = next(lines, None) or 0
    if len(_LINES) >= _MOST_LINES:  # a program that makes code all the time
        _LINES.clear()
    _LINES[id(code), offset] = (code, found)
    return found
