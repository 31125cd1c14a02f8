"""Makes a new file a store and dies on the way, where the job's flavour says. At a point that never
comes, it runs a workflow to its end."""

from collections.abc import Iterator

import apsw

from outlast.store import migrations
from outlast.store import open as opening
from outlast.world import World
from tests.crash.points import die
from tests.crash.programs import one_step
from tests.crash.programs.job import Job


def main(job: Job) -> None:
    _arm(job.flavour)
    one_step.main(Job("one_step", job.folder, "read"))


def _arm(point: str) -> None:
    create, peek, wal = opening._create, migrations._peek, migrations._switch_to_wal
    statements, apply, migrate = migrations._statements, migrations._apply, opening.migrate
    done = 0

    def created(path: str) -> None:
        create(path)
        _die_at("file")

    def peeked(path: str, world: World, timeout: float) -> int | None:
        version = peek(path, world, timeout)
        _die_at("peek")
        return version

    def switched(connection: apsw.Connection, path: str, world: World, timeout: float) -> None:
        wal(connection, path, world, timeout)
        _die_at("wal")

    def counted(script: str) -> Iterator[str]:
        nonlocal done
        for statement in statements(script):
            _die_at(f"statement {done}")
            done += 1
            yield statement

    def applied(connection: apsw.Connection, version: int) -> None:
        apply(connection, version)
        _die_at("commit")

    def migrated(path: str, world: World, timeout: float) -> None:
        migrate(path, world, timeout)
        _die_at("committed")

    def _die_at(here: str) -> None:
        if here == point:
            die()

    opening._create = created
    opening.migrate = migrated
    migrations._peek = peeked
    migrations._switch_to_wal = switched
    migrations._statements = counted
    migrations._apply = applied
