"""A process dies while it drops or copies what is recorded: all of it was done, or nothing."""

import re
from pathlib import Path

import msgspec
import pytest

from outlast import Client, UnknownRun, UsageError
from tests.checkers import check_all
from tests.crash.nursery import Nursery
from tests.crash.points import WRITES, Point
from tests.crash.programs.job import Job
from tests.crash.programs.rewriting import FORK, RESULTS


@pytest.fixture
def killed(nursery: Nursery, folder: Path) -> Job:
    """A run that the first version of the code was killed in, and its next life with the second."""
    job = Job("rewriting", str(folder), "1 live")
    assert nursery.run(job) is None
    return msgspec.structs.replace(job, flavour="2 live")


@pytest.mark.parametrize("at", WRITES)
def test_killed_while_it_drops_a_run_drops_all_or_nothing(
    nursery: Nursery, killed: Job, at: str
) -> None:
    before = Client(killed.url).journal("run")
    point = Point(at, "run.accepted")  # type: ignore[arg-type]
    assert nursery.run(msgspec.structs.replace(killed, flavour="2 accept", point=point)) is None
    check_all(killed.url, "run", killed.effects)
    if at == "after":
        assert Client(killed.url).run("run").status == "queued"
        with pytest.raises(UsageError, match=re.escape("'pay#1' of run run was dropped before")):
            Client(killed.url).accept_from("run", "pay#1")
        end = nursery.run(killed)
    else:
        assert Client(killed.url).journal("run") == before
        end = nursery.run(msgspec.structs.replace(killed, flavour="2 accept"))
    assert end is not None
    assert end.value == RESULTS["2"], end.text
    check_all(killed.url, "run", killed.effects)


@pytest.mark.parametrize(
    "point",
    [*(Point(at, "step.started", "pay") for at in WRITES), Point("effect", name="pay")],
    ids=str,
)
def test_killed_after_it_a_run_makes_the_step_again_under_one_new_key(
    nursery: Nursery, killed: Job, point: Point
) -> None:
    assert nursery.run(msgspec.structs.replace(killed, flavour="2 accept", point=point)) is None
    end = nursery.run(killed)
    assert end is not None
    assert end.value == RESULTS["2"], end.text
    seen = check_all(killed.url, "run", killed.effects)
    assert len({e.idempotency for e in seen.effects if e.key == "pay#1"}) == 2


@pytest.mark.parametrize(
    "point",
    [*(Point(at, "step.started", "pay") for at in WRITES), Point("effect", name="pay")],
    ids=str,
)
def test_killed_after_it_a_run_makes_a_moved_step_again_under_its_first_key(
    nursery: Nursery, killed: Job, point: Point
) -> None:
    third = msgspec.structs.replace(killed, flavour="3 live")
    assert nursery.run(msgspec.structs.replace(third, flavour="3 accept", point=point)) is None
    end = nursery.run(third)
    assert end is not None
    assert end.value == RESULTS["3"], end.text
    seen = check_all(killed.url, "run", killed.effects)
    paid = [e for e in seen.effects if e.key in ("pay#1", "pay#2")]
    assert {e.key for e in paid} == {"pay#1", "pay#2"}
    assert len({e.idempotency for e in paid}) == 1


COPIES = [
    *(Point(at, "run.created") for at in WRITES),
    *(Point(at, "step.completed", "look") for at in WRITES),
]


@pytest.mark.parametrize("point", COPIES, ids=str)
def test_killed_while_it_forks_there_is_a_whole_fork_or_none(
    nursery: Nursery, killed: Job, point: Point
) -> None:
    before = Client(killed.url).journal("run")
    assert nursery.run(msgspec.structs.replace(killed, flavour="2 fork", point=point)) is None
    assert Client(killed.url).journal("run") == before
    client = Client(killed.url)
    if point.at == "after":
        assert [s.key for s in client.run(FORK).steps] == ["look#0"]
    else:
        with pytest.raises(UnknownRun):
            client.run(FORK)
        client.fork("run", "pay#1", new_id=FORK, repeat_effects=True)
    check_all(killed.url, FORK)
    end = nursery.run(msgspec.structs.replace(killed, run_id=FORK))
    assert end is not None
    assert end.value == RESULTS["2"], end.text
    check_all(killed.url, FORK)
