"""What people met with retries: a quota that looks like a rate limit, requests that can never
succeed, odd waits, layers that multiply, faults in groups."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

import outlast
from outlast import Retry
from outlast.breakers import read_breakers
from outlast.events import StepFailed, decode
from outlast.views import read_run
from outlast.worker.stores import get_store
from outlast.world import World
from tests.checkers import check_all
from tests.effects.colours import COLOURS, Colour, make_step, make_workflow
from tests.effects.stage import Stage
from tests.scenarios.model_errors import model_error

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


def failures(stage: Stage, run_id: str = "run") -> list[StepFailed]:
    journal = [decode(e.kind, e.data) for e in stage.client().journal(run_id)]
    return [event for event in journal if isinstance(event, StepFailed)]


# ---- a used-up quota


@pytest.mark.parametrize(("kind", "wait"), [("rate", 2.0), ("unreadable", 600.0)])
def test_a_rate_limit_is_waited_for_over_a_crash(stage: Stage, kind: str, wait: float) -> None:
    program = PROGRAMS / "quota.py"
    stage.kill_at("waits")
    assert stage.play(program, kind, "run").killed
    (failed,) = failures(stage)
    assert (failed.error.fault, failed.final, failed.wait) == ("throttled", False, wait)
    stage.set("well")
    stage.later(3600)
    assert stage.play(program, kind, "run").result == "plan done"
    assert stage.effects() == ["plan", "model", "model"]
    check_all(stage.url, "run", attempts={"model": 3})


@pytest.mark.parametrize("kind", ["quota", "friendly"])
def test_a_used_up_quota_is_asked_once_and_goes_on_after_a_top_up(stage: Stage, kind: str) -> None:
    program = PROGRAMS / "quota.py"
    for _ in range(2):  # a second process does not ask again
        assert stage.play(program, kind, "run").stopped[0] == "RunFailed"
    (failed,) = failures(stage)
    assert (failed.error.fault, failed.final) == ("terminal", True)
    assert "quota" in failed.error.reason
    (breaker,) = read_breakers(get_store(stage.url).store)
    assert (breaker.name, breaker.state, breaker.failures) == ("quota.model", "closed", 0)
    # The account was topped up: a fork goes on with what is done.
    stage.client().fork("run", "model#1", new_id="again")
    stage.set("well")
    assert stage.play(program, kind, "again").result == "plan done"
    assert stage.effects() == ["plan", "model", "model"]


# ---- what can never succeed


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("context", "too large for the model"),
        ("wrapped", "too large for the model"),
        ("marked", "stop_on"),
        ("terminal", "the tool says"),
        ("unknown", "unknown error"),
    ],
)
def test_a_permanent_fault_is_one_attempt_over_two_processes(
    stage: Stage, kind: str, reason: str
) -> None:
    program = PROGRAMS / "permanent.py"
    stage.kill_at("committed-step.failed:act#0:1")
    assert stage.play(program, kind).killed
    played = stage.play(program, kind)
    assert played.stopped[0] == "RunFailed"
    (failed,) = failures(stage)
    assert (failed.error.fault, failed.final, failed.wait) == ("terminal", True, None)
    assert reason in failed.error.reason
    assert failed.error.message.splitlines()[0] in str(played.outcome["text"])
    assert stage.effects() == ["act"]
    assert stage.step("act#0").attempts == 1


@pytest.mark.parametrize("kind", ["context", "wrapped", "quota"])
@pytest.mark.parametrize("rule", ["on", "classify"])
def test_the_users_own_rule_wins_over_ours(stage: Stage, kind: str, rule: str) -> None:
    retry = Retry(attempts=3, initial=0, on=[Exception] if rule == "on" else [])

    def classify(exc: BaseException) -> Literal["transient"] | None:
        return "transient" if rule == "classify" else None

    @outlast.step(retry=retry, classify=classify)
    def act() -> None:
        stage.log("act")
        raise model_error(kind)

    flow = make_workflow("sync", act)
    with pytest.raises(outlast.RunFailed):
        outlast.run(flow, run_id="run", store=stage.url)
    assert len(stage.effects()) == stage.step("act#0").attempts == 3


# ---- Retry-After


NOW = 784_111_777.0 + 86_400 * 365 * 30
"""Tue, 29 Oct 2024 08:49:37 GMT."""

FORMS: list[tuple[list[str], float | None]] = [
    (["0"], 0.0),
    (["2"], 2.0),
    (["2.5"], 2.5),
    (["-1"], 0.0),
    ([""], None),
    (["inf"], None),
    (["nan"], None),
    (["1e400"], None),
    (["9999999999"], None),
    ([f"{NOW + 30:.0f}"], 30.0),
    (["Tue, 29 Oct 2024 08:50:07 GMT"], 30.0),
    (["Tuesday, 29-Oct-24 08:50:07 GMT"], 30.0),
    (["Tue Oct 29 08:50:07 2024"], 30.0),
    (["Sun, 06 Nov 1994 08:49:37 GMT"], 0.0),
    (["Tue, 29 Oct 2024 08:50:07 -0000"], 30.0),
    (["soon"], None),
    (["2", "5"], 5.0),
]


@pytest.mark.parametrize(("values", "asked"), FORMS, ids=[", ".join(f[0]) for f in FORMS])
def test_whatever_retry_after_says_the_run_waits_a_finite_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, values: list[str], asked: float | None
) -> None:
    monkeypatch.setattr(World, "wall", lambda world: NOW)

    @outlast.step(retry=Retry(attempts=2, initial=7, jitter="none"))
    def act() -> None:
        request = httpx.Request("GET", "http://127.0.0.1/")
        headers = [("Retry-After", value) for value in values]
        httpx.Response(429, headers=headers, request=request).raise_for_status()

    flow = make_workflow("sync", act)
    with pytest.raises(outlast.RunWaiting) as waiting:
        outlast.run(flow, run_id="run", store=stage.url, wait=False)
    (failed,) = failures(stage)
    # Our own wait of 7 s counts where nothing, or less, was asked for.
    assert failed.wait == max(7.0, asked or 0.0)
    assert waiting.value.due == failed.retry_at == NOW + failed.wait


def test_an_hour_is_slept_through_without_a_process_and_only_once(stage: Stage) -> None:
    program = PROGRAMS / "quota.py"
    stage.kill_at("waits")
    assert stage.play(program, "hour", "run").killed
    due = stage.client().run("run").due_at
    assert failures(stage)[0].wait == 3600  # above maximum=600: it is what the server said
    stage.set("well")
    for seconds in (0, 3000):  # the rest is waited for, not an hour anew
        stage.later(seconds)
        played = stage.play(program, "hour", "run", "no-wait")
        assert played.stopped[0] == "RunWaiting"
        view = stage.client().run("run")
        row = read_run(get_store(stage.url).store, "run")
        assert (view.status, view.due_at, view.interrupted) == ("waiting", due, False)
        assert row is not None
        assert row.owner is None
    stage.later(601)
    assert stage.play(program, "hour", "run", "no-wait").result == "plan done"
    assert stage.effects() == ["plan", "model", "model"]


# ---- layers


@contextmanager
def busy_server() -> Iterator[tuple[str, list[str]]]:
    """A server that always answers 503: its address, and the requests so far."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("way", "attempts"), [("alone", 3), ("inside", 2)])
