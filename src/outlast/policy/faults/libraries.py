"""What exceptions say that carry a code of their own kind instead of an HTTP status."""

import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType

from outlast.policy.faults.codes import GRPC, JSON_RPC, KILLED, SQLITE, SQLSTATE, Code
from outlast.policy.faults.fault import Finding, terminal, transient
from outlast.policy.faults.http import by_status
from outlast.policy.faults.reading import arguments, call, classes, entries, get, integer
from outlast.policy.faults.sayings import saying_of
from outlast.policy.faults.waits import wait_asked


def by_library(exc: BaseException, now: float) -> Finding | None:
    """What the code of an exception says, if it is from a library that has such codes."""
    for package, name in classes(exc):
        reader = READERS.get(package) or (_json_rpc if name in ("McpError", "MCPError") else None)
        if reader is not None:
            return reader(exc, now)
    return None


def _grpc(exc: BaseException, now: float) -> Finding | None:
    name = get(call(exc, "code"), "name")
    code = GRPC.get(name) if isinstance(name, str) else None
    if code is None or not isinstance(name, str):
        return None
    details = call(exc, "details")
    said = _permanent(details)
    if said and code.kind != "terminal":
        return terminal(f"gRPC {name}, {said}", sent=code.sent)
    metadata = entries(call(exc, "trailing_metadata"))
    headers = [(str(key).lower(), str(value)[:500]) for key, value in metadata]
    wait = None if code.kind == "terminal" else wait_asked(headers, now)
    return code.finding(f"gRPC {name}", wait)


def _permanent(words: object) -> str:
    """Why it is of no use to try again, if the words of a server say so."""
    if not isinstance(words, str):
        return ""
    said = saying_of(frozenset(), words[:20_000], waits=False)
    return said.reason if said is not None and said.kind == "terminal" else ""


def _sqlstate(exc: BaseException, _now: float) -> Finding | None:
    state = get(exc, "sqlstate") or get(exc, "pgcode")
    if isinstance(state, str) and len(state) == 5:
        code = SQLSTATE.get(state) or SQLSTATE.get(state[:2]) or SQLSTATE[""]
        return code.finding(f"SQLSTATE {state}")
    if any(name == "OperationalError" for _, name in classes(exc)):
        said = next((s for arg in arguments(exc) if (s := _permanent(arg))), "")
        return terminal(f"no connection, {said}") if said else None
    return None


def _sqlite(exc: BaseException, _now: float) -> Finding | None:
    number = integer(get(exc, "sqlite_errorcode"))
    if number is None:
        number = integer(get(exc, "result"))
    code = None if number is None else SQLITE.get(number & 0xFF)
    if code is None or number is None:
        return None
    return code.finding(f"SQLite result {number & 0xFF}")


def _smtp(exc: BaseException, _now: float) -> Finding | None:
    codes = [integer(get(exc, "smtp_code"))]
    recipients = get(exc, "recipients")
    if isinstance(recipients, dict):
        answers = list(recipients.values())[:100]
        codes = [integer(a[0]) for a in answers if isinstance(a, tuple) and a]
    known = [code for code in codes if code is not None]
    if not known:
        return None
    worst = max(known)
    if 500 <= worst <= 599:
        return terminal(f"SMTP {worst}, the server refuses it", sent="refused")
    if 400 <= worst <= 499:
        return transient(f"SMTP {worst}, the server cannot take it now", sent="refused")
    return transient(f"SMTP {worst}, the answer cannot be read")


def _child(exc: BaseException, _now: float) -> Finding | None:
    status = integer(get(exc, "returncode"))
    if status is None:
        return None
    if status >= 0:
        return terminal(f"exit code {status}", counts=True)
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    if -status in KILLED:
        return transient(f"killed by {name}")
    return terminal(f"crashed with {name}", counts=True)


def _json_rpc(exc: BaseException, now: float) -> Finding | None:
    error = get(exc, "error")
    number = integer(get(error, "code"))
    if number is None:
        return None
    if 100 <= number <= 599:  # as older versions of MCP do for a time-out
        return by_status(exc, number, now)
    code = JSON_RPC.get(number) or Code("terminal", "the tool failed", True)
    said = _permanent(get(error, "message"))
    if said and code.kind != "terminal":
        return terminal(f"JSON-RPC {number}, {said}", sent=code.sent)
    return code.finding(f"JSON-RPC {number}")


READERS: Mapping[str, Callable[[BaseException, float], Finding | None]] = MappingProxyType(
    {
        "grpc": _grpc,
        "psycopg": _sqlstate,
        "psycopg2": _sqlstate,
        "asyncpg": _sqlstate,
        "sqlite3": _sqlite,
        "apsw": _sqlite,
        "smtplib": _smtp,
        "subprocess": _child,
    }
)
