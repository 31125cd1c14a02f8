"""Before a deploy, journals are held against the new code: nothing runs, nothing is written."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import step, workflow
from outlast.cli.jsonout import event_json
from outlast.testing import Misfit, Replayed, replay
from outlast.worker.stores import get_store
from tests.engine.tools import PATIENT, dying_at, journal, url_of

RAN: list[str] = []
"""What the bodies of the steps below did."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    made = url_of(tmp_path / "store.db")
    yield made
    get_store(made).store.close()


@step
def plain(n: int) -> int:
    RAN.append(f"plain {n}")
    return n


@step
async def work(n: int) -> int:
    RAN.append(f"work {n}")
    return n


@step
async def hang() -> None:
    RAN.append("hang")
    await asyncio.Event().wait()


@step(effect="once")
async def pay(n: int) -> int:
    RAN.append(f"pay {n}")
    if n < 0:
        raise ConnectionResetError("the bank hung up")
    return n


def record(flow: Any, url: str, until: str | None = None, run_id: str = "r") -> None:
    """Run a workflow. `until` is the key of the attempt at whose opening its process dies."""
    if until is None:
        outlast.run(flow, run_id=run_id, store=url)
        return
    with dying_at(url, kind="step.started", key=until) as died, pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id=run_id, store=url, settings=PATIENT)
    assert died()


def replayed(flow: Any, url: str, run_id: str = "r", **options: Any) -> Replayed:
    """Replay a run, and see that nothing was executed and nothing was written."""
    ran, before = list(RAN), journal(url, run_id)
    try:
        return replay(run_id, flow, store=url, **options)
    finally:
        assert ran == RAN
        assert journal(url, run_id) == before


def misfit(flow: Any, url: str, run_id: str = "r", **options: Any) -> Misfit:
    with pytest.raises(Misfit) as raised:
        replayed(flow, url, run_id, **options)
    assert raised.value.run_id == run_id
    return raised.value


# ---- scripts: what a workflow calls, in both colours

Script = tuple[tuple[str, int], ...]

ORIGINAL: Script = (("look", 1), ("think", 2), ("now", 0), ("act", 3), ("tell", 4))
CUT = "act#3"


def _stepped(name: str, colour: str) -> Any:
    async def slow(n: int) -> int:
        RAN.append(f"{name} {n}")
        return n

    def quick(n: int) -> int:
        RAN.append(f"{name} {n}")
        return n

    body: Callable[[int], Any] = slow if colour == "async" else quick
    return step(body, name=name)


def desk(script: Script, colour: str) -> Any:
    """A workflow that makes the calls of a script."""

    def call(name: str, n: int) -> Any:
        match name:
            case "now":
                return outlast.now()
            case "raise":
                raise ValueError("new code")
            case "sleep":
                return outlast.sleep(n)
            case _:
                return _stepped(name, colour)(n)

    async def slow() -> str:
        for name, n in script:
            made = call(name, n)
            if hasattr(made, "__await__"):
                await made
        return "done"

    def quick() -> str:
        for name, n in script:
            made = call(name, n)
            if name == "sleep":
                made.result()
        return "done"

    return workflow(name="desk")(slow if colour == "async" else quick)


COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


@COLOURS
@pytest.mark.parametrize(
    "script",
    [
        ORIGINAL,
        ORIGINAL[:4],
        (*ORIGINAL, ("tell", 5)),
        (*ORIGINAL[:4], ("sleep", 60), ("raise", 0)),
    ],
    ids=["unchanged", "shorter past the record", "longer", "changed past the record"],
)
def test_what_changed_past_the_record_alone_fits(script: Script, colour: str, url: str) -> None:
    record(desk(ORIGINAL, colour), url, CUT)
    told = replayed(desk(script, colour), url)
    assert (told.run_id, told.workflow, told.calls, told.recorded) == ("r", "desk", 3, 3)


