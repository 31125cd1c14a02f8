"""A process dies while it makes a new file a store; the next one finds a store or makes it one."""

from pathlib import Path

import msgspec
import pytest

from outlast.store.migrations import _statements, load_migrations
from tests.checkers import check_all
from tests.crash.nursery import Nursery
from tests.crash.programs.first_open import AFTER
from tests.crash.programs.job import Job
from tests.crash.programs.one_step import RESULT

STATEMENTS = sum(1 for script in load_migrations() for _ in _statements(script))

POINTS = [*AFTER, *(f"statement {number}" for number in range(STATEMENTS))]


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_a_migration_a_store_is_of_one_version_or_the_other(
    nursery: Nursery, folder: Path, point: str
) -> None:
    job = Job("first_open", str(folder), point)
    assert nursery.run(job) is None

    end = nursery.run(msgspec.structs.replace(job, flavour="never"))

    assert end is not None
    assert end.value == RESULT, end.text
    check_all(job.url, "run", job.effects)
