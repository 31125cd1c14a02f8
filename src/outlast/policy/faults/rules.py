"""Exception classes by package and name, as data, so that no library need be imported to know its
errors. The class of an exception decides, or the nearest base class that has a row."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from outlast.policy.faults.fault import FaultKind, Sent


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    Attributes:
        packages: top-level packages that the classes are from; `*` for any.
        names: the classes.
        kind: the fault class.
        reason: for a person.
        sent: what became of the request; with `ask` the class only wraps an exception from below,
            which decides if it is known.
        counts: whether the breaker counts it.
        speaks: an answer without a status may be with it, whose words decide.
    """

    packages: str
    names: str
    kind: FaultKind
    reason: str
    sent: Sent = "maybe"
    counts: bool = True
    speaks: bool = False


NO_CONNECTION = "no connection"
LOST = "the connection was lost"
SLOW = "no answer in time"
GARBLED = "the answer cannot be read"
MISTAKE = "the call was wrong"
BUG = "programming error"

RULES = (
    # builtins and the standard library
    Rule("builtins", "ConnectionRefusedError", "transient", NO_CONNECTION, "never"),
    Rule("socket", "gaierror herror", "transient", "the name of the host is not known", "never"),
    Rule("builtins", "ConnectionError", "transient", LOST),
    Rule("builtins", "TimeoutError", "transient", SLOW),
    Rule("asyncio", "IncompleteReadError", "transient", LOST),
    Rule("ssl", "SSLEOFError SSLZeroReturnError SSLSyscallError", "transient", LOST),
    Rule("ssl", "SSLWantReadError SSLWantWriteError", "transient", SLOW),
    Rule("http", "IncompleteRead BadStatusLine LineTooLong", "transient", GARBLED),
    Rule("http", "HTTPException", "terminal", MISTAKE, counts=False),
    Rule("urllib", "ContentTooShortError", "transient", LOST),
    Rule("json", "JSONDecodeError", "terminal", "it is not JSON"),
    Rule("concurrent", "CancelledError", "terminal", "cancelled", counts=False),
    # httpx, and what it is made of
    Rule("httpx httpx2 httpcore httpcore2", "ConnectError", "transient", NO_CONNECTION, "never"),
    Rule(
        "httpx httpx2 httpcore httpcore2", "ConnectTimeout PoolTimeout", "transient", SLOW, "never"
    ),
    Rule("httpx httpx2 httpcore httpcore2", "TimeoutException", "transient", SLOW),
    Rule("httpx httpx2 httpcore httpcore2", "NetworkError RemoteProtocolError", "transient", LOST),
    Rule("httpx httpx2 httpcore httpcore2", "ProxyError", "transient", "the proxy failed"),
    Rule("httpx httpx2", "DecodingError", "terminal", GARBLED),
    Rule(
        "httpx httpx2 httpcore httpcore2",
        "UnsupportedProtocol LocalProtocolError TooManyRedirects InvalidURL CookieConflict "
        "StreamError",
        "terminal",
        MISTAKE,
        counts=False,
    ),
    # requests and urllib3
    Rule("requests", "ConnectTimeout", "transient", SLOW, "never"),
    Rule("requests", "Timeout", "transient", SLOW),
    Rule("requests", "ConnectionError", "transient", LOST, "ask"),
    Rule("requests", "ChunkedEncodingError", "transient", LOST),
    Rule("requests", "RetryError", "transient", "it failed again and again", "ask"),
    Rule("requests", "ContentDecodingError", "terminal", GARBLED),
    Rule("requests", "JSONDecodeError", "terminal", "it is not JSON"),
    Rule("requests", "RequestException", "terminal", MISTAKE, counts=False),
    Rule("urllib3", "NewConnectionError", "transient", NO_CONNECTION, "never"),
    Rule("urllib3", "ConnectTimeoutError EmptyPoolError", "transient", SLOW, "never"),
    Rule("urllib3", "ReadTimeoutError TimeoutError", "transient", SLOW),
    Rule("urllib3", "MaxRetryError ProtocolError SSLError ProxyError", "transient", LOST, "ask"),
    Rule("urllib3", "ResponseError", "transient", "it failed again and again"),
    Rule("urllib3", "IncompleteRead InvalidChunkLength", "transient", LOST),
    Rule("urllib3", "DecodeError", "terminal", GARBLED),
    Rule("urllib3", "HTTPError", "terminal", MISTAKE, counts=False),
    # aiohttp
    Rule(
        "aiohttp", "ServerFingerprintMismatch", "terminal", "the certificate is not the right one"
    ),
    Rule("aiohttp", "ConnectionTimeoutError", "transient", SLOW, "never"),
    Rule("aiohttp", "ServerTimeoutError", "transient", SLOW),
    Rule("aiohttp", "ClientConnectorError", "transient", NO_CONNECTION, "never"),
    Rule("aiohttp", "ClientConnectionError ClientPayloadError", "transient", LOST),
    Rule("aiohttp", "HttpProcessingError ClientResponseError", "transient", GARBLED),
    Rule(
        "aiohttp",
        "InvalidURL NonHttpUrlClientError RedirectClientError",
        "terminal",
        MISTAKE,
        counts=False,
    ),
    # Model clients. Those of other providers are made by the same generator.
    Rule("*", "APIConnectionError", "transient", NO_CONNECTION, "ask"),
    Rule("*", "APITimeoutError", "transient", SLOW, "ask"),
    Rule("anthropic", "RetryableError", "transient", "the client says that it may be repeated"),
    Rule("openai", "WebSocketConnectionClosedError", "transient", LOST),
    Rule("openai anthropic", "APIError", "transient", "the answer broke off", speaks=True),
    Rule("openai anthropic", "OpenAIError AnthropicError", "terminal", MISTAKE, counts=False),
    Rule("pydantic_ai", "ModelRateLimitError", "throttled", "too many requests", counts=False),
    Rule(
        "pydantic_ai",
        "ModelRequestRejectedError ModelQuotaExceededError",
        "terminal",
        "the model refuses the request",
        counts=False,
    ),
    Rule("pydantic_ai", "ModelAPIError", "transient", "the model failed", "ask", speaks=True),
    Rule("pydantic_ai", "RunTimedOut", "transient", SLOW),
    Rule("pydantic_ai", "RunCancelled", "terminal", "cancelled", counts=False),
    Rule("pydantic_ai", "UserError UsageLimitExceeded", "terminal", MISTAKE, counts=False),
    # botocore
    Rule("botocore", "EndpointConnectionError", "transient", NO_CONNECTION, "never"),
    Rule("botocore", "ConnectTimeoutError", "transient", SLOW, "never"),
    Rule("botocore", "ReadTimeoutError", "transient", SLOW),
    Rule("botocore", "HTTPClientError ConnectionError", "transient", LOST, "ask"),
    Rule("botocore", "IncompleteReadError", "transient", LOST),
    Rule("botocore", "ResponseParserError", "transient", GARBLED),
    Rule("botocore", "BotoCoreError", "terminal", MISTAKE, counts=False),
    # databases and mail, beside their codes
    Rule("psycopg psycopg2", "OperationalError", "transient", LOST),
    Rule("psycopg psycopg2", "Error", "terminal", MISTAKE, counts=False),
    Rule("sqlite3 apsw", "Error", "terminal", MISTAKE, counts=False),
    Rule("redis", "AuthenticationError AuthorizationError", "terminal", MISTAKE, counts=False),
    Rule("redis", "ConnectionError BusyLoadingError", "transient", LOST),
    Rule("redis", "TimeoutError", "transient", SLOW),
    Rule("smtplib", "SMTPServerDisconnected", "transient", LOST),
    Rule("smtplib", "SMTPNotSupportedError", "terminal", "the server cannot do it", counts=False),
    # child processes
    Rule("subprocess", "TimeoutExpired", "transient", "the child process took too long"),
)

BUGS = (
    "TypeError ValueError LookupError AttributeError AssertionError ImportError NameError "
    "NotImplementedError RecursionError SyntaxError ArithmeticError BufferError ReferenceError "
    "StopIteration StopAsyncIteration MemoryError SystemError Warning"
)
"""Builtin classes that mean a programming error, with what derives from them."""

BUG_NAMES = frozenset(BUGS.split())

INDEX: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        (package, name): rule
        for rule in RULES
        for package in rule.packages.split()
        for name in rule.names.split()
    }
)


def rule_for(classes: list[tuple[str, str]]) -> Rule | None:
    """The row for an exception with these classes, most special first."""
    for package, name in classes:
        rule = INDEX.get((package, name)) or INDEX.get(("*", name))
        if rule is not None:
            return rule
    return None
