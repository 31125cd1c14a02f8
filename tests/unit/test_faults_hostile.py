"""An exception that misbehaves when it is looked at gets its class all the same, and quickly."""

import asyncio
from collections.abc import Iterator
from itertools import repeat

import pytest

from outlast.policy.faults import certainly_not_done, classify, http_status, inner_retries
from outlast.policy.faults.answers import MAX_BODY, MAX_TEXT, answer_of

NOW = 1_800_000_000.0


class Refuses(Exception):
    """Every attribute raises, also those of every exception."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Unreadable(Exception):
    """It has an answer that can be looked at, and nothing else."""

    status_code = 429

    @property
    def response(self) -> object:
        raise RuntimeError

    @property
    def headers(self) -> object:
        raise RuntimeError

    @property
    def body(self) -> object:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError


class Endless:
    """Headers that never end."""

    def items(self) -> Iterator[tuple[str, str]]:
        yield "retry-after", "2"
        yield from repeat(("x", "y"))


class Odd:
    """Headers that are not what headers are."""

    def items(self) -> Iterator[object]:
        yield from [("retry-after", 2), (None, b"\xff"), 5]


class Answered(Exception):
    def __init__(self, status: int, body: object, headers: object = None) -> None:
        self.status_code = status
        self.body = body
        self.headers = headers


class Unhashable(RuntimeError):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


def test_an_exception_whose_every_attribute_raises_is_an_unknown_one() -> None:
    fault = classify(Refuses(), NOW)
    assert (fault.kind, fault.counts) == ("terminal", True)
    assert not certainly_not_done(Refuses())
    assert http_status(Refuses()) is None
    assert inner_retries(Refuses()) == ""


def test_an_answer_that_cannot_be_read_is_judged_by_its_status() -> None:
    assert classify(Unreadable(), NOW).kind == "throttled"
    assert certainly_not_done(Unreadable())


def test_endless_and_odd_headers_do_no_harm() -> None:
    assert classify(Answered(429, None, Endless()), NOW).wait == 2.0
    for headers in (Odd(), 5, "retry-after: 2", [("a", "b")], {"retry-after": object()}):
        fault = classify(Answered(429, None, headers), NOW)
        assert (fault.kind, fault.wait) == ("throttled", None)


def test_of_a_body_of_50_mb_only_the_beginning_is_kept() -> None:
    large = b'{"error": {"code": "insufficient_quota", "more": "' + b"x" * 50_000_000
    for body in (large, large.decode()):
        exc = Answered(429, body)
        assert classify(exc, NOW).kind == "terminal"
        assert len(answer_of(exc).text) <= MAX_TEXT
    assert classify(Answered(500, {"error": {"message": "y" * 50_000_000}}), NOW).status == 500


def test_a_body_of_any_depth_and_width_is_looked_at_in_part() -> None:
    deep: object = {"code": "insufficient_quota"}
    for _ in range(100_000):
        deep = {"error": deep}
    assert classify(Answered(500, deep), NOW).kind == "transient"
    itself: list[object] = []
    itself.extend([itself] * 1000)
    assert classify(Answered(500, itself), NOW).kind == "transient"
    wide = {str(n): {"code": n} for n in range(100_000)}
    exc = Answered(500, wide)
    assert classify(exc, NOW).kind == "transient"
    assert answer_of(exc).nodes <= 1000
    assert classify(Answered(429, "[" * (MAX_BODY - 1)), NOW).kind == "throttled"


def test_a_loop_of_causes_comes_to_an_end() -> None:
    first, second = Unhashable(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert classify(first, NOW).kind == "terminal"
    assert not certainly_not_done(first)
    assert inner_retries(first) == ""


def test_a_cause_far_down_is_not_looked_for() -> None:
    exc: BaseException = ConnectionResetError()
    for _ in range(100_000):
        above = RuntimeError()
        above.__cause__ = exc
        exc = above
    assert classify(exc, NOW).kind == "terminal"
    while exc.__cause__ is not None:  # taken apart by hand: the interpreter would recurse
        exc, exc.__cause__ = exc.__cause__, None


@pytest.mark.parametrize("leaf", [ConnectionResetError(), asyncio.CancelledError()], ids=repr)
def test_large_and_deep_groups_come_to_an_end(leaf: BaseException) -> None:
    wide = BaseExceptionGroup("wide", [leaf] * 100_000)
    cancelled = isinstance(leaf, asyncio.CancelledError)
    assert classify(wide, NOW).kind == ("terminal" if cancelled else "transient")
    deep: BaseException = leaf
    for _ in range(500):
        deep = BaseExceptionGroup("deep", [deep])
    assert classify(deep, NOW).kind == ("terminal" if cancelled else "transient")
    assert not certainly_not_done(wide)
