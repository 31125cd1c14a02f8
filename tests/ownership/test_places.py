"""Where a run can be started from, and what can be a step: threads, loops, methods, partials."""

import asyncio
import functools
import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

import outlast
from outlast.events import RunCreated
from tests.ownership.children import children, events, kinds

PLACES = Path(__file__).parent / "programs" / "places.py"


@outlast.step
def double(number: int) -> int:
    return 2 * number


@outlast.workflow
def doubling(number: int, more: int = 0) -> int:
    return double(number) + more


@outlast.workflow
async def doubling_async(number: int) -> int:
    await asyncio.sleep(0)
    return double(number)


# ---- threads and loops


def test_fifty_threads_run_at_once(url: str) -> None:
    start = threading.Barrier(50)
    results: dict[int, object] = {}

    def one(number: int) -> None:
        start.wait()
        # Half of them with a loop of their own, and none waits for another.
        if number % 2:
            results[number] = outlast.run(doubling, number, run_id=f"r{number}", store=url)
        else:
            results[number] = outlast.run(doubling_async, number, run_id=f"r{number}", store=url)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: 2 * n for n in range(50)}
    client = outlast.Client(url)
    assert all(verdict.ok for verdict in client.verify())
    assert {view.status for view in client.runs()} == {"completed"}


def test_run_inside_a_running_loop_names_what_to_use(url: str) -> None:
    async def main() -> int:
        with pytest.raises(outlast.UsageError, match=r"await outlast\.execute"):
            outlast.run(doubling_async, 1, store=url)
        return await outlast.execute(doubling_async, 1, store=url)

    assert asyncio.run(main()) == 2
    assert len(outlast.Client(url).runs()) == 1, "the refused call wrote nothing"


def test_execute_runs_plain_workflows_without_blocking_the_loop(url: str) -> None:
    gate = threading.Event()

    @outlast.step
    def held() -> str:
        assert gate.wait(20)
        return "done"

    @outlast.workflow
    def work() -> str:
        return held()

    async def main() -> str:
        task = asyncio.create_task(outlast.execute(work, store=url))
        await asyncio.sleep(0.01)
        gate.set()  # only a loop that goes on gets here
        return await task

    assert asyncio.run(main()) == "done"


@pytest.mark.parametrize(
    ("how", "flags"),
    [
        ("asyncio", ("-O",)),
        ("asyncio", ("-OO",)),
        ("uvloop.run", ()),
        ("uvloop.run", ("-O",)),
        ("uvloop policy", ()),
        ("plain", ("-O",)),
        ("plain in a loop", ()),
    ],
)
def test_a_run_under_uvloop_and_optimised_python(
    url: str, how: str, flags: tuple[str, ...]
) -> None:
    with children() as start:
        child = start(PLACES, {"store": url, "how": how}, *flags)
        said = child.end()
    assert "result" in said, child.stderr
    if how.startswith("plain"):
        assert said["result"] == [0, 2, 4, 6, 8]
    else:
        loop, numbers, total, debug = said["result"]  # type: ignore[misc]
        assert loop.startswith("uvloop" if "uvloop" in how else "asyncio")
        assert (numbers, total, debug) == ([0, 1, 2, 3, 4], 30, not flags)


def test_two_stores_in_one_process_are_apart(tmp_path: Path) -> None:
    one, two = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two"))

    async def both() -> list[int]:
        return await asyncio.gather(
            outlast.execute(doubling_async, 1, run_id="r", store=one),
            outlast.execute(doubling_async, 2, run_id="r", store=two),
        )

    assert asyncio.run(both()) == [2, 4]
    with pytest.raises(outlast.RunMismatch):
        outlast.run(doubling_async, 1, run_id="r", store=two)
    uids = {outlast.Client(u)._row("r").uid for u in (one, two)}
    assert len(uids) == 2


def test_the_same_file_by_another_path_is_the_same_store(tmp_path: Path, url: str) -> None:
    assert outlast.run(doubling, 3, run_id="r", store=url) == 6
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    client = outlast.Client(f"sqlite:///{tmp_path}/link.db")
    assert client.run("r").status == "completed"
    assert client._store is outlast.Client(url)._store