def test_retries_of_ours_do_not_multiply_and_those_of_a_client_are_seen(
    stage: Stage, way: str, attempts: int
) -> None:
    program = PROGRAMS / "layers.py"
    with busy_server() as (url, requests):
        stage.kill_at("waits")
        assert stage.play(program, url, way).killed
        assert len(requests) == 3
        stage.later(3601)
        if attempts == 3:
            stage.kill_at("waits")
            assert stage.play(program, url, way).killed
            stage.later(3601)
        played = stage.play(program, url, way)
    assert played.stopped[0] == "RunFailed"
    # A step in a step is a part of it: only the outer one's limit counts.
    key = "fetch#0" if way == "alone" else "gather#0"
    assert [step.key for step in stage.client().run("run").steps] == [key]
    assert stage.step(key).attempts == attempts
    assert len(requests) == 3 * attempts  # more than our attempts: the client's own
    assert all("urllib3 (2 retries" in event.inner for event in failures(stage))
    assert "OutlastWarning" in played.stderr
    check_all(stage.url, "run", attempts={"fetch": 3, "gather": 2})


# ---- groups

LOST = ConnectionResetError("lost")
BUG = ValueError("a bug")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("group", "attempts"),
    [
        (ExceptionGroup("g", [LOST]), 3),
        (BaseExceptionGroup("g", [asyncio.CancelledError(), LOST]), 3),
        (ExceptionGroup("g", [LOST, BUG]), 1),
        (ExceptionGroup("g", [LOST, ExceptionGroup("h", [LOST, TimeoutError()])]), 3),
        (ExceptionGroup("g", [LOST, ExceptionGroup("h", [ExceptionGroup("i", [BUG])])]), 1),
        (ExceptionGroup("g", [model_error("rate"), model_error("quota")]), 1),
    ],
    ids=["one", "cancelled too", "a bug too", "nested", "a nested bug", "quota too"],
)
def test_a_group_is_what_its_leaves_are(
    stage: Stage, colour: Colour, group: BaseExceptionGroup[Any], attempts: int
) -> None:
    def act() -> None:
        stage.log("act")
        raise group

    step = make_step(colour, act, retry=Retry(attempts=3, initial=0))
    with pytest.raises(outlast.RunFailed):
        outlast.run(make_workflow(colour, step), run_id="run", store=stage.url)
    assert len(stage.effects()) == attempts
    assert [event.final for event in failures(stage)] == [False] * (attempts - 1) + [True]


@pytest.mark.parametrize("colour", COLOURS)
def test_an_interrupt_in_a_group_passes_through_and_the_run_goes_on(
    stage: Stage, colour: Colour
) -> None:
    def act() -> str:
        stage.log("act")
        if len(stage.effects()) == 1:
            raise BaseExceptionGroup("g", [LOST, KeyboardInterrupt()])
        return "done"

    flow = make_workflow(colour, make_step(colour, act))
    with pytest.raises((BaseExceptionGroup, KeyboardInterrupt)):
        outlast.run(flow, run_id="run", store=stage.url)
    assert failures(stage) == []
    assert stage.client().run("run").status == "queued"
    assert outlast.run(flow, run_id="run", store=stage.url) == "done"
    assert len(stage.effects()) == 2
