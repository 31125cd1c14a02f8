"""The journal and the report of a divergence name the file and the line of each call."""

import asyncio
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import events, step, workflow
from outlast.engine import sites as engine_sites
from tests.engine.tools import dying_at, journal


def line(mark: str) -> str:
    """This file and the line that ends with a mark."""
    text = Path(__file__).read_text().splitlines()
    (number,) = [n for n, line in enumerate(text, 1) if line.endswith(f"# {mark}")]
    return f"test_sites.py:{number}"


def sites(url: str) -> dict[str, str]:
    """The recorded site of each call, by key."""
    found: dict[str, str] = {}
    for row in journal(url):
        event = events.decode(row.kind, row.data)
        site = getattr(event, "site", None)
        if site and row.key is not None:
            found.setdefault(row.key, site)
    return found


@step
async def look(n: int) -> int:
    return n


@step
def plain(n: int) -> int:
    return n


class Desk:
    @step
    async def see(self, n: int) -> int:
        return n


def loudly(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any) -> Any:
        return await fn(*args)  # wrapper

    return wrapper


async def helper(n: int) -> int:
    return await look(n)  # helper


def test_a_call_is_noted_where_it_is_made(url: str) -> None:
    @workflow
    async def flow() -> None:
        later = look(0)  # made here
        await look(  # several lines
            1
        )
        await later
        await Desk().see(2)  # method
        await asyncio.gather(*(look(n) for n in (3, 4)))  # generator
        await asyncio.gather(helper(5), loudly(look)(6))
        await asyncio.wait_for(look(7), 60)  # wait_for
        list(map(plain, [8]))  # map
        await functools.partial(look, 9)()  # partial

    outlast.run(flow, run_id="r", store=url)
    assert sites(url) == {
        "look#0": line("made here"),
        "look#1": line("several lines"),
        "Desk.see#2": line("method"),
        "look#3": line("generator"),
        "look#4": line("generator"),
        "look#s2.0": line("helper"),
        "look#s3.0": line("wrapper"),
        "look#5": line("wait_for"),
        "plain#6": line("map"),
        "look#7": line("partial"),
    }


def test_a_call_in_a_thread_is_noted_where_it_is_waited_for(url: str) -> None:
    async def in_helper() -> None:
        await asyncio.to_thread(plain, 2)  # within a helper

    @workflow
    async def flow() -> None:
        await asyncio.to_thread(plain, 1)  # awaited
        await in_helper()  # calls the helper
        await asyncio.to_thread(lambda: plain(3))  # lambda
        await asyncio.gather(*(asyncio.to_thread(plain, n) for n in (4, 5)))  # gathered
        task = asyncio.create_task(in_helper())
        await task

    outlast.run(flow, run_id="r", store=url)
    assert sites(url) == {
        "plain#0": line("awaited"),
        "plain#1": line("calls the helper"),
        "plain#2": line("lambda"),
        "plain#s0.0": line("gathered"),
        "plain#s1.0": line("gathered"),
        "plain#s2.0": line("within a helper"),
    }


def test_timers_values_loops_and_plain_calls_are_noted_too(url: str) -> None:
    @workflow
    def flow() -> None:
        outlast.now()  # value
        outlast.sleep(0).result()  # timer
        plain(1)  # plain
        for turn in outlast.turns(n=0, max=3):  # loop
            turn.n += plain(2)  # in a turn

    outlast.run(flow, run_id="r", store=url)
    assert sites(url) == {
        "now#0": line("value"),
        "sleep#1": line("timer"),
        "plain#2": line("plain"),
        "turns#3": line("loop"),
        **{f"plain#3.t{turn}.0": line("in a turn") for turn in range(3)},
    }


def test_a_call_that_cannot_be_placed_is_made_all_the_same(url: str) -> None:
    import contextvars
    import threading

    @workflow
    def flow() -> None:
        here = contextvars.copy_context()
        thread = threading.Thread(target=here.run, args=(plain, 1))
        thread.start()
        thread.join()

    outlast.run(flow, run_id="r", store=url)
    assert sites(url) == {}
    assert [s.status for s in outlast.Client(url).run("r").steps] == ["completed"]


def test_what_is_installed_below_the_standard_library_is_not_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = f"{Path(asyncio.__file__).parents[1]}/site-packages"
    monkeypatch.setattr(engine_sites, "_PACKAGE", f"{installed}/outlast/")
    monkeypatch.setattr(engine_sites, "_DEMO", f"{installed}/outlast/demo/")
    is_library = engine_sites._is_library.__wrapped__
    assert is_library(f"{installed}/outlast/engine/calls.py")
    assert is_library(asyncio.tasks.__file__)
    assert not is_library(f"{installed}/outlast/demo/agent.py")
    assert not is_library(f"{installed}/office/desk.py")


def test_a_loop_is_named_with_its_line_however_long_it_has_run(url: str) -> None:
    changed = False

    @workflow(max_repeats=None)
    def flow() -> None:
        if changed:
            plain(0)  # instead of a loop
        for turn in outlast.turns(n=0, max=200):  # long loop
            turn.n += plain(2)

    with (
        dying_at(url, kind="step.started", key="plain#0.t150.0"),
        pytest.raises(outlast.StoreError),
    ):
        outlast.run(flow, run_id="r", store=url)
    changed = True
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="r", store=url)
    recorded, now = held.value.detail.splitlines()[1:]
    assert recorded == f"  recorded: turns#0 at {line('long loop')}"
    place = line("instead of a loop").removeprefix("test_sites.py")
    assert now == f"  now:      plain at {__file__}{place} with n=0"


def test_a_difference_in_what_is_not_shown_is_said(url: str) -> None:
    @step(secret=["key"])
    def call(key: str) -> None: ...

    key = "one"

    @workflow
    def flow() -> None:
        call(key)

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    key = "two"
    with pytest.raises(outlast.RunHeld, match="the difference is not in what is shown") as held:
        outlast.run(flow, run_id="r", store=url)
    assert not re.search("one|two", held.value.detail.replace("workflow", ""))


def test_the_commands_that_help_can_be_pasted(url: str) -> None:
    called = 1

    @workflow
    def flow() -> None:
        plain(called)

    with dying_at(url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="my run's", store=url)
    called = 2
    with pytest.raises(outlast.RunHeld) as held:
        outlast.run(flow, run_id="my run's", store=url)
    quoted = """'my run'"'"'s'"""
    assert f"outlast resume {quoted} --accept-from 'plain#0'\n" in held.value.fix
    assert f"outlast fork {quoted} --from 'plain#0'\n" in held.value.fix
    assert "outlast replay" in held.value.fix
    assert "outlast.patched" in held.value.fix
