from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effects.stage import Stage
from tests.signals.tables import check_tables


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A fresh stage. What every run must keep to is checked when the test is over."""
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()
    check_tables(stage.url)