# ---- what can be a step


class Shop:
    def __init__(self, city: str) -> None:
        self.city = city
        self.calls = 0
        self.connection = threading.Lock()  # nothing that could be stored or compared

    @outlast.step
    def sell(self, item: str) -> str:
        self.calls += 1
        return f"{item} from {self.city}"

    @outlast.step
    async def deliver(self, item: str) -> str:
        self.calls += 1
        return f"{item} delivered"

    @staticmethod
    @outlast.step
    def price(item: str) -> int:
        return len(item)

    @outlast.step(name="Shop.found")
    def found(self, item: str) -> str:
        return item

    def tool(self, item: str) -> str:
        self.calls += 1
        return f"{item} by tool"


def interrupted(workflow: object, url: str, **kwargs: object) -> None:
    """Start a run that is interrupted where it says so."""
    with pytest.raises(KeyboardInterrupt):
        outlast.run(workflow, run_id="r", store=url, **kwargs)  # type: ignore[call-overload]


def test_a_method_is_a_step_and_its_object_is_not_compared(url: str) -> None:
    shops = [Shop("Ulm"), Shop("Bonn")]
    lives: list[int] = []

    @outlast.workflow
    async def work() -> list[object]:
        shop = shops[len(lives)]
        said = [
            shop.sell("tea"),
            await shop.deliver("tea"),
            Shop.price("tea"),
            shop.found(item="x"),
        ]
        if not lives:
            lives.append(1)
            raise KeyboardInterrupt
        return said

    interrupted(work, url)
    # Another object, with other state, is fine: the results are those of the first life.
    assert outlast.run(work, run_id="r", store=url) == ["tea from Ulm", "tea delivered", 3, "x"]
    assert [shop.calls for shop in shops] == [2, 0]
    names = [step.name for step in outlast.Client(url).run("r").steps]
    assert names == ["Shop.sell", "Shop.deliver", "Shop.price", "Shop.found"]


def test_partials_and_tools_found_at_run_time_are_steps(url: str) -> None:
    def send(channel: str, text: str) -> str:
        return f"{channel}: {text}"

    class Callable_:
        async def __call__(self, text: str) -> str:
            return text.upper()

    shop = Shop("Ulm")
    by_partial = outlast.step(functools.partial(send, "mail"), name="mail")
    by_object = outlast.step(Callable_(), name="upper")
    tools = {"shop.tool": shop.tool}
    lives: list[int] = []

    @outlast.workflow
    async def work() -> list[str]:
        call = outlast.step(tools["shop.tool"], name="shop.tool", effect="read")
        said = [by_partial("hello"), await by_object("hello"), call("tea")]
        if not lives:
            lives.append(1)
            raise KeyboardInterrupt
        return said

    interrupted(work, url)
    assert outlast.run(work, run_id="r", store=url) == ["mail: hello", "HELLO", "tea by tool"]
    assert shop.calls == 1
    view = outlast.Client(url).run("r")
    assert [(s.name, s.effect) for s in view.steps] == [
        ("mail", "assumed"),
        ("upper", "assumed"),
        ("shop.tool", "read"),
    ]
    with pytest.raises(outlast.UsageError, match="name="):
        outlast.step(functools.partial(send, "mail"))


def test_steps_are_plain_functions_outside_a_run() -> None:
    shop = Shop("Ulm")
    assert double(4) == 8
    assert shop.sell("tea") == "tea from Ulm"
    assert asyncio.run(shop.deliver("tea")) == "tea delivered"  # type: ignore[arg-type]
    assert double.plain(5) == 10
    assert doubling.plain(5) == 10


def test_a_workflow_outside_a_run_says_how_to_start_it() -> None:
    with pytest.raises(outlast.OutsideRun, match=r"outlast\.run\(doubling"):
        doubling(1)


