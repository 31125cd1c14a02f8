from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effects.stage import Stage
from tests.undo import trip


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A fresh stage. What every run must keep to is checked when the test is over."""
    trip.reset()
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()
