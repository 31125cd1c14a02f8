"""What a claim says of a run is what the store has: the row is not read again after the writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.leases import Claim, Claimed, Create, NewRun, lease_from
from outlast.records import Source
from outlast.store import Store, open_store
from outlast.views import read_run
from tests.store.helpers import url_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(url_of(tmp_path / "a.db"))
    yield store
    store.close()


def claim(store: Store, create: Create | None, source: Source | None) -> Claim:
    world = store.world
    return Claim(
        run_id="r",
        workflow="flow",
        world=world,
        owner=world.identity(),
        lease=lease_from(world, 30.0),
        at=world.wall(),
        create=create,
        source=source,
    )


@pytest.mark.parametrize("moved", [None, Source("/else/where.py", "where", "flow")])
def test_a_created_and_a_claimed_row(store: Store, moved: Source | None) -> None:
    source = Source("/some/place.py", "place", "flow")
    new = NewRun("r", "flow", b"{}", "digest", source, {"team": "desk"})
    create = Create(new, "uid", "trace", store.world.wall(), "0.1.0")
    row, created = store.write(create, durable=False)
    assert created
    assert row == read_run(store, "r")
    for source_now in (source, moved):
        claimed = store.write(claim(store, create, source_now), durable=False)
        assert isinstance(claimed, Claimed)
        assert claimed.row == read_run(store, "r")