def test_keyword_arguments_go_through_partial(url: str) -> None:
    workflow = functools.partial(doubling, more=1)
    assert outlast.run(workflow, 3, run_id="r", store=url) == 7
    # The same arguments, however they are passed.
    assert outlast.run(functools.partial(doubling, number=3, more=1), run_id="r", store=url) == 7
    nested = functools.partial(functools.partial(doubling, more=5), more=1)
    assert outlast.run(nested, 3, run_id="r", store=url) == 7


def test_a_step_in_a_bare_thread_is_refused_and_in_to_thread_is_not(url: str) -> None:
    said: list[object] = []

    @outlast.workflow
    async def work() -> int:
        def bare() -> None:
            try:
                said.append(double(1))
            except outlast.NoRunContext as problem:
                said.append(problem)

        thread = threading.Thread(target=bare)
        thread.start()
        await asyncio.to_thread(thread.join)
        return await asyncio.to_thread(double, 21)

    assert outlast.run(work, run_id="r", store=url) == 42
    assert isinstance(said[0], outlast.NoRunContext)
    assert "copy_context" in str(said[0])
    assert "double.plain" in str(said[0])
    assert len(outlast.Client(url).run("r").steps) == 1
    assert double(1) == 2, "once no run is active, it is a plain function again"


def test_a_run_within_a_step_of_another_run_records_its_own_steps(url: str) -> None:
    @outlast.step
    def plainly() -> int:
        return outlast.run(doubling, 1, run_id="inner", store=url)

    @outlast.step
    async def in_the_loop() -> int:
        return await outlast.execute(doubling_async, 2, run_id="inner-async", store=url)

    @outlast.workflow
    async def work() -> list[int]:
        return [await asyncio.to_thread(plainly), await in_the_loop(), double(3)]

    assert outlast.run(work, run_id="outer", store=url) == [2, 4, 6]
    client = outlast.Client(url)
    steps = {r: [s.key for s in client.run(r).steps] for r in ("inner", "inner-async", "outer")}
    assert steps == {
        "inner": ["double#0"],
        "inner-async": ["double#0"],
        "outer": ["plainly#0", "in_the_loop#1", "double#2"],
    }


@pytest.mark.parametrize("start", ["run", "execute", "submit"])
def test_no_run_starts_in_workflow_code_where_each_replay_would_start_another(
    url: str, start: str
) -> None:
    @outlast.workflow
    async def work() -> object:
        if start == "execute":
            return await outlast.execute(doubling_async, 2, store=url)
        if start == "submit":
            return outlast.submit(doubling, 2, store=url)
        return await asyncio.to_thread(outlast.run, doubling, 2, store=url)

    with pytest.raises(outlast.RunFailed, match="call the workflow itself") as failed:
        outlast.run(work, run_id="r", store=url)
    assert isinstance(failed.value.__cause__, outlast.UsageError)
    assert [run.run_id for run in outlast.Client(url).runs()] == ["r"]


# ---- one id, one run


def test_an_id_taken_by_other_arguments_or_another_workflow_is_refused(url: str) -> None:
    assert outlast.run(doubling, 3, run_id="r", store=url) == 6
    with pytest.raises(outlast.RunMismatch, match="other arguments") as other_arguments:
        outlast.run(doubling, 4, run_id="r", store=url)
    assert "4" in str(other_arguments.value), "both are shown"
    assert outlast.Client(url)._row("r").digest[:12] in str(other_arguments.value)
    with pytest.raises(outlast.RunMismatch) as other_workflow:
        outlast.run(doubling_async, 3, run_id="r", store=url)
    assert "'doubling'" in str(other_workflow.value)
    assert "'doubling_async'" in str(other_workflow.value)
    assert len(kinds(outlast.Client(url).journal("r"))) == 5, "nothing was written"


def test_what_is_no_workflow_or_does_not_fit_is_refused_with_the_expected_form(url: str) -> None:
    with pytest.raises(outlast.UsageError, match=r"@outlast\.workflow"):
        outlast.run(double, 1, store=url)
    with pytest.raises(outlast.UsageError, match=r"doubling\(number: int, more: int = 0\)"):
        outlast.run(doubling, 1, 2, 3, store=url)  # type: ignore[call-overload]
    assert outlast.Client(url).runs() == []


