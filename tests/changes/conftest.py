from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.worker.stores import get_store
from tests.changes.programs import Workshop
from tests.engine.tools import Bodies, url_of


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    """A workshop of the test's own."""
    folder = tmp_path / "shop"
    folder.mkdir()
    shop = Workshop(folder)
    yield shop
    shop.close()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A store of the test's own."""
    made = url_of(tmp_path / "store.db")
    yield made
    get_store(made).store.close()


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()
