"""Looking at foreign objects: nothing that they do gets out of here, and nothing is read that could
be long or could wait for a network."""

from collections.abc import Iterator
from itertools import islice
from types import FrameType, TracebackType
from typing import TypeGuard, TypeVar

Kind = TypeVar("Kind")

MAX_LINKS = 8
"""How many exceptions of one chain are looked at."""

MAX_FRAMES = 2000
"""How many frames of a traceback are looked at."""

VENDORED = frozenset({"_vendor", "vendored"})
"""Packages that hold copies of others."""

LEAVES_CONTEXT = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})
"""Libraries of which some versions raise `from None` what they translate."""


def get(holder: object, name: str) -> object:
    """An attribute; None if there is none or if reading it fails."""
    try:
        return getattr(holder, name, None)
    except Exception:  # a property may do anything
        return None


def call(holder: object, name: str) -> object:
    """What a method without arguments returns; None if there is none or if it fails."""
    method = get(holder, name)
    if not callable(method):
        return None
    try:
        return method()
    except Exception:
        return None


def is_a(value: object, kind: type[Kind]) -> TypeGuard[Kind]:
    """`isinstance`, but what the value itself says of its class is not asked for."""
    return issubclass(type(value), kind)


def integer(value: object) -> int | None:
    """A whole number (also of an `IntEnum`); None for anything else, truth values included."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def classes(exc: BaseException) -> list[tuple[str, str]]:
    """The package and name of each class of an exception, most special first."""
    return [(package(cls), cls.__name__) for cls in type(exc).__mro__]


def package(cls: type) -> str:
    """The top-level package that a class is from; for a copy inside another package, its own."""
    parts = str(cls.__module__).split(".")
    for place, part in enumerate(parts[:-1]):
        if part in VENDORED:
            return parts[place + 1]
    return parts[0]


def chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception and what it says was the cause, again and again."""
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen and len(seen) < MAX_LINKS:
        seen.add(id(link))
        yield link
        link = below(link)


def below(exc: BaseException) -> BaseException | None:
    """The explicit cause, or where libraries keep what went wrong below them. The implicit
    context tells nothing: it is whatever happened to be handled at that moment."""
    for name in ("__cause__", "reason", "original_error"):  # urllib, urllib3 · proxies of urllib3
        found = get(exc, name)
        if is_a(found, BaseException):
            return found
    packages = {package for package, _ in classes(exc)}
    inner: object = None
    if "botocore" in packages:  # asked first: its errors derive from those of requests, too
        kwargs = get(exc, "kwargs")
        inner = kwargs.get("error") if isinstance(kwargs, dict) else None
    elif packages & {"requests", "urllib3"}:
        inner = next((a for a in arguments(exc) if is_a(a, BaseException)), None)
    elif packages & LEAVES_CONTEXT:
        inner = get(exc, "__context__")
    return inner if is_a(inner, BaseException) else None


def frames(exc: BaseException) -> Iterator[tuple[str, FrameType]]:
    """The frames that an exception went through, each with the name of its module."""
    trace = get(exc, "__traceback__")
    for _ in range(MAX_FRAMES):
        if not isinstance(trace, TracebackType):
            return
        module = trace.tb_frame.f_globals.get("__name__")
        if isinstance(module, str):
            yield module, trace.tb_frame
        trace = trace.tb_next


def arguments(exc: BaseException) -> tuple[object, ...]:
    """The first few arguments that an exception was made with."""
    args = get(exc, "args")
    return args[:8] if isinstance(args, tuple) else ()


def pairs(mapping: object, most: int = 200) -> list[tuple[object, object]]:
    """The entries of anything like a dictionary; empty if it is none."""
    return entries(call(mapping, "items"), most)


def entries(iterable: object, most: int = 200) -> list[tuple[object, object]]:
    """The pairs that anything yields; empty if it does not."""
    try:
        return [(key, value) for key, value in islice(iter(iterable), most)]  # type: ignore[call-overload]
    except Exception:
        return []