CHANGES: list[tuple[str, Script, list[str]]] = [
    ("inserted", (("look", 1), ("tell", 9), ("think", 2), ("act", 3)), ["think#1", "tell"]),
    ("deleted", (("look", 1), ("act", 3), ("tell", 4)), ["think#1", "act"]),
    ("swapped", (("think", 2), ("look", 1), ("act", 3)), ["look#0", "think"]),
    ("renamed", (("look", 1), ("ponder", 2), ("now", 0), ("act", 3)), ["think#1", "ponder"]),
    ("arguments", (("look", 1), ("think", 20), ("act", 3)), ["think#1", "20"]),
    ("another kind", (("look", 1), ("sleep", 60), ("act", 3)), ["think#1", "sleep"]),
    ("a step instead of a time", (("look", 1), ("think", 2), ("act", 3)), ["now#2", "act"]),
    ("returns early", (("look", 1),), ["without asking for 2 recorded calls", "think#1"]),
    ("raises", (("look", 1), ("raise", 0)), ["without asking for 2 recorded calls", "think#1"]),
]


@COLOURS
@pytest.mark.parametrize(("script", "said"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_within_the_record_is_a_misfit_with_both_sides(
    script: Script, said: list[str], colour: str, url: str
) -> None:
    record(desk(ORIGINAL, colour), url, CUT)
    told = misfit(desk(script, colour), url)
    assert told.reason == "diverged"
    for part in said:
        assert part in told.detail
    assert "outlast resume r" in told.fix
    for part in ("r", "desk", "diverged", told.detail, told.fix):
        assert part in str(told)


@COLOURS
def test_a_run_that_would_fail_at_once_with_the_new_code_is_a_misfit(colour: str, url: str) -> None:
    record(desk(ORIGINAL, colour), url, CUT)
    told = misfit(desk((*ORIGINAL[:3], ("raise", 0)), colour), url)
    assert told.reason == "raised"
    assert "ValueError: new code" in told.detail


@COLOURS
def test_a_run_that_is_held_since_it_diverged_may_fit_now(colour: str, url: str) -> None:
    record(desk(ORIGINAL, colour), url, CUT)
    with pytest.raises(outlast.RunHeld):
        outlast.run(desk(CHANGES[0][1], colour), run_id="r", store=url)
    misfit(desk(CHANGES[0][1], colour), url)
    assert replayed(desk(ORIGINAL, colour), url).calls == 3


def test_a_signature_that_takes_other_arguments_is_a_misfit(url: str) -> None:
    @workflow(name="flow")
    def old(n: int) -> int:
        return plain(n)

    @workflow(name="flow")
    def new(n: int, more: int) -> int:
        return plain(n + more)

    with dying_at(url, kind="step.started"), pytest.raises(outlast.StoreError):
        outlast.run(old, 1, run_id="r", store=url)
    told = misfit(new, url)
    assert told.reason == "diverged"
    assert "(n: int, more: int)" in told.detail


# ---- runs that have ended


def _ending(script: Script, colour: str, result: Callable[[], object] = lambda: "done") -> Any:
    inner = desk(script, colour)

    async def slow() -> object:
        await inner.plain()
        return result()

    def quick() -> object:
        inner.plain()
        return result()

    return workflow(name="desk")(slow if colour == "async" else quick)


def _raise(error: Exception) -> object:
    raise error


@COLOURS
def test_a_completed_run_must_come_to_the_same_result(colour: str, url: str) -> None:
    flow = _ending(ORIGINAL, colour, lambda: {"sum": 3, "tags": {"b", "a"}})
    record(flow, url)
    assert replayed(flow, url).result == {"sum": 3, "tags": {"a", "b"}}
    other = misfit(_ending(ORIGINAL, colour, lambda: {"sum": 4}), url)
    assert other.reason == "outcome"
    assert "3" in other.detail
    assert "4" in other.detail
    raises = misfit(_ending(ORIGINAL, colour, lambda: _raise(KeyError("sum"))), url)
    assert raises.reason == "outcome"
    assert "KeyError" in raises.detail
    longer = misfit(_ending((*ORIGINAL, ("tell", 5)), colour), url)
    assert longer.reason == "diverged"
    assert "tell#5" in longer.detail


@COLOURS
def test_a_failed_run_must_fail_with_the_same_class_of_error(colour: str, url: str) -> None:
    with pytest.raises(outlast.RunFailed):
        record(_ending(ORIGINAL, colour, lambda: _raise(ValueError("old text"))), url)
    told = replayed(_ending(ORIGINAL, colour, lambda: _raise(ValueError("new text"))), url)
    assert told.result is None
    for result in (lambda: _raise(KeyError("x")), lambda: "done"):
        other = misfit(_ending(ORIGINAL, colour, result), url)
        assert other.reason == "outcome"
        assert "ValueError" in other.detail


def test_a_large_result_is_compared_too(url: str) -> None:
    text = ["many words "] * 20_000
    record(_ending(ORIGINAL, "async", lambda: text), url)
    assert replayed(_ending(ORIGINAL, "async", lambda: text), url).result == text
    assert misfit(_ending(ORIGINAL, "async", lambda: [*text, ""]), url).reason == "outcome"


# ---- agent loops


def _loop(colour: str, thought: int = 0, **fields: object) -> Any:
    async def slow() -> object:
        async for turn in outlast.turns(seen=[], max=5, **fields):
            turn.seen.append(await work(len(turn.seen) + thought))
            turn.seen.append(await asyncio.to_thread(plain, len(turn.seen)))
        return turn.seen

    def quick() -> object:
        for turn in outlast.turns(seen=[], max=5, **fields):
            turn.seen.append(plain(len(turn.seen) + thought))
            turn.seen.append(plain(len(turn.seen)))
        return turn.seen

    return workflow(name="loop")(slow if colour == "async" else quick)


@COLOURS
@pytest.mark.parametrize("until", ["#0.t0.0", "#0.t3.0", "#0.t3.1"])
def test_an_agent_loop_is_taken_up_in_its_turn(until: str, colour: str, url: str) -> None:
    name = "work" if colour == "async" and until.endswith("0") else "plain"
    record(_loop(colour), url, name + until)
    assert replayed(_loop(colour), url).calls >= 1 - (until == "#0.t0.0")
    if until == "#0.t3.1":
        assert "t3.0 was recorded with other arguments" in misfit(_loop(colour, 1), url).detail


@COLOURS
def test_a_field_that_the_record_no_longer_has_is_a_misfit(colour: str, url: str) -> None:
    record(_loop(colour, extra=1), url, "plain#0.t3.1")
    assert "extra" in misfit(_loop(colour), url).detail


@COLOURS
def test_a_completed_agent_loop_is_replayed_from_its_last_turn(colour: str, url: str) -> None:
    record(_loop(colour), url)
    assert replayed(_loop(colour), url).result == list(range(10))


# ---- tasks, threads, time


async def _three(n: int) -> int:
    return await work(n) + await asyncio.to_thread(plain, n) + plain(n)


def _parallel(body: Callable[[int], Any] = _three) -> Any:
    async def parallel() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(body(n)) for n in range(3)]
        return [task.result() for task in tasks]

    return workflow(parallel)


@pytest.mark.parametrize("until", ["work#s0.0", "work#s1.0", "work#s2.0"])
def test_each_task_goes_as_far_as_its_own_record(until: str, url: str) -> None:
    record(_parallel(), url, until)
    told = replayed(_parallel(), url)
    assert told.calls == told.recorded


@pytest.mark.parametrize("key", ["plain#s1.1", "plain#s1.2", "plain#s2.1", "plain#s2.2"])
def test_a_plain_step_at_the_end_of_the_record_stops_no_other_task(key: str, url: str) -> None:
    record(_parallel(), url, key)
    told = replayed(_parallel(), url)
    assert told.calls == told.recorded


def test_a_task_that_the_code_no_longer_starts_is_a_misfit(url: str) -> None:
    async def longer() -> None:
        await asyncio.gather(work(1), hang(), _twice())

    async def shorter() -> None:
        await asyncio.gather(work(1), hang())

    async def _twice() -> None:
        await work(2)
        await work(3)
        await hang()

    record(workflow(name="flow")(longer), url, "hang#s2.2")
    told = misfit(workflow(name="flow")(shorter), url)
    assert told.reason == "diverged"
    assert "2 recorded calls" in told.detail
    assert "work#s2.0" in told.detail


def test_a_race_is_replayed_with_its_recorded_winner(url: str) -> None:
    async def race() -> int:
        tasks = [asyncio.create_task(_after(n)) for n in (3, 1, 2)]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        first = min(task.result() for task in done)
        await work(first)
        return await work(10 + first)

    async def _after(passes: int) -> int:
        for _ in range(passes):
            await work(passes)
        return passes

    flow = workflow(race)
    record(flow, url, "work#1")
    assert replayed(flow, url).recorded > 1
    record(flow, url)
    assert replayed(flow, url).result == 11


def _impatient(seconds: float) -> Any:
    async def impatient() -> str:
        try:
            async with asyncio.timeout(seconds):
                await hang()
        except TimeoutError:
            await work(1)
        await work(2)
        return "done"

    return workflow(impatient)


def test_a_recorded_time_out_strikes_at_once_however_long_it_is(url: str) -> None:
    record(_impatient(0.01), url, "work#2")
    assert replayed(_impatient(5.0), url).calls == 2
    never = misfit(_impatient(1e9), url)
    assert never.reason == "diverged"
    assert "hang#0 was recorded as cancelled" in never.detail


def test_a_recorded_cancellation_is_waited_for_beside_a_task_whose_record_has_ended(
    url: str,
) -> None:
    def flow(seconds: float) -> Any:
        async def limited() -> None:
            async with asyncio.timeout(seconds):
                await hang()

        async def flow() -> None:
            await asyncio.gather(_paid(), limited(), return_exceptions=True)

        async def _paid() -> None:
            await asyncio.sleep(0.2)
            await work(1)

        return workflow(flow)

    record(flow(0.01), url, "work#s0.0")
    assert replayed(flow(5), url).calls == 1
    assert "hang#s1.0 was recorded as cancelled" in misfit(flow(1e9), url).detail


def test_a_time_out_that_was_not_recorded_does_not_strike(url: str) -> None:
    flow = _impatient(3600)
    with dying_at(url, kind="step.started", after=True), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=url)
    assert replayed(flow, url).calls == 1


