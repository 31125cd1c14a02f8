"""The wall clock steps and the machine sleeps: waits stay bounded, leases stay honest."""

import asyncio
import functools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import outlast
from outlast.store.open import open_store
from outlast.world import World
from tests.ownership.children import SimulatedWorld, SteppingWorld, until
from tests.ownership.gated import gated_run

HOUR = 3600.0
STEPS: list[float | str] = [-HOUR, HOUR, "1970"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def use(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that are opened from now on live in this world."""
    opening = functools.partial(open_store, world=world)
    monkeypatch.setattr("outlast.worker.stores.open_store", opening)


def step_clock(world: SteppingWorld, step: float | str) -> None:
    world.set_wall(0.0 if step == "1970" else world.wall() + float(step))


def once(action: Callable[[], object]) -> Callable[[], None]:
    done: list[bool] = []

    def first_time() -> None:
        if not done:
            done.append(True)
            action()

    return first_time


class Busy(Exception):
    """What a tool says whose server answers 503."""

    status_code = 503


def waits_for(kind: str, seconds: float) -> Callable[[], str]:
    """A plain workflow that waits once, by a timer or between two attempts."""
    attempts: list[int] = []

    @outlast.step(retry=outlast.Retry(attempts=2, initial=seconds, maximum=seconds))
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise Busy("busy")
        return "done"

    @outlast.workflow
    def work() -> str:
        if kind == "retry":
            return flaky()
        outlast.sleep(seconds).result()
        return "done"

    return work


@pytest.mark.parametrize("kind", ["sleep", "retry"])
@pytest.mark.parametrize("step", STEPS)
def test_a_wait_ends_at_most_one_pause_late_when_the_clock_steps(
    url: str, monkeypatch: pytest.MonkeyPatch, kind: str, step: float | str
) -> None:
    world = SimulatedWorld()
    monkeypatch.setattr(world, "random", lambda: 1.0)  # the longest jitter
    use(world, monkeypatch)
    world.on_pause = once(lambda: step_clock(world, step))
    settings = outlast.Settings(max_sleep=5.0)
    result = outlast.run(waits_for(kind, 60.0), run_id="r", store=url, settings=settings)
    assert result == "done"
    assert max(world.pauses) <= 5.0, "no single pause is longer than the maximum"
    if step == HOUR:
        assert world.ran == 5.0, "due at once, and seen after the pause under way"
    else:
        assert world.ran == pytest.approx(60.0, abs=1.0)


@pytest.mark.parametrize("step", STEPS)
def test_an_asynchronous_wait_ends_in_time_when_the_clock_steps(
    url: str, monkeypatch: pytest.MonkeyPatch, step: float | str
) -> None:
    world = SteppingWorld()
    use(world, monkeypatch)

    @outlast.workflow
    async def work() -> float:
        asyncio.get_running_loop().call_later(0.1, step_clock, world, step)
        start = world.boot()
        await outlast.sleep(0.6)
        return world.boot() - start

    settings = outlast.Settings(max_sleep=0.1)
    waited = outlast.run(work, run_id="r", store=url, settings=settings)
    assert (waited >= 0.59) if step != HOUR else (waited < 0.59)


@pytest.mark.parametrize("kind", ["sleep", "retry"])
@pytest.mark.parametrize("step", [-HOUR, "1970"])
def test_a_wait_that_is_resumed_after_the_clock_went_back_is_not_longer_than_it_was_set(
    url: str, monkeypatch: pytest.MonkeyPatch, kind: str, step: float | str
) -> None:
    world = SimulatedWorld()
    monkeypatch.setattr(world, "random", lambda: 1.0)
    use(world, monkeypatch)
    work = waits_for(kind, 60.0)

    def interrupt() -> None:
        world.on_pause = lambda: None
        raise KeyboardInterrupt

    world.on_pause = interrupt
    with pytest.raises(KeyboardInterrupt):
        outlast.run(work, run_id="r", store=url)
    step_clock(world, step)
    before = world.ran
    assert outlast.run(work, run_id="r", store=url) == "done"
    assert world.ran - before <= 60.0 + 5.0


@pytest.mark.parametrize("step", STEPS)
def test_a_stepped_clock_neither_ends_nor_prolongs_a_lease_on_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float | str
) -> None:
    world = SteppingWorld()
    use(world, monkeypatch)

    @outlast.workflow(name="gated")
    def taken() -> str:
        return "never"

    with gated_run(tmp_path) as gated:
        owner = gated.start_in_body(lease=HOUR / 2)
        step_clock(world, step)
        with pytest.raises(outlast.RunOwned):
            outlast.run(taken, run_id="r", store=gated.url)
        assert not gated.client.run("r").interrupted
        owner.kill()
        assert gated.client.run("r").interrupted
        assert gated.client.unfinished() == ["r"]


def test_a_run_goes_on_when_the_machine_wakes_and_nobody_took_it(tmp_path: Path) -> None:
    # SIGSTOP stands in for suspend: the boot clock runs on, the process does not.
    with gated_run(tmp_path) as gated:
        owner = gated.start_in_body(lease=0.6)
        owner.send(signal.SIGSTOP)
        until(owner.stopped, "SIGSTOP")
        lease = gated.client._row("r").lease_boot or 0.0
        until(lambda: World().boot() > lease, "the lease to end")
        assert gated.client.run("r").interrupted, "it could be taken now"
        gated.open_gate()
        owner.send(signal.SIGCONT)
        assert owner.end()["result"] == ["one", f"middle by {owner.pid}", "three"]
        assert gated.client.run("r").epoch == 1


def test_times_in_a_journal_may_go_back_and_its_order_does_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SteppingWorld()
    use(world, monkeypatch)

    @outlast.step
    def tick(n: int) -> int:
        step_clock(world, -HOUR)
        return n

    @outlast.workflow
    def work() -> list[int]:
        return [tick(1), tick(2), tick(3)]

    assert outlast.run(work, run_id="r", store=url) == [1, 2, 3]
    client = outlast.Client(url)
    journal = client.journal("r")
    times = [event.at for event in journal]
    assert times != sorted(times)
    assert [event.seq for event in journal] == list(range(1, len(journal) + 1))
    assert [s.name for s in client.run("r").steps] == ["tick", "tick", "tick"]
    assert outlast.run(work, run_id="r", store=url) == [1, 2, 3]


@pytest.mark.parametrize("colour", ["plain", "async"])
@pytest.mark.parametrize("step", STEPS)
def test_a_timeout_is_not_measured_by_the_wall_clock(
    url: str, monkeypatch: pytest.MonkeyPatch, colour: str, step: float | str
) -> None:
    world = SteppingWorld()
    use(world, monkeypatch)

    def body() -> str:
        step_clock(world, step)
        return "in time"

    @outlast.step(timeout=20)
    def plain_step() -> str:
        return body()

    @outlast.step(timeout=20)
    async def async_step() -> str:
        result = body()
        await asyncio.sleep(0.05)
        return result

    @outlast.workflow
    async def asynchronous() -> str:
        return await async_step()

    @outlast.workflow
    def plain() -> str:
        return plain_step()

    if colour == "plain":
        assert outlast.run(plain, store=url) == "in time"
    else:
        assert outlast.run(asynchronous, store=url) == "in time"
