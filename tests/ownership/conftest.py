from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ownership.gated import Gated, gated_run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Gated]:
    with gated_run(tmp_path) as run:
        yield run
