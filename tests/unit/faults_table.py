"""The tables in docs/faults.md: how each kind of error is classified, found by trying it out.

`python -m tests.unit.faults_table` writes them into the page; a test fails if the page differs.
"""

import asyncio
import errno
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from outlast import errors
from outlast.policy.faults import Fault, certainly_not_done, classify
from outlast.policy.faults.codes import ERRNO_ROWS, GRPC, JSON_RPC, KILLED, SQLITE, SQLSTATE, Code
from outlast.policy.faults.http import BUSY, STATUSES
from outlast.policy.faults.rules import BUGS, RULES, Rule
from outlast.policy.faults.sayings import SAYINGS
from tests.unit.test_faults_waits import NOW, WAITS

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of the table -->\n)", re.DOTALL)


class Answered(Exception):
    """Any client's error for an HTTP status."""

    def __init__(self, status: int, body: object = None, **headers: str) -> None:
        super().__init__()
        self.status_code = status
        self.body = body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def cells(*texts: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |\n"


def head(*titles: str) -> str:
    """The head of a table."""
    return cells(*titles) + "|" + "---|" * len(titles) + "\n"


def code(words: str | Iterable[str]) -> str:
    """Names, as code."""
    listed = words.split() if isinstance(words, str) else words
    return ", ".join(f"`{word}`" for word in listed)


def verdict(exc: BaseException) -> tuple[str, str, str]:
    """The last columns of most tables: class, breaker, what a `once` step takes it for."""
    fault = classify(exc, NOW)
    return fault.kind, counted(fault), "not done" if certainly_not_done(exc) else "in doubt"


def counted(fault: Fault) -> str:
    """Whether the breaker counts it."""
    return "counts" if fault.counts else "–"


VERDICT = ("class", "breaker", "`once` step")


def statuses() -> Iterator[str]:
    """HTTP by status alone."""
    yield head("status", "meaning", *VERDICT)
    for status, (_, meaning) in STATUSES.items():
        yield cells(f"`{status}`", meaning, *verdict(Answered(status)))
        if status in BUSY:
            yield cells(
                f"`{status}` with a wait", meaning, *verdict(Answered(status, retry_after="2"))
            )
    yield cells("any other 4xx", "the request is wrong", *verdict(Answered(418)))
    yield cells("any other 5xx", "the server failed", *verdict(Answered(599)))
    yield cells("3xx", "a redirection that was not followed", *verdict(Answered(302)))
    yield cells("2xx", "but the answer is of no use", *verdict(Answered(200)))
    limited = Answered(403, x_ratelimit_remaining="0")
    yield cells("`403` with `x-ratelimit-remaining: 0`", "too many requests", *verdict(limited))


def sayings() -> Iterator[str]:
    """HTTP by what the body says."""
    yield head("reason", "error codes", "phrases", "with 400", "with 429", "with 500")
    for saying in SAYINGS:
        kinds = [
            classify(Answered(status, {"code": saying.codes[0]}), NOW).kind
            for status in (400, 429, 500)
        ]
        phrases = ", ".join(f"`/{phrase}/`" for phrase in saying.phrases)
        yield cells(saying.reason, code(saying.codes), phrases, *kinds)


def waits() -> Iterator[str]:
    """Forms of `Retry-After`."""
    yield head("`Retry-After`", "seconds")
    for value, _ in WAITS:
        if len(value) > 100:
            continue
        wait = classify(Answered(429, retry_after=value), NOW).wait
        yield cells(
            f"`{value}`" if value.strip() else "empty", "absent" if wait is None else f"{wait:g}"
        )


def example(rule: Rule) -> Exception:
    """An exception that a row is about, as if its library had been imported."""
    package = "any" if rule.packages == "*" else rule.packages.split()[0]
    cls = type(rule.names.split()[0], (Exception,), {"__module__": package})
    made: Exception = cls()
    return made


def libraries() -> Iterator[str]:
    """Classes of libraries."""
    yield head("package", "classes", "reason", *VERDICT)
    for rule in RULES:
        kind, counts, once = verdict(example(rule))
        if rule.sent == "ask":
            kind, once = f"as its cause, else {kind}", "as its cause says"
        packages = "any" if rule.packages == "*" else code(rule.packages)
        yield cells(packages, code(rule.names), rule.reason, kind, counts, once)


def numbers() -> Iterator[str]:
    """`OSError` by errno."""
    yield head("errno", "meaning", *VERDICT)
    for names, meant in ERRNO_ROWS:
        exc = OSError(getattr(errno, names.split()[0]), "")
        yield cells(code(names), meant.meaning, *verdict(exc))


def by_code(
    title: str, rows: Iterable[tuple[str, Code]], make: Callable[[str], object]
) -> Iterator[str]:
    """Codes of one library."""
    yield head(title, "meaning", *VERDICT)
    for name, meant in rows:
        exc = make(name)
        assert isinstance(exc, Exception)
        yield cells(f"`{name}`" if name else "any other", meant.meaning, *verdict(exc))


def of_library(package: str, name: str, **attributes: object) -> Exception:
    """An exception of a library with these attributes."""
    made: Exception = type(name, (Exception,), {"__module__": package, **attributes})()
    return made


def grpc() -> Iterator[str]:
    """gRPC by status code."""

    def make(name: str) -> Exception:
        status = type("StatusCode", (), {"name": name})()
        return of_library("grpc", "RpcError", code=lambda _self: status)

    yield from by_code("gRPC", GRPC.items(), make)


def sqlstate() -> Iterator[str]:
    """PostgreSQL by SQLSTATE."""

    def make(name: str) -> Exception:
        return of_library("psycopg", "DatabaseError", sqlstate=(name or "0A").ljust(5, "0"))

    yield from by_code("SQLSTATE", SQLSTATE.items(), make)


def sqlite() -> Iterator[str]:
    """SQLite by result code."""

    def make(name: str) -> Exception:
        return of_library("sqlite3", "Error", sqlite_errorcode=int(name or 1))

    rows = [(str(number), meant) for number, meant in SQLITE.items()]
    other = Code("terminal", "the call was wrong", False)
    yield from by_code("SQLite result", [*rows, ("", other)], make)


def jsonrpc() -> Iterator[str]:
    """MCP by JSON-RPC code."""

    def make(name: str) -> Exception:
        error = type("ErrorData", (), {"code": int(name or -1), "message": ""})()
        return of_library("mcp", "MCPError", error=error)

    rows = [(str(number), meant) for number, meant in JSON_RPC.items()]
    other = Code("terminal", "the tool failed", True)
    yield from by_code("JSON-RPC", [*rows, ("", other)], make)


def rest() -> Iterator[str]:
    """What else there is, by an example each."""
    yield head("what was raised", *VERDICT)
    mail = of_library("smtplib", "SMTPDataError", smtp_code=451)
    refused = of_library("smtplib", "SMTPDataError", smtp_code=550)
    killed = code(sorted(signal.Signals(number).name for number in KILLED))
    rows: list[tuple[str, BaseException]] = [
        ("an answer 4xx by SMTP", mail),
        ("an answer 5xx by SMTP", refused),
        ("a child process that failed, by its exit code", subprocess.CalledProcessError(2, "a")),
        (f"a child process that was killed ({killed})", subprocess.CalledProcessError(-9, "a")),
        ("a child process that crashed", subprocess.CalledProcessError(-signal.SIGSEGV, "a")),
        (f"programming errors: {code(BUGS)}", TypeError()),
        ("a cancellation", asyncio.CancelledError()),
        ("`KeyboardInterrupt`, `SystemExit`", KeyboardInterrupt()),
        ("`outlast.Transient`", errors.Transient("later")),
        ("`outlast.Transient(retry_after=5)`", errors.Transient("later", retry_after=5)),
        ("`outlast.Terminal`", errors.Terminal("no")),
        ("`outlast.NotDone` without a cause that is known", errors.NotDone("no")),
        ("`outlast.StepTimeout`", errors.StepTimeout("slow")),
        ("`outlast.BreakerOpen`", errors.BreakerOpen("mail", 0.0, "HTTP 500")),
        ("any other error of outlast, such as `StoreError`", errors.StoreError("full")),
        ("`RuntimeError`, `Exception`, any class that is in no table", RuntimeError()),
    ]
    for name, exc in rows:
        yield cells(name, *verdict(exc))


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "statuses": statuses,
    "sayings": sayings,
    "waits": waits,
    "libraries": libraries,
    "numbers": numbers,
    "grpc": grpc,
    "sqlstate": sqlstate,
    "sqlite": sqlite,
    "jsonrpc": jsonrpc,
    "rest": rest,
}


def page() -> str:
    """The page with its tables as they should be."""

    def table(block: re.Match[str]) -> str:
        return f"{block[1]}\n{''.join(TABLES[block[2]]())}\n{block[3]}"

    return BLOCK.sub(table, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
