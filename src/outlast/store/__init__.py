"""Where runs are kept: protocols, the group-committing `Store`, and the databases behind it."""

from outlast.store.base import Database, Item, Row, SqlValue, Tx
from outlast.store.open import open_store
from outlast.store.writer import Store

__all__ = ["Database", "Item", "Row", "SqlValue", "Store", "Tx", "open_store"]
