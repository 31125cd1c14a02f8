"""Reading an answer that an exception carries: its codes, its messages, its headers."""

import json
import re
from dataclasses import dataclass, field

from outlast.policy.faults.reading import arguments, get, integer, pairs
from outlast.policy.faults.sayings import plain

MAX_BODY = 256 * 1024
"""Bytes up to which a body is parsed; of a longer one the beginning is searched as text."""

MAX_TEXT = 20_000
"""Letters of messages that are kept."""

MAX_NODES = 500
MAX_DEPTH = 8

CODES = frozenset(
    "code type status reason error_code errorcode __type provider_error_code provider_error_type "
    "error".split()
)
"""Fields that hold an error code, in small letters."""

MESSAGES = frozenset("message msg detail details title description error_description error".split())
"""Fields that hold words for a person."""

IN_TEXT = re.compile(r'"(?:code|type|status|reason)"\s*:\s*"([^"\\]{1,100})"', re.IGNORECASE)

PERMANENT_CODES = frozenset({400, 401, 402, 403, 404, 405, 410, 413, 414, 415, 422, 431, 451})
"""Statuses inside a body that are believed although the answer itself says 429 or 5xx."""


@dataclass(slots=True)
class Answer:
    """What was found. `inner` holds statuses that a body names; `waits` what it asks to wait."""

    codes: set[str] = field(default_factory=set)
    inner: set[int] = field(default_factory=set)
    waits: list[object] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    size: int = 0
    nodes: int = 0

    @property
    def text(self) -> str:
        """All its messages."""
        return "\n".join(self.texts)

    def code(self, value: object) -> None:
        """Note a code."""
        if isinstance(value, str) and len(value) <= 100:
            self.codes.add(plain(value))

    def status(self, value: object) -> None:
        """Note a status."""
        number = integer(value)
        if number in PERMANENT_CODES and number is not None:
            self.inner.add(number)

    def say(self, value: object) -> None:
        """Note a message."""
        if isinstance(value, str) and self.size < MAX_TEXT:
            self.texts.append(value[: MAX_TEXT - self.size])
            self.size += len(self.texts[-1])

    def walk(self, value: object, depth: int = 0, *, error: bool = True) -> None:
        """Note what is in a body that was parsed. `error`: whether the value describes the error,
        so that a number in it may be its status."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            return
        if isinstance(value, list | tuple):
            for item in value[:MAX_NODES]:
                self.walk(item, depth + 1, error=error)
        elif isinstance(value, dict):
            for key, item in pairs(value, MAX_NODES):
                self._field(key.lower() if isinstance(key, str) else "", item, depth, error)

    def _field(self, name: str, item: object, depth: int, error: bool) -> None:
        if name in CODES:
            self.code(item)
            if error:
                self.status(item)
        if name in MESSAGES:
            self.say(item)
        if name == "retrydelay":  # google.rpc.RetryInfo
            self.waits.append(item)
        if isinstance(item, dict | list):
            self.walk(item, depth + 1, error=name == "error")

    def parse(self, body: object) -> None:
        """Note what is in a body, parsed or not."""
        if isinstance(body, bytes | bytearray):
            parsed = _json(bytes(body)) if len(body) <= MAX_BODY else None
            text = bytes(body[:MAX_TEXT]).decode("utf-8", "replace")
        elif isinstance(body, str):
            parsed = _json(body) if len(body) <= MAX_BODY else None
            text = body[:MAX_TEXT]
        else:
            self.walk(body)
            return
        if isinstance(parsed, dict | list):
            self.walk(parsed)
            return
        self.say(text)
        for found in IN_TEXT.findall(text):
            self.code(found)


def _json(body: str | bytes) -> object:
    try:
        return json.loads(body)
    except Exception:  # also too deep, or not in the encoding it claims
        return None


def answer_of(exc: BaseException) -> Answer:
    """What the answer says that an exception carries. Nothing is read from a connection."""
    answer = Answer()
    for name in ("code", "type", "status", "error_code", "provider_error_code"):
        value = get(exc, name)
        if isinstance(value, str):
            answer.code(value)
    for name in ("body", "details", "error"):
        holder = get(exc, name)
        if isinstance(holder, dict | list | str | bytes):
            answer.parse(holder)
    response = get(exc, "response")
    if isinstance(response, dict):  # botocore
        answer.walk(response.get("Error"))
    elif response is not None:
        # The field that holds what has been read: the property would read on from the network.
        for name in ("_content", "_body"):
            body = get(response, name)
            if isinstance(body, bytes | bytearray | str):
                answer.parse(body)
    if not answer.size:  # the error's own words, but for the address in them
        for words in (get(exc, "message"), *arguments(exc)):
            if isinstance(words, str):
                answer.say(words[:MAX_TEXT].partition(" for url")[0])
    return answer


def headers_of(exc: BaseException) -> list[tuple[str, str]]:
    """The headers of the answer that an exception carries, names in small letters."""
    response = get(exc, "response")
    sources = [get(response, "headers"), get(exc, "headers"), get(exc, "hdrs")]
    if isinstance(response, dict):
        metadata = response.get("ResponseMetadata")
        sources = [metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None]
    found: list[tuple[str, str]] = []
    for source in sources:
        found.extend((_text(name).lower(), _text(value)) for name, value in pairs(source))
        if found:
            break
    return found


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value[:500].decode("latin-1")
    return value[:500] if isinstance(value, str) else ""
