"""Noticing that a client library under a step had retried by itself.

Retry layers multiply: three attempts of a step over a client with two retries of its own are nine
requests. The traceback tells: the frames in which such a library counts are still in it.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import FrameType, MappingProxyType

from outlast.policy.faults.reading import chain, frames, get, integer, is_a, package

MAX_LEAVES = 8


def inner_retries(exc: BaseException) -> str:
    """Which client libraries under a step had retried by themselves, and how often.

    Args:
        exc: what the body of the step raised, with its traceback.

    Returns:
        Words for a person, such as `openai (2 retries of its own)`; empty if none was seen.
    """
    taken: dict[str, int] = {}
    for link in islice(_links(exc), 64):
        for library, retries in (*_by_frames(link), *_by_attributes(link)):
            taken[library] = max(taken.get(library, 0), retries)
    return ", ".join(
        f"{library} ({n} {'retry' if n == 1 else 'retries'} of its own)"
        for library, n in taken.items()
        if n > 0
    )


def _links(exc: BaseException) -> Iterator[BaseException]:
    for link in chain(exc):
        yield link
        context = get(link, "__context__")
        if is_a(context, BaseException):
            yield context
        inner = get(link, "exceptions") if is_a(link, BaseExceptionGroup) else ()
        for leaf in inner[:MAX_LEAVES] if isinstance(inner, tuple) else ():
            yield from chain(leaf)


def _by_frames(exc: BaseException) -> Iterator[tuple[str, int]]:
    for module, frame in frames(exc):
        found = _in_frame(module, frame, exc)
        if found:
            yield module.partition(".")[0], found


COUNTERS: Mapping[tuple[str, str], tuple[str, int]] = MappingProxyType(
    {
        ("backoff._sync", "retry"): ("tries", 1),
        ("backoff._async", "retry"): ("tries", 1),
        ("botocore.endpoint", "_send_request"): ("attempts", 1),
    }
)
"""By module and function: the local variable that counts, and where it starts."""


def _in_frame(module: str, frame: FrameType, exc: BaseException) -> int:
    """How many retries the frame of a library has counted."""
    function = frame.f_code.co_name
    if module.endswith("._base_client"):  # openai, anthropic, and others from the same generator
        return integer(frame.f_locals.get("retries_taken")) or 0
    if module.partition(".")[0] == "tenacity":
        state = frame.f_locals.get("retry_state")
        return (integer(get(state, "attempt_number")) or 1) - 1
    if module == "urllib3.connectionpool" and function == "urlopen":
        return _history(frame.f_locals.get("retries"))
    if (module, function) == ("google.genai._api_client", "_async_request_once"):
        # It tries a second time in the `except` block of the first, and counts nothing.
        return int(package(type(get(exc, "__context__"))) == "aiohttp")
    if (module, function) in COUNTERS:
        name, start = COUNTERS[module, function]
        return (integer(frame.f_locals.get(name)) or start) - start
    return 0


def _by_attributes(exc: BaseException) -> Iterator[tuple[str, int]]:
    """Where a library leaves its count with the error or its answer."""
    last = get(exc, "last_attempt")  # tenacity.RetryError
    yield "tenacity", (integer(get(last, "attempt_number")) or 1) - 1
    response = get(exc, "response")
    if isinstance(response, dict):
        metadata = response.get("ResponseMetadata")
        count = metadata.get("RetryAttempts") if isinstance(metadata, dict) else None
        yield "botocore", integer(count) or 0
    else:  # requests keeps the answer of urllib3 in `raw`
        yield "urllib3", _history(get(get(response, "raw"), "retries"))


def _history(retries: object) -> int:
    """Tries that failed, as urllib3 lists them beside redirections."""
    history = get(retries, "history")
    if not isinstance(history, tuple):
        return 0
    return sum(get(entry, "redirect_location") is None for entry in history[:1000])
