"""Large stored forms: compressed where it pays, readable otherwise, and never on a thread that
others wait for."""

import asyncio
import base64
import json
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlast
from outlast.codec import decode, encode, pack, plain, unpack
from outlast.codec.packing import LARGE
from outlast.worker.stores import get_store

LONG = "what a model has said, " * 20_000


@given(st.binary(max_size=40).map(lambda part: encode(part * 5000)))
def test_what_is_packed_reads_back_as_it_was(data: bytes) -> None:
    assert unpack(pack(data)) == data
    assert decode(pack(data)) == decode(data)
    assert plain(pack(data)) == plain(data)


def test_only_what_is_large_and_gains_is_compressed() -> None:
    small = encode("x" * (LARGE - 3))
    noise = encode(os.urandom(100_000))
    assert len(small) == LARGE - 1
    assert pack(small) is small
    assert pack(noise) is noise
    assert pack(small + b" ") != small + b" "
    assert len(pack(encode(LONG))) < len(LONG) // 20


def test_a_damaged_packed_value_is_unreadable() -> None:
    data = pack(encode(LONG))
    for at in range(0, len(data), 37):
        bent = bytearray(data)
        bent[at] ^= 1
        with pytest.raises(outlast.Unreadable):
            decode(bytes(bent))
        with pytest.raises(outlast.Unreadable):
            plain(bytes(bent))


@pytest.mark.parametrize("size", [-1, 0, 10, 10**6 - 1, 10**6 + 1, "1", None])
def test_a_packed_value_that_lies_about_its_size_is_unreadable(size: object) -> None:
    text = base64.b64encode(zlib.compress(b"0" * 10**6)).decode()
    with pytest.raises(outlast.Unreadable):
        decode(json.dumps({"$zlib": [size, text]}, separators=(",", ":")).encode())


def test_a_packed_value_within_another_is_no_value() -> None:
    inner = json.loads(pack(encode(LONG)))
    with pytest.raises(outlast.Unreadable, match="unknown tag"):
        decode(json.dumps([inner]).encode())


# ---- in a run


@outlast.step
async def large() -> str:
    return LONG


@outlast.step
async def small(number: int) -> int:
    return number


@outlast.workflow
async def takes_large() -> int:
    return len(await large())


class Gate:
    """Stands before the compression: nothing comes out until `open` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        self.threads: set[str] = set()
        self.came: Callable[[], object] = lambda: None
        compress = zlib.compress

        def wait(data: bytes, level: int) -> bytes:
            self.threads.add(threading.current_thread().name)
            assert not get_store(url).store._lock.locked()
            self.reached.set()
            self.came()
            assert self.open.wait(30), "nobody else got on meanwhile"
            return compress(data, level)

        monkeypatch.setattr(zlib, "compress", wait)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def test_others_commit_while_a_large_result_is_compressed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, url)

    @outlast.workflow
    async def others() -> int:
        while not gate.reached.is_set():
            await asyncio.sleep(0)
        total = sum([await small(number) for number in range(5)])
        gate.open.set()
        return total

    async def main() -> list[object]:
        return await asyncio.gather(
            outlast.execute(takes_large, store=url), outlast.execute(others, store=url)
        )

    assert asyncio.run(main()) == [len(LONG), 10]
    assert gate.threads.isdisjoint({"MainThread", "outlast-writer"})


def test_a_result_is_recorded_though_its_caller_is_cancelled_while_it_is_compressed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, url)
    sent = []

    @outlast.step(effect="once")
    async def send() -> str:
        sent.append(1)
        return LONG

    @outlast.workflow
    async def impatient() -> str:
        task = asyncio.create_task(send())
        loop = asyncio.get_running_loop()

        def came() -> None:
            loop.call_soon_threadsafe(task.cancel)
            loop.call_soon_threadsafe(gate.open.set)

        gate.came = came
        try:
            return await task
        except asyncio.CancelledError:
            return "cancelled"

    assert outlast.run(impatient, run_id="run", store=url) == "cancelled"
    (step,) = outlast.Client(url).run("run").steps
    assert step.status in ("completed", "abandoned")
    kinds = [event.kind for event in outlast.Client(url).journal("run")]
    assert "step.completed" in kinds
    assert "step.in_doubt" not in kinds
    assert sent == [1]


@outlast.step
def fifty_megabytes(kind: str) -> object:
    return "x" * 50_000_000 if kind == "text" else bytes(50_000_000)


@outlast.workflow
def takes_fifty(kind: str) -> int:
    value = fifty_megabytes(kind)
    assert isinstance(value, str | bytes)
    return len(value)


@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_results_of_fifty_megabytes_are_stored_and_take_little(
    url: str, kind: str, tmp_path: Path
) -> None:
    assert outlast.run(takes_fifty, kind, run_id="run", store=url) == 50_000_000
    stored = [len(event.data) for event in outlast.Client(url).journal("run")]
    assert max(stored) < 1_000_000


@outlast.workflow
def echoes(text: str) -> str:
    return text


def test_arguments_results_and_turn_state_are_compressed_too(url: str) -> None:
    @outlast.workflow
    def grows(text: str) -> str:
        for turn in outlast.turns(chat=text, max=4):
            turn.chat += "!"
            last = turn.chat
        return last

    assert outlast.run(grows, LONG, run_id="run", store=url) == LONG + "!!!!"
    assert outlast.run(grows, LONG, run_id="run", store=url) == LONG + "!!!!"
    assert max(len(e.data) for e in outlast.Client(url).journal("run")) < len(LONG) // 10


# ---- the limit


@pytest.mark.parametrize("limit", [0, -1, 512 * 1024 * 1024 + 1])
def test_a_limit_that_no_store_could_keep_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="max_value_bytes"):
        outlast.Settings(max_value_bytes=limit)


def test_the_limit_is_the_run_s_for_everything_that_is_stored(url: str) -> None:
    small_limit = outlast.Settings(max_value_bytes=1000)
    with pytest.raises(outlast.NotStorable, match=r"limit is 1,000 bytes.*max_value_bytes"):
        outlast.run(echoes, "x" * 1000, store=url, settings=small_limit)

    @outlast.workflow
    def returns(size: int) -> str:
        return "x" * size

    assert outlast.run(returns, 998, store=url, settings=small_limit) == "x" * 998
    with pytest.raises(outlast.RunFailed, match="1,001 bytes"):
        outlast.run(returns, 999, store=url, settings=small_limit)
    big = outlast.Settings(max_value_bytes=100 * 1024 * 1024)
    assert len(outlast.run(returns, 70_000_000, store=url, settings=big)) == 70_000_000


def test_the_largest_limit_is_one_that_sqlite_keeps() -> None:
    from outlast.engine.spec import LARGEST_VALUE

    with apsw.Connection(":memory:") as db:
        assert db.limit(apsw.SQLITE_LIMIT_LENGTH) > LARGEST_VALUE * 3 // 2
