"""What workflow code waits for from outside: `outlast.wait_signal` and `outlast.ask`."""

import builtins
import json
import sys
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from outlast import codec
from outlast.engine.asking import QUESTION, SIGNAL, Wish, run_wait
from outlast.engine.scope import ATTEMPT, SCOPE, Scope
from outlast.engine.sites import call_site
from outlast.engine.waits import Pending
from outlast.errors import OutsideRun, UsageError
from outlast.mail import Approval

T = TypeVar("T")


@overload
def wait_signal(
    name: str, type: builtins.type[T], *, timeout: float | None = None
) -> Pending[T]: ...
@overload
def wait_signal(
    name: str, type: object = object, *, timeout: float | None = None
) -> Pending[object]: ...
def wait_signal(name: str, type: object = object, *, timeout: float | None = None) -> Pending[Any]:
    """Wait for a signal that somebody sends the run, as `outlast signal RUN NAME JSON` does.

    Use `await outlast.wait_signal("paid", Payment)`, or `.result()` in plain code. The run needs no
    process meanwhile. Signals of one name are delivered in the order of sending, each once, also
    those that came before the wait.

    Args:
        name: of the signal.
        type: what is expected; a signal that does not fit is refused, or, if it came before the
            wait, set aside. Any JSON value by default.
        timeout: seconds to wait; for ever by default.

    Raises:
        AskTimeout: none came in time.
        OutsideRun: not in workflow code.
        UsageError: the name is no printable text, the time-out no number of seconds, or no JSON can
            be read as the type.
    """
    scope = _workflow_scope("wait_signal")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"outlast.wait_signal({name!r}): a name of printable text is expected")
    _check_type("wait_signal", type)
    seconds = _seconds("wait_signal", timeout)
    wish = Wish(SIGNAL, name, type, digest=codec.digest(name), timeout=seconds)
    flow = run_wait(scope.run, scope.take(), wish, call_site(scope))
    return Pending(scope.run, scope, SIGNAL, flow)


@overload
def ask(
    prompt: str,
    type: builtins.type[T],
    *,
    timeout: float | None = None,
    details: object = None,
) -> Pending[T]: ...
@overload
def ask(
    prompt: str, type: object, *, timeout: float | None = None, details: object = None
) -> Pending[object]: ...
@overload
def ask(
    prompt: str, *, timeout: float | None = None, details: object = None
) -> Pending[Approval]: ...
def ask(
    prompt: str, type: object = Approval, *, timeout: float | None = None, details: object = None
) -> Pending[Any]:
    """Ask a person, who sees it with `outlast inbox` and answers it with `outlast answer`.

    Use `await outlast.ask("Refund 900 EUR?")`, or `.result()` in plain code. The run needs no
    process meanwhile. The answer is bound to this run and to what was shown: if the prompt, the
    details or the type change, an earlier answer does not count. One answer counts, later ones are
    refused.

    Args:
        prompt: the question.
        type: what is expected as an answer; an answer that does not fit is refused.
        timeout: seconds to wait; for ever by default.
        details: what is shown along with it, in full: text, or data of any kind that can be stored.

    Raises:
        AskTimeout: nobody answered in time.
        OutsideRun: not in workflow code.
        UsageError: the prompt is no text, the time-out no number of seconds, or no JSON can be read
            as the type.
        NotStorable: the details cannot be stored.
    """
    scope = _workflow_scope("ask")
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError(f"outlast.ask({prompt!r}): the text of a question is expected")
    _check_type("ask", type)
    seconds = _seconds("ask", timeout)
    said = "" if details is None else _shown(scope, details)
    digest = codec.digest((prompt, said, _name_of(type)))
    wish = Wish(QUESTION, "", type, digest, prompt, said, shown=digest, timeout=seconds)
    flow = run_wait(scope.run, scope.take(), wish, call_site(scope))
    return Pending(scope.run, scope, QUESTION, flow)


def _shown(scope: Scope, details: object) -> str:
    if isinstance(details, str):
        return details
    if isinstance(details, Mapping):
        details = dict(details)
    plain = codec.plain(scope.run.encode(details, "details of a question", object))
    return json.dumps(plain, ensure_ascii=False)


def _name_of(type: object) -> str:
    return type.__qualname__ if isinstance(type, builtins.type) else str(type)


def _check_type(call: str, expects: object) -> None:
    why = codec.no_form(expects)
    if why:
        raise UsageError(f"outlast.{call}: no JSON can be read as {_name_of(expects)}: {why}")


def _seconds(call: str, timeout: float | None) -> float | None:
    if timeout is None:
        return None
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 <= timeout <= sys.float_info.max:
        raise UsageError(f"outlast.{call}(timeout={timeout!r}): a number of seconds is expected")
    return float(timeout)


def _workflow_scope(call: str) -> Scope:
    scope = SCOPE.get()
    if scope is None:
        raise OutsideRun(f"outlast.{call}() was called outside a run")
    if ATTEMPT.get() is not None:
        raise OutsideRun(
            f"outlast.{call}() is for workflow code: what a step does is not repeated when the run "
            "goes on"
        )
    scope.run.check()
    return scope