def test_a_time_out_that_only_a_replay_brings_is_no_misfit(url: str) -> None:
    """A step at the record's end takes for ever here, and may be quick in a real run."""

    async def limited(seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await hang()

    def flow(recorded: float, other: float, nap: float = 0.0) -> Any:
        async def asleep() -> None:
            await asyncio.sleep(nap)
            await work(1)

        async def expected() -> None:
            with contextlib.suppress(TimeoutError):
                await limited(recorded)
            await work(9)

        async def flow() -> None:
            await asyncio.gather(expected(), limited(other), asleep())

        return workflow(flow)

    record(flow(0.05, 60), url, "work#s0.1")
    assert replayed(flow(5, 60), url).calls == 3
    assert replayed(flow(5, 60, nap=2), url).calls == 3
    assert replayed(flow(5, 1), url).calls == 3
    assert replayed(flow(5, 1, nap=2), url).calls == 3


@pytest.mark.parametrize("recorded", [True, False])
def test_tasks_that_a_plain_call_takes_down_in_a_replay_alone_are_no_misfit(
    recorded: bool, url: str
) -> None:
    def flow(nap: float) -> Any:
        async def child() -> None:
            await work(2)
            await asyncio.sleep(0.001)
            await (work(3) if recorded else hang())

        async def flow() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                await work(1)
                await asyncio.sleep(nap)
                plain(1)

        return workflow(flow)

    record(flow(0.1), url, "plain#1")
    assert replayed(flow(0.1), url).calls == 3
    assert replayed(flow(0.0), url).calls == 3


def test_workflow_code_that_sleeps_is_not_waited_for(url: str) -> None:
    def napping(seconds: float) -> Any:
        async def napping() -> int:
            await work(1)
            await asyncio.sleep(seconds)
            return await work(2)

        return workflow(napping)

    record(napping(0), url)
    assert replayed(napping(86_400), url).result == 2


def test_workflow_code_that_ticks_for_ever_comes_to_an_end(url: str) -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    async def ticking() -> None:
        ticks = asyncio.create_task(tick())
        await work(1)
        await hang()
        ticks.cancel()

    flow = workflow(ticking)
    record(flow, url, "hang#1")
    assert replayed(flow, url).calls == 1


def test_ticking_does_not_hide_that_a_recorded_call_is_never_made(url: str) -> None:
    def flow(calls: bool) -> Any:
        async def tick() -> None:
            while True:
                await asyncio.sleep(1)

        async def made() -> None:
            await work(2)
            await work(3)

        async def flow() -> None:
            ticks = asyncio.create_task(tick())
            await asyncio.gather(hang(), *([made()] if calls else []))
            ticks.cancel()

        return workflow(flow)

    record(flow(True), url, "work#s2.1")
    told = misfit(flow(False), url)
    assert told.reason == "diverged"
    assert "work#s" in told.detail


@COLOURS
def test_timers_and_the_time_are_those_of_the_record(colour: str, url: str) -> None:
    seen: list[datetime] = []

    async def slow() -> None:
        seen.append(outlast.now())
        await outlast.sleep(0.01)
        await outlast.sleep(3600)

    def quick() -> None:
        seen.append(outlast.now())
        outlast.sleep(0.01).result()
        outlast.sleep(3600).result()

    flow = workflow(slow if colour == "async" else quick)
    with (
        dying_at(url, kind="timer.set", key="sleep#2", after=True),
        pytest.raises(outlast.StoreError),
    ):
        outlast.run(flow, run_id="r", store=url)
    assert replayed(flow, url).calls == 3
    assert len(set(seen)) == 1


def test_code_that_never_ends_is_not_decided(url: str) -> None:
    over = False

    def busy(forever: bool) -> Any:
        def busy() -> int:
            plain(1)
            while forever and not over:
                pass
            return plain(2)

        return workflow(busy)

    record(busy(False), url, "plain#1")
    told = misfit(busy(True), url, timeout=0.2)
    over = True
    assert told.reason == "undecided"
    assert "0.2 s" in told.detail


# ---- doubt


def _paying(n: int) -> Any:
    async def paying() -> int:
        await work(1)
        return await pay(n) + await work(2)

    return workflow(name="paying")(paying)


def test_a_run_in_doubt_fits_and_its_settlement_is_used(url: str) -> None:
    with pytest.raises(outlast.RunHeld):
        record(_paying(-5), url)
    assert replayed(_paying(-5), url).calls == 2
    assert "other arguments" in misfit(_paying(-6), url).detail
    outlast.Client(url).settle("r", "pay#1", outlast.Done(7))
    assert replayed(_paying(-5), url).calls == 2


def test_a_settled_value_of_another_type_than_the_step_returns_is_a_misfit(url: str) -> None:
    with pytest.raises(outlast.RunHeld):
        record(_paying(-5), url)
    outlast.Client(url).settle("r", "pay#1", outlast.Done("seven"))
    told = misfit(_paying(-5), url)
    assert told.reason == "in-doubt"
    assert "seven" in told.detail or "does not fit" in told.detail


def test_an_attempt_that_was_cut_off_is_the_end_of_the_record(url: str) -> None:
    with dying_at(url, kind="step.completed", key="pay#1"), pytest.raises(outlast.StoreError):
        outlast.run(_paying(5), run_id="r", store=url)
    assert replayed(_paying(5), url).calls == 2


# ---- surroundings


def test_a_journal_that_was_altered_is_a_misfit(url: str) -> None:
    record(desk(ORIGINAL, "sync"), url, CUT)
    database = get_store(url).store._database
    with database._reader as db:  # type: ignore[attr-defined]
        for (name,) in list(db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
            db.execute(f'DROP TRIGGER "{name}"')
        db.execute("UPDATE events SET data = x'7b7d' WHERE seq = 4")
    told = misfit(desk(ORIGINAL, "sync"), url)
    assert told.reason == "unreadable"
    assert "event 4" in told.detail


def test_a_replay_can_be_called_in_an_event_loop_and_in_a_run(url: str) -> None:
    record(desk(ORIGINAL, "async"), url, CUT)

    async def here() -> int:
        return replayed(desk(ORIGINAL, "async"), url).calls

    assert asyncio.run(here()) == 3

    @step
    def check() -> int:
        return replay("r", desk(ORIGINAL, "async"), store=url).calls

    assert outlast.run(workflow(lambda: check(), name="checks"), store=url) == 3


def test_a_step_called_in_a_bare_thread_does_not_run_either(url: str) -> None:
    import threading

    def threaded() -> int:
        errors: list[Exception] = []

        def other() -> None:
            try:
                plain(2)
            except outlast.NoRunContext as error:
                errors.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return plain(1) + len(errors)

    flow = workflow(threaded)
    record(flow, url)
    assert replayed(flow, url).result == 2


def test_an_async_generator_and_a_swallowed_cancellation_do_no_harm(url: str) -> None:
    async def numbers() -> Any:
        try:
            for n in range(3):
                yield await work(n)
        finally:
            await asyncio.sleep(0)

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def flow() -> None:
        task = asyncio.create_task(stubborn())
        async for _ in numbers():
            pass
        task.cancel()

    made = workflow(flow)
    record(made, url, "work#2")
    assert replayed(made, url).calls == 2


def test_a_journal_kept_as_a_file_is_replayed_without_a_store(url: str, tmp_path: Path) -> None:
    async def telling() -> object:
        async for turn in outlast.turns(chat=[], said="", max=4):
            turn.chat.append(
                {"n": await work(len(turn.chat)), "x": [0.5, None, 2**80, '\\ud800 "ü\\0']}
            )
            turn.said += "é\n"
        return turn.chat, turn.said, float("inf")

    flow = workflow(name="telling")(telling)
    record(flow, url)
    record(desk(ORIGINAL, "sync"), url, CUT, run_id="half")
    for run_id in ("r", "half"):
        events = [event_json(event) for event in journal(url, run_id)]
        (tmp_path / f"{run_id}.json").write_text(json.dumps(events, indent=2, ensure_ascii=False))
    told = replay(workflow=flow, journal=tmp_path / "r.json")
    assert told.result == outlast.run(flow, run_id="r", store=url)
    assert told.run_id == "r"
    half = tmp_path / "half.json"
    assert replay(workflow=desk(ORIGINAL, "sync"), journal=half).calls == 3
    with pytest.raises(Misfit, match="think#1"):
        replay(workflow=desk(CHANGES[0][1], "sync"), journal=str(half))


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "[1]", "no JSON", '[{"seq": 1, "kind": "x"}]', "[" * 100_000 + "]" * 100_000],
    ids=str.__len__,
)
def test_a_file_that_is_no_journal_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "j.json").write_text(text)
    with pytest.raises(outlast.UsageError, match=r"j\.json is no journal"):
        replay(workflow=desk(ORIGINAL, "sync"), journal=tmp_path / "j.json")


