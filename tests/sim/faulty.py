"""A database that fails on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from outlast.errors import StoreError
from outlast.store.base import Item
from outlast.store.sqlite import SqliteDatabase

How = Literal["refused", "refused from then on", "committed", "not synced"]
"""One transaction writes nothing and says so; all of them from then on; one is committed, and its
caller gets an error nevertheless; or the disk fails when it is to keep what was committed."""


@dataclass
class Fault:
    """Strikes at the transaction of number `at`, from 0.

    Attributes:
        struck: it did.
    """

    how: How
    at: int
    struck: bool = False
    _seen: int = -1

    def due(self) -> bool:
        self._seen += 1
        persistent = self.how == "refused from then on"
        due = self._seen == self.at or (persistent and self._seen > self.at)
        self.struck |= due
        return due


class FaultyDatabase(SqliteDatabase):
    """SQLite whose write transactions meet `fault`, as long as there is one."""

    fault: ClassVar[Fault | None] = None

    def transact(
        self, items: Sequence[Item[object]], *, wait: bool = True
    ) -> list[object | Exception] | None:
        fault = self.fault
        if fault is None or fault.how == "not synced" or not fault.due():
            return super().transact(items, wait=wait)
        if fault.how == "committed":
            super().transact(items)
            raise StoreError("the disk said no after it had said yes", "io")
        raise StoreError("no space is left", "full")

    def sync(self) -> None:
        fault = self.fault
        if fault is not None and fault.how == "not synced" and fault.due():
            raise StoreError("the disk failed", "io")
        super().sync()
