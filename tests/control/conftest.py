from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.stoppable import Stoppable, stoppable_run


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Stoppable]:
    with stoppable_run(tmp_path) as run:
        yield run
