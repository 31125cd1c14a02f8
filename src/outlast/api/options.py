"""What a decorator finds out about a function, and how it checks what it is given."""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outlast.errors import UsageError
from outlast.policy.breaker import MOST, Breaker
from outlast.policy.cost import Costs, CostSpec, cost_spec
from outlast.policy.retry import Retry


def name_of(fn: Callable[..., object], name: str | None) -> str:
    """`Class.method` or `function`. Where it was defined says nothing about what it is."""
    found = name or getattr(fn, "__qualname__", "").rpartition("<locals>.")[2]
    if not found:
        raise UsageError(f"{fn!r} has no name of its own; give one with name=")
    if "#" in found or not found.isprintable():
        raise UsageError(f"{found!r} cannot be a step's name: no '#' and no control characters")
    return str(found)


def module_of(fn: Callable[..., object]) -> str:
    """The module of a function; of a program that is run as it is, the name of its file."""
    module = getattr(inspect.unwrap(fn), "__module__", None) or ""
    if module != "__main__":
        return str(module)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return spec.name if spec is not None else Path(getattr(main, "__file__", "") or module).stem


def signature_of(fn: Callable[..., object]) -> inspect.Signature:
    """The signature of a function."""
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        raise UsageError(
            f"{fn!r} has no signature that can be read; wrap it in a function"
        ) from None


def receiver_of(fn: Callable[..., object], signature: inspect.Signature) -> frozenset[str]:
    """`self` or `cls` of a method: the object is rebuilt by the program, not recorded."""
    first = next(iter(signature.parameters), "")
    is_method = "." in getattr(fn, "__qualname__", "").rpartition("<locals>.")[2]
    return frozenset({first}) if is_method and first in ("self", "cls") else frozenset()


def is_async(fn: Callable[..., object]) -> bool:
    """Whether a function, or what it wraps, is asynchronous."""
    inner = inspect.unwrap(fn)
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = getattr(inner, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call)


def is_exception_class(cls: object) -> bool:
    """Whether something is a class of exceptions."""
    return isinstance(cls, type) and issubclass(cls, BaseException)


def check_options(retry: object, timeout: object, classify: object) -> None:
    """Refuse options that are not what they should be, before they are first needed."""
    if retry is not None and not isinstance(retry, Retry):
        raise UsageError(
            f"retry={retry!r}: an outlast.Retry is expected, such as Retry(attempts=3)"
        )
    if timeout is not None and not (
        isinstance(timeout, int | float)
        and not isinstance(timeout, bool)
        and 0 < timeout < float("inf")
    ):
        raise UsageError(f"timeout={timeout!r}: a finite number of seconds above 0 is expected")
    if classify is not None and not callable(classify):
        raise UsageError(
            f"classify={classify!r}: a function is expected that takes the exception and returns a "
            "fault class or None"
        )


def check_approval(approval: object) -> None:
    """Refuse what neither says whether a step needs leave nor is a plain function that does."""
    if isinstance(approval, bool) or (callable(approval) and not is_async(approval)):
        return
    raise UsageError(
        f"approval={approval!r}: True, or a plain function of the step's arguments is expected "
        "that returns True, False or the text of the question"
    )


def breaker_of(
    given: str | Breaker | bool | None, own: str, retry: Retry
) -> tuple[Breaker | None, bool]:
    """A step's breaker with its name filled in, and whether its settings were declared. One that
    nobody has set is not opened by the attempts of a single call before its last one.

    Args:
        own: the name that it has by default. Functions of the same name in two programs that use
            one store are two tools, so it is that of the function with its module.
    """
    failures = min(max(Breaker().failures, retry.attempts), MOST)
    if given is False:
        return None, False
    if isinstance(given, Breaker):
        return replace(given, name=given.name or own), True
    if given is None or given is True:
        return Breaker(name=own, failures=failures), False
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise UsageError(f"step {own}: breaker={given!r}: a name, a Breaker or False is expected")
    return Breaker(name=given, failures=failures), False


def cost_of(given: Costs, step: str) -> CostSpec:
    """What a step declares about its cost, checked."""
    try:
        return cost_spec(given)
    except ValueError as problem:
        raise UsageError(f"step {step}: {problem}") from None
