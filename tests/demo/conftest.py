from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.demo.children import Children


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Starts servers as real processes and ends them after the test."""
    with Children(tmp_path / "logs") as children:
        yield children
