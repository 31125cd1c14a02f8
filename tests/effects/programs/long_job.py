"""A step that is under way for two heartbeats. Point `working`: it has seen them."""

import sys
from contextlib import closing

import apsw

import outlast
from outlast.world import World
from tests.effects.stage import DEADLINE, Stage

stage = Stage(sys.argv[1])
LEASE = 0.6


def lease_end() -> float:
    """When the lease of the run ends, as another process sees it."""
    path = f"file:{stage.folder}/store.db?mode=ro"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with closing(apsw.Connection(path, flags=flags)) as database:
        database.set_busy_timeout(5000)
        ((end,),) = database.execute("SELECT lease_wall FROM runs").fetchall()
    assert isinstance(end, float)
    return end


@outlast.step
def job() -> str:
    if stage.has("quick"):
        return "done"
    world = World()
    begun, end, last = world.boot(), lease_end(), 0
    while last < 2:
        assert world.boot() < begun + DEADLINE
        world.pause(0.01)
        now = lease_end()
        last += now != end
        end = now
    stage.log(end - LEASE)
    stage.reach("working")
    return "done"


@outlast.workflow(budget=outlast.Budget(seconds=1000))
def flow() -> str:
    return job()


if __name__ == "__main__":
    settings = outlast.Settings(lease=LEASE)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url, settings=settings))
