"""From an exception to its fault.

An exception is asked first, then what it says was its cause (`raise ... from`), and so on: the
first one that is known decides. A programming error is only believed if no cause is known: it may
be how a tool wraps something else. If nothing in the chain is known the fault is terminal, after
one attempt, and counts: a tool that is broken in a way of its own.

`certainly_not_done` answers another question: whether the outside world can have seen the call. It
is decided by the first exception in the chain that knows about the network or carries an answer;
what lies below that one was dealt with by somebody, perhaps by a second try elsewhere. It speaks
about the last request that was made; if a client library had tried before, it knows nothing.
"""

import ssl
from collections.abc import Iterator
from dataclasses import replace

from outlast.errors import BodyCancelled, NotDone, OutlastError, StepTimeout, Terminal, Transient
from outlast.policy.faults.answers import answer_of
from outlast.policy.faults.codes import ERRNO
from outlast.policy.faults.fault import Fault, Finding, Sent, terminal, transient
from outlast.policy.faults.http import by_http
from outlast.policy.faults.layers import inner_retries
from outlast.policy.faults.libraries import by_library
from outlast.policy.faults.reading import chain, classes, frames, get, integer, is_a
from outlast.policy.faults.rules import BUG, BUG_NAMES, LOST, SLOW, Rule, rule_for
from outlast.policy.faults.sayings import saying_of
from outlast.policy.faults.waits import longest, wait_in

MAX_LEAVES = 1000
"""How many exceptions of a group are looked at."""

HANDSHAKE = frozenset(
    {
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "TLSV1_UNRECOGNIZED_NAME",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
    }
)
"""Reasons of an `ssl.SSLError` that only a handshake has."""

NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST"})
"""As good as certainly a server that does not speak TLS, but a broken record looks the same, so it
leaves doubt (unless the client says that there was no connection)."""

CONNECTING = frozenset({("ssl", "do_handshake"), ("socket", "create_connection")})
"""Functions of the standard library in which nothing of a request has been sent yet."""

CANCELLED = frozenset({"CancelledError", "Cancelled"})
"""Of asyncio, and of trio."""


def classify(exc: BaseException, now: float) -> Fault:
    """The fault of an exception.

    Args:
        exc: what the body of a step raised.
        now: seconds since the epoch, by the wall clock; dates that an answer names are compared
            with it.
    """
    wrapper: Fault | None = None
    bug: Fault | None = None
    for link in chain(exc):
        if is_a(link, BaseExceptionGroup):
            return _classify_group(link, now)
        found = find(link, now)
        if found is not None and not found.wraps:
            return found.fault
        if found is not None:
            wrapper = wrapper or found.fault
        elif _is_bug(link):
            bug = bug or Fault("terminal", f"{BUG} ({type(link).__name__})")
            if wrapper is not None:  # a client takes its own mistakes for a bad connection
                return bug
    unknown = Fault("terminal", f"unknown error ({type(exc).__name__})", counts=True)
    return wrapper or bug or unknown


def certainly_not_done(exc: BaseException, declared: tuple[type[BaseException], ...] = ()) -> bool:
    """Whether it is known that the effect did not take place.

    Args:
        exc: what the body of a `once` step raised.
        declared: classes that the step's author listed in `not_done=`.
    """
    if issubclass(type(exc), (NotDone, *declared)):
        return True
    for link in chain(exc):
        if is_a(link, BaseExceptionGroup):
            return False  # other tasks of the group may have done it
        found = find(link, 0.0)
        if found is not None and found.sent != "ask":
            return found.sent in ("never", "refused") and not inner_retries(exc)
    return False


def find(exc: BaseException, now: float) -> Finding | None:
    """What this one exception says, its causes left aside; None if it is not known."""
    if not is_a(exc, Exception):
        word = "cancelled" if _is_cancellation(exc) else "interrupted"
        return terminal(f"{word} ({type(exc).__name__})", sent="ask")
    if is_a(exc, OutlastError):
        return _own(exc, now)
    if is_a(exc, ssl.SSLCertVerificationError):
        return terminal("the certificate is not accepted", counts=True, sent="never")
    found = by_library(exc, now) or by_http(exc, now)
    if found is not None:
        return found
    rule = rule_for(classes(exc))
    if rule is not None:
        found = _by_rule(exc, rule, now)
    elif is_a(exc, ssl.SSLError):
        found = _tls(exc)
    elif is_a(exc, OSError) and (code := ERRNO.get(integer(get(exc, "errno")) or 0)):
        found = code.finding(type(exc).__name__)
    if found is not None and found.sent == "maybe" and is_a(exc, OSError) and _connecting(exc):
        return replace(found, sent="never")
    return found