def test_a_journal_with_a_gap_or_another_order_is_refused(url: str, tmp_path: Path) -> None:
    record(desk(ORIGINAL, "sync"), url, CUT)
    events = [event_json(event) for event in journal(url, "r")]
    path = tmp_path / "j.json"
    for wrong, said in (
        (events[:2] + events[3:], "event 3 is missing: it has 4 in its place"),
        ([events[0], *events], "event 2 is missing: it has 1 in its place"),
        (events[1:], "event 1 is missing"),
        (events[::-1], "event 1 is missing"),
    ):
        path.write_text(json.dumps(wrong))
        with pytest.raises(outlast.UsageError, match=rf"j\.json is no journal.*{said}"):
            replay(workflow=desk(ORIGINAL, "sync"), journal=path)


@pytest.mark.parametrize("depth", [200, *range(910, 1010, 3), 10_000])
def test_a_value_that_is_nested_deep_is_read_or_told_of(
    depth: int, url: str, tmp_path: Path
) -> None:
    record(desk(ORIGINAL, "sync"), url, CUT)
    text = json.dumps([event_json(event) for event in journal(url, "r")])
    kept = text.replace('"value": 1', f'"value": {"[" * depth}{"]" * depth}', 1)
    assert kept != text
    (tmp_path / "j.json").write_text(kept)
    said = ""
    try:
        assert replay(workflow=desk(ORIGINAL, "sync"), journal=tmp_path / "j.json").calls == 3
    except (outlast.UsageError, Misfit) as problem:
        said = str(problem)
    assert not said or (depth > 200 and ("nested" in said or "Recursion" in said))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"run_id": 5}, "run_id=5"),
    ({"run_id": desk(ORIGINAL, "sync")}, "run_id=<"),
    ({"journal": 5}, "journal=5"),
    ({"journal": ["j.json"]}, "journal="),
    ({"run_id": "r", "store": Path("store.db")}, "store="),
    ({"run_id": "r", "workflow": 5}, "5 is not a workflow"),
    *(({"run_id": "r", "timeout": t}, "timeout=") for t in ("5", None, True, 0, -1, 86_401)),
    *(({"run_id": "r", "timeout": float(t)}, "timeout=") for t in ("nan", "inf", "-inf")),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_an_argument_of_another_type_is_told_of(
    options: dict[str, Any], said: str, url: str
) -> None:
    record(desk(ORIGINAL, "sync"), url, CUT)
    with pytest.raises(outlast.UsageError, match=said):
        replay(**{"store": url, **options})


def test_what_cannot_be_replayed_is_refused(url: str, tmp_path: Path) -> None:
    record(desk(ORIGINAL, "sync"), url, CUT)
    with pytest.raises(outlast.UnknownRun):
        replay("x", desk(ORIGINAL, "sync"), store=url)
    with pytest.raises(
        outlast.UsageError, match="belongs to workflow 'desk', and what was found is 'paying'"
    ):
        replay("r", _paying(1), store=url)
    with pytest.raises(outlast.UsageError, match="not a workflow"):
        replay("r", plain, store=url)
    with pytest.raises(outlast.UsageError, match="inside a function"):
        replay("r", store=url)
    with pytest.raises(outlast.UsageError, match="timeout"):
        replay("r", desk(ORIGINAL, "sync"), store=url, timeout=0)
    with pytest.raises(outlast.UsageError, match="what to replay"):
        replay("r", journal=tmp_path / "j.json")
    with pytest.raises(outlast.UsageError, match="cannot be read"):
        replay(journal=tmp_path / "j.json")
    with pytest.raises(outlast.StoreError):
        replay("r", store=url_of(tmp_path / "no.db"))