def test_a_waiting_run_leaves_and_goes_on_when_it_is_due(url: str) -> None:
    calls: list[int] = []

    @outlast.step
    def before() -> int:
        calls.append(1)
        return 1

    @outlast.workflow
    def work() -> int:
        number = before()
        outlast.sleep(0.3).result()
        return number + 1

    with pytest.raises(outlast.RunWaiting) as first:
        outlast.run(work, run_id="r", store=url, wait=False)
    with pytest.raises(outlast.RunWaiting) as second:
        outlast.run(work, run_id="r", store=url, wait=False)
    assert first.value.due == second.value.due, "a resume does not set the timer anew"
    assert outlast.run(work, run_id="r", store=url) == 2
    assert calls == [1]
    assert not any(c.crash for c in events(outlast.Client(url).journal("r"), "run.claimed"))  # type: ignore[attr-defined]


# ---- what code can ask for


@dataclass
class Seen:
    step: str | None
    attempt: int | None
    replaying: bool
    trace_id: str
    tags: dict[str, str]


def see() -> Seen:
    here = outlast.current()
    assert here.run_id == "r"
    return Seen(here.step, here.attempt, here.replaying, here.trace_id, dict(here.tags))


def test_current_tags_and_trace_id_are_the_same_in_every_life(url: str) -> None:
    in_step: list[Seen] = []
    in_workflow: list[Seen] = []
    lives: list[int] = []

    @outlast.step(timeout=30)
    def look(number: int) -> int:
        assert outlast.current().deadline is not None
        in_step.append(see())
        if number == 2 and not lives:
            lives.append(1)
            raise KeyboardInterrupt
        return number

    @outlast.workflow
    def work() -> int:
        in_workflow.append(see())
        look(1)
        in_workflow.append(see())
        look(2)
        in_workflow.append(see())
        return 3

    interrupted(work, url, tags={"customer": "81"})
    # Tags belong to the run's creation; those of a later start change nothing.
    assert outlast.run(work, run_id="r", store=url, tags={"customer": "other"}) == 3
    client = outlast.Client(url)
    (created,) = events(client.journal("r"), "run.created")
    assert isinstance(created, RunCreated)
    seen = [*in_step, *in_workflow]
    assert {s.trace_id for s in seen} == {created.trace_id, client.run("r").trace_id}
    assert all(s.tags == {"customer": "81"} for s in seen)
    assert [(s.step, s.attempt) for s in in_step] == [("look#0", 1), ("look#1", 1), ("look#1", 2)]
    assert [s.replaying for s in in_step] == [False, False, False]
    # Live, live; then replaying up to the call that was interrupted, and live behind it.
    assert [s.replaying for s in in_workflow] == [False, False, True, True, False]
    with pytest.raises(outlast.OutsideRun):
        outlast.current()


def test_the_log_filter_adds_where_and_drops_replayed_lines(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("tests.places")
    lives: list[int] = []
    lines: list[tuple[str, str, object, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.getMessage(), record.run_id, record.step, record.attempt))  # type: ignore[attr-defined]

    handler = Keep()
    handler.addFilter(outlast.LogFilter())
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    @outlast.step
    def act(number: int) -> int:
        log.info("acting %d", number)
        if number == 2 and not lives:
            lives.append(1)
            raise KeyboardInterrupt
        return number

    @outlast.workflow
    def work() -> None:
        log.info("begun")
        act(1)
        log.info("between")
        act(2)
        log.info("ended")

    try:
        interrupted(work, url)
        outlast.run(work, run_id="r", store=url)
        log.info("outside")
    finally:
        log.removeHandler(handler)
    assert lines == [
        ("begun", "r", "", ""),
        ("acting 1", "r", "act#0", 1),
        ("between", "r", "", ""),
        ("acting 2", "r", "act#1", 1),
        ("acting 2", "r", "act#1", 2),
        ("ended", "r", "", ""),
        ("outside", "", "", ""),
    ]
