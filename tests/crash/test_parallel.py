"""What a crash leaves of several attempts in flight, and of a row of failed ones."""

from pathlib import Path

import msgspec

from outlast import Client, Done
from tests.checkers import check_all
from tests.crash.nursery import Nursery
from tests.crash.points import WRITES, Point
from tests.crash.programs.job import Job
from tests.crash.programs.parallel import ATTEMPTS, RESULT


def test_of_two_mails_in_flight_each_is_in_doubt_and_each_is_settled(
    nursery: Nursery, folder: Path
) -> None:
    job = Job("parallel", str(folder))
    point = Point("effect", name="mail", nth=2)
    assert nursery.run(msgspec.structs.replace(job, point=point)) is None
    client = Client(job.url)

    for name, key in [("a", "mail#0"), ("b", "mail#1")]:
        held = nursery.run(job)
        assert held is not None
        assert held.reason == "in-doubt", held.text
        check_all(job.url, "run", job.effects)
        client.settle("run", key, Done(f"sent {name}"))

    end = nursery.run(job)
    assert end is not None
    assert end.value == RESULT, end.text
    assert len(check_all(job.url, "run", job.effects).effects) == 2


def test_one_mail_done_and_one_in_flight_only_the_latter_is_in_doubt(
    nursery: Nursery, folder: Path
) -> None:
    job = Job("parallel", str(folder))
    point = Point("after", "step.completed", "mail", nth=1)
    assert nursery.run(msgspec.structs.replace(job, point=point)) is None

    held = nursery.run(job)

    assert held is not None
    doubtful = [s for s in Client(job.url).run("run").steps if s.status == "in-doubt"]
    done = [s for s in Client(job.url).run("run").steps if s.status == "completed"]
    if held.ended == "returned":  # both completions went into one commit
        assert (held.value, len(done)) == (RESULT, 2)
    else:
        assert (len(doubtful), len(done)) == (1, 1)
    assert len(check_all(job.url, "run", job.effects).effects) == 2


def test_crashes_between_the_attempts_give_a_step_no_more_of_them(
    nursery: Nursery, folder: Path
) -> None:
    job = Job("parallel", str(folder), "hopeless", max_crashes=99)
    for at in reversed(WRITES):
        assert nursery.run(msgspec.structs.replace(job, point=Point(at, "step.failed"))) is None

    end = nursery.run(job)

    assert end is not None
    assert end.value == "gave up: nobody there", end.text
    seen = check_all(job.url, "run", job.effects)
    failed = [s for s, _ in seen.journal if s.kind == "step.failed"]
    crashed = [s for s, _ in seen.journal if s.kind == "step.interrupted"]
    # Attempts that ended with their process before the failure they had seen was recorded count
    # too. After one of those alone the body runs again, to know how it ends.
    assert len(seen.effects) == len(failed) + len(crashed)
    assert len(failed[:-1]) + len(crashed) <= ATTEMPTS
