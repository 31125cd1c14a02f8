"""What a database must offer to the writer, and what a unit of work may do in a transaction."""

from collections.abc import MutableMapping, Sequence
from typing import Protocol, TypeVar

SqlValue = None | int | float | str | bytes
Row = tuple[SqlValue, ...]

T_co = TypeVar("T_co", covariant=True)


class Tx(Protocol):
    """An open write transaction.

    Attributes:
        memo: what earlier items of this process found or left in the rows of a run, by its id.
            It is empty whenever somebody else may have written since, so what stands in it need
            not be read again. Who changes a run's rows puts it right or removes it.
    """

    memo: MutableMapping[str, object]

    def run(self, query: str, /, **params: SqlValue) -> list[Row]:
        """Run the statement called `query` in `queries.sql`; return the rows it yields."""
        ...

    def append(self, event: Row) -> None:
        """Insert a row into `events`, its columns in the order of `records.StoredEvent`: before the
        next `run`, or with the commit. So the events of many items go in together."""
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

    def transact(
        self, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        """Apply `items` in order and commit: they survive this process's death. Called by one
        thread at a time.

        Args:
            items: the units of work. One that raises is undone and fails alone.
            wait: for another process's transaction, within the store's limit; otherwise for some
                milliseconds only.

        Returns:
            For each item what it returned, or the exception it raised. None if the wait was over;
            nothing was written then.

        Raises:
            StoreError: the store itself is in trouble; nothing was written.
        """
        ...

    def sync(self) -> None:
        """Wait until all that was committed, by whichever process, survives a power cut too. Any
        thread, also while another one is in `transact`.

        Raises:
            StoreError: it may not. Nothing that was committed lately can be relied on.
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
