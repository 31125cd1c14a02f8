"""Codes that say it all, as data: errno, SQLSTATE, SQLite, gRPC, JSON-RPC, signals."""

import errno
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from outlast.policy.faults.fault import Fault, FaultKind, Finding, Sent


@dataclass(frozen=True, slots=True)
class Code:
    """What a code means; see `Fault` and `Sent`."""

    kind: FaultKind
    meaning: str
    counts: bool
    sent: Sent = "maybe"

    def finding(self, name: str, wait: float | None = None) -> Finding:
        """It as a finding whose reason begins with the name of the code."""
        fault = Fault(self.kind, f"{name}, {self.meaning}", wait=wait, counts=self.counts)
        return Finding(fault, self.sent)


def _passes(meaning: str, sent: Sent = "maybe") -> Code:
    return Code("transient", meaning, True, sent)


def _mistake(meaning: str, sent: Sent = "maybe") -> Code:
    return Code("terminal", meaning, False, sent)


def _broken(meaning: str) -> Code:
    return Code("terminal", meaning, True)


def _numbers(names: str) -> list[int]:
    return [number for name in names.split() if (number := getattr(errno, name, None)) is not None]


ERRNO_ROWS = (
    ("ECONNREFUSED", _passes("no connection", "never")),
    ("ECONNRESET ECONNABORTED EPIPE ENETRESET ENOTCONN ESHUTDOWN", _passes("the connection broke")),
    ("ETIMEDOUT ETIME", _passes("no answer in time")),
    ("ENETDOWN ENETUNREACH EHOSTDOWN EHOSTUNREACH", _passes("the host cannot be reached")),
    ("EAGAIN EINTR EBUSY ETXTBSY EDEADLK ENOLCK ESTALE", _passes("it is busy")),
    (
        "EMFILE ENFILE ENOBUFS ENOMEM EADDRNOTAVAIL EADDRINUSE",
        _passes("the machine is short of it"),
    ),
    ("ENOSPC EDQUOT EFBIG", _mistake("there is no room on the disk")),
    ("EACCES EPERM EROFS", _mistake("it is not allowed")),
    (
        "ENOENT EEXIST ENOTDIR EISDIR ENOTEMPTY ENAMETOOLONG ELOOP EXDEV ENXIO ENODEV ENOEXEC "
        "E2BIG EINVAL EBADF ENOTSUP EOPNOTSUPP ESPIPE",
        _mistake("the call was wrong"),
    ),
)
ERRNO: Mapping[int, Code] = MappingProxyType(
    {number: code for names, code in reversed(ERRNO_ROWS) for number in _numbers(names)}
)
"""An `OSError` with another number, or none, is of an unknown class."""

SQLSTATE: Mapping[str, Code] = MappingProxyType(
    {
        "08": _passes("the connection failed"),
        "40": _passes("the transaction was rolled back"),
        "53": _passes("the server is short of something"),
        "55006": _passes("it is in use"),
        "55P03": _passes("it is locked"),
        "57014": _passes("the query was cancelled, or took too long"),
        "57P01": _passes("the server shuts down"),
        "57P02": _passes("the server crashed"),
        "57P03": _passes("the server starts up"),
        "57P05": _passes("the session was idle for too long"),
        "22": _mistake("the data does not fit"),
        "23": _mistake("a constraint is broken"),
        "28": _mistake("the login is refused"),
        "3D": _mistake("there is no such database"),
        "42": _mistake("the statement is wrong"),
        "58": _broken("the server's system failed"),
        "F0": _broken("the server's configuration is wrong"),
        "XX": _broken("the server found an error of its own"),
        "": _mistake("the statement was refused"),
    }
)
"""By the whole code, else by its first two letters, else the last row."""

SQLITE: Mapping[int, Code] = MappingProxyType(
    {
        5: _passes("the database is locked"),
        6: _passes("a table is locked"),
        15: _passes("the locks are contended"),
        10: _broken("reading or writing failed"),
        11: _broken("the database is damaged"),
        13: _broken("there is no room on the disk"),
        14: _broken("the database cannot be opened"),
        26: _broken("the file is no database"),
    }
)
"""By the low byte of the result code; any other is a wrong call."""

GRPC: Mapping[str, Code] = MappingProxyType(
    {
        "UNAVAILABLE": _passes("the server cannot be reached or is overloaded"),
        "DEADLINE_EXCEEDED": _passes("no answer in time"),
        "ABORTED": _passes("it collided with another call"),
        "INTERNAL": _passes("the server failed"),
        "UNKNOWN": _passes("the server failed"),
        "RESOURCE_EXHAUSTED": Code("throttled", "too many requests", False, "refused"),
        "INVALID_ARGUMENT": _mistake("the request is wrong", "refused"),
        "OUT_OF_RANGE": _mistake("the request is wrong", "refused"),
        "FAILED_PRECONDITION": _mistake("a precondition does not hold", "refused"),
        "NOT_FOUND": _mistake("it is not there", "refused"),
        "ALREADY_EXISTS": _mistake("it exists already"),
        "PERMISSION_DENIED": _mistake("it is not allowed", "refused"),
        "UNAUTHENTICATED": _mistake("the key is not accepted", "refused"),
        "UNIMPLEMENTED": _mistake("the server does not know how", "refused"),
        "CANCELLED": _mistake("cancelled"),
        "DATA_LOSS": _broken("data is lost"),
    }
)

JSON_RPC: Mapping[int, Code] = MappingProxyType(
    {
        -32700: _mistake("the message cannot be read", "refused"),
        -32600: _mistake("the request is wrong", "refused"),
        -32601: _mistake("the method is not known", "refused"),
        -32602: _mistake("the arguments are wrong", "refused"),
        -32603: _passes("the server failed"),
        -32000: _passes("the connection was closed"),
        -32001: _passes("no answer in time"),
        -32002: _mistake("it is not there", "refused"),
        -32020: _mistake("the headers do not fit the request", "refused"),
        -32021: _mistake("the client lacks something", "refused"),
        -32022: _mistake("the version of the protocol is not supported", "refused"),
        -32042: _mistake("somebody has to open a page first", "refused"),
    }
)
"""Of MCP. A positive code is taken for an HTTP status; any other: the tool failed, for good."""

KILLED = frozenset(
    getattr(signal, name)
    for name in "SIGHUP SIGINT SIGKILL SIGPIPE SIGQUIT SIGTERM".split()
    if hasattr(signal, name)
)
"""Signals that come from outside. A child process that one of them ended may do better the next
time; one that crashed by itself (SIGSEGV, SIGABRT) would crash again."""
