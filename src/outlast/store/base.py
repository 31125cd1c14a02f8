"""What a database must offer to the writer, and what a unit of work may do in a transaction."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

SqlValue = None | int | float | str | bytes
Row = tuple[SqlValue, ...]

T_co = TypeVar("T_co", covariant=True)


class Tx(Protocol):
    """An open write transaction."""

    def run(self, query: str, /, **params: SqlValue) -> list[Row]:
        """Run the statement called `query` in `queries.sql`; return the rows it yields."""
        ...


class Item(Protocol[T_co]):
    """One unit of a group commit: written whole or not at all."""

    def apply(self, tx: Tx) -> T_co:
        """Write. May be called again after a rollback, so it changes nothing but the store.

        Raises:
            OutlastError: to refuse, before anything was written.
        """
        ...


class Database(Protocol):
    """One store, as one process has it open."""

    def transact(self, items: Sequence[Item[object]], *, durable: bool) -> list[object | Exception]:
        """Apply `items` in order and commit. Called by one thread at a time.

        Args:
            items: the units of work. One that raises is undone and fails alone.
            durable: the commit survives a power cut; otherwise it survives the process's death.

        Returns:
            For each item what it returned, or the exception it raised.

        Raises:
            StoreError: the store itself is in trouble; nothing was written.
        """
        ...

    def read(self, query: str, /, **params: SqlValue) -> list[Row]:
        """Run a named query outside any transaction, without waiting for a commit. Any thread.

        Raises:
            StoreError: the store itself is in trouble.
        """
        ...

    def close(self) -> None:
        """Give the connections up. Later use raises `StoreError`."""
        ...
