from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.worker.stores import get_store
from tests.engine.tools import Bodies, copy_store, url_of


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A store of the test's own."""
    made = url_of(tmp_path / "store.db")
    yield made
    get_store(made).store.close()


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
def replica(url: str, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes copies of the store."""
    made: list[str] = []

    def copy() -> str:
        made.append(copy_store(url, tmp_path / f"copy{len(made)}" / "store.db"))
        return made[-1]

    yield copy
    for one in made:
        get_store(one).store.close()
