from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.programs import desk
from tests.serving.stage import Stage, stage_in


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(desk, "folder", tmp_path)  # for runs that the test itself serves
    with stage_in(tmp_path) as stage:
        yield stage
