"""Bringing a store file to the version that this library knows.

Migrations are numbered files. All that are pending run in one transaction together with the
change of the version number, so a store is of one version or another, never between.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources

import apsw

from outlast.errors import StoreError
from outlast.store.connection import connect, disconnect, store_error
from outlast.world import World

APPLICATION_ID = 0x6F75746C  # "outl": how a store is told from any other SQLite file


@cache
def load_migrations() -> tuple[str, ...]:
    """The scripts that ship with the library; number n stands at index n - 1.

    Raises:
        ValueError: the numbers have a gap or a double.
    """
    folder = resources.files("outlast.store").joinpath("sql/migrations")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    numbers = [int(file.name.partition("_")[0]) for file in files]
    if numbers != list(range(1, len(files) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3, ...: {numbers}")
    return tuple(file.read_text(encoding="utf-8") for file in files)


def migrate(path: str, world: World, busy_timeout: float) -> None:
    """Make the file at `path`, which may be empty, a store of the current version.

    Raises:
        StoreError: it is newer, damaged or no store at all, and was left as it is.
    """
    if _peek(path, world, busy_timeout) == (len(load_migrations()), "wal"):
        return  # a copy made by VACUUM INTO is in another mode
    connection = connect(path, world, busy_timeout)
    try:
        _switch_to_wal(connection, path, world, busy_timeout)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")
        # Read again under the lock: another process may have been quicker.
        _apply(connection, read_version(connection, path))
        connection.execute("COMMIT")
    except apsw.Error as exc:
        raise store_error(exc, path, connection) from exc
    finally:
        disconnect(connection)  # rolls back what is not committed


def read_version(connection: apsw.Connection, path: str) -> int:
    """Version of the store behind a connection; 0 if the file is empty.

    Raises:
        StoreError: it is newer than this library, damaged, or no store.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    application = connection.execute("PRAGMA application_id").fetchall()[0][0]
    if not tables and application in (0, APPLICATION_ID):
        return 0
    if application != APPLICATION_ID:
        raise StoreError(
            f"store {path}: this SQLite file belongs to another program; name another file",
            "not-a-store",
        )
    try:
        rows = connection.execute("SELECT version FROM store_version").fetchall()
    except apsw.SQLError:  # no such table, or no such column
        rows = []
    version = rows[0][0] if len(rows) == 1 else None
    if not isinstance(version, int) or version < 1:
        raise StoreError(
            f"store {path} is damaged: table store_version should hold one number and holds "
            f"{[value for (value,) in rows]}; nothing was changed, restore a copy",
            "damaged",
        )
    known = len(load_migrations())
    if version > known:
        raise StoreError(
            f"store {path} has version {version} and this library knows versions up to {known}; "
            "nothing was changed, use a newer outlast",
            "newer",
        )
    return version


def _peek(path: str, world: World, busy_timeout: float) -> tuple[int, str] | None:
    """The version and the journal mode, read through a connection that cannot change a byte. None
    if that is not possible since a crash left a journal that must be rolled back first."""
    connection = connect(path, world, busy_timeout, read_only=True)
    try:
        ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
        return read_version(connection, path), str(mode)
    except apsw.ReadOnlyError as exc:
        # The stubs of apsw do not know this attribute.
        detail: int = getattr(exc, "extendedresult", 0)
        if detail in (apsw.SQLITE_READONLY_ROLLBACK, apsw.SQLITE_READONLY_RECOVERY):
            return None
        raise store_error(exc, path, connection) from exc
    except apsw.Error as exc:
        raise store_error(exc, path, connection) from exc
    finally:
        disconnect(connection)


def _switch_to_wal(
    connection: apsw.Connection, path: str, world: World, busy_timeout: float
) -> None:
    deadline = world.boot() + busy_timeout
    while True:
        try:
            ((mode,),) = connection.execute("PRAGMA journal_mode=WAL").fetchall()
        except apsw.BusyError:
            # This switch does not ask the busy handler.
            if world.boot() >= deadline:
                raise
            world.pause(0.0003 + 0.0017 * world.random())
        else:
            if mode == "wal":
                return
            raise StoreError(
                f"store {path}: its file system has no shared memory for a write-ahead log; "
                "put the store on a local disk",
                "io",
            )


def _apply(connection: apsw.Connection, version: int) -> None:
    pending = load_migrations()[version:]
    for script in pending:
        for statement in _statements(script):
            connection.execute(statement)
    if pending:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute("UPDATE store_version SET version = ?", (version + len(pending),))


def _statements(script: str) -> Iterator[str]:
    """Split at the semicolons that end a statement, which those inside a trigger do not."""
    statement = ""
    for part in re.split(r"(?<=;)\n", script):
        statement += part + "\n"
        if apsw.complete(statement):
            yield statement
            statement = ""