def _connecting(exc: OSError) -> bool:
    """Whether it was raised while the connection was made."""
    return any((module, frame.f_code.co_name) in CONNECTING for module, frame in frames(exc))


def _own(exc: OutlastError, now: float) -> Finding:
    match exc:
        case Transient():
            wait = wait_in(get(exc, "retry_after"), now)
            found = transient("the tool says that it may be repeated", sent="ask", wait=wait)
            kind = found.fault.kind if wait is None else "throttled"
            return replace(found, fault=replace(found.fault, kind=kind))
        case StepTimeout():
            return transient(SLOW)
        case NotDone():  # why it was not done is told by its cause
            return replace(terminal("the tool says that it did not do it", sent="ask"), wraps=True)
        case Terminal():
            return terminal("the tool says that it is of no use to repeat it", sent="ask")
        case BodyCancelled():
            return terminal("cancelled")
        case _:
            return terminal(f"not the tool's doing ({type(exc).__name__})", sent="ask")


def _by_rule(exc: BaseException, rule: Rule, now: float) -> Finding:
    fault = Fault(rule.kind, rule.reason, counts=rule.counts)
    answer = answer_of(exc) if rule.speaks else None
    said = saying_of(frozenset(answer.codes), answer.text, waits=False) if answer else None
    if answer is not None and said is not None:
        fault = Fault(said.kind, said.reason, counts=said.kind == "transient")
    if fault.kind == "terminal":
        return Finding(fault, rule.sent)
    if any(_is_hopeless(inner) for inner in chain(exc)):
        return terminal("the TLS handshake failed", counts=True, sent=rule.sent)
    asked = [get(exc, "retry_after"), *(answer.waits if answer else ())]
    fault = replace(fault, wait=longest(wait_in(value, now) for value in asked))
    return Finding(fault, rule.sent, wraps=rule.sent == "ask" and said is None)


def _tls(exc: ssl.SSLError) -> Finding:
    sent: Sent = "never" if get(exc, "reason") in HANDSHAKE else "maybe"
    if _is_hopeless(exc):
        return terminal("the TLS handshake failed", counts=True, sent=sent)
    return transient(LOST, sent=sent)


def _is_hopeless(exc: BaseException) -> bool:
    """Whether TLS would fail the next time, too."""
    if is_a(exc, ssl.SSLCertVerificationError):
        return True
    return is_a(exc, ssl.SSLError) and get(exc, "reason") in HANDSHAKE | NO_TLS


def _is_bug(exc: BaseException) -> bool:
    return any(p == "builtins" and name in BUG_NAMES for p, name in classes(exc))


def _is_cancellation(exc: BaseException) -> bool:
    return not is_a(exc, Exception) and any(name in CANCELLED for _, name in classes(exc))


def _classify_group(group: BaseExceptionGroup[BaseException], now: float) -> Fault:
    """A group is terminal if one leaf is; else throttled if one is, with the longest wait."""
    faults = [classify(leaf, now) for leaf in _leaves(group)]
    if not faults:
        return Fault("terminal", "a group without an error that could be looked at")
    for fault in faults:
        if fault.kind == "terminal":
            return fault
    first = next((fault for fault in faults if fault.kind == "throttled"), faults[0])
    wait = longest(fault.wait for fault in faults)
    return replace(first, wait=wait, counts=any(fault.counts for fault in faults))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions in a group and its groups, but for cancellations: those are its own doing."""
    left: list[BaseException] = [group]
    for _ in range(MAX_LEAVES):
        if not left:
            return
        exc = left.pop()
        if not is_a(exc, BaseExceptionGroup):
            yield exc
            continue
        inner = get(exc, "exceptions")
        kept = [e for e in inner if not _is_cancellation(e)] if isinstance(inner, tuple) else []
        left.extend(reversed(kept[:MAX_LEAVES]))
