"""Stores keep conversations: in memory, in one file each, in SQLite or in Postgres."""

from glue.lazy import lazy_names
from glue.stores.store import SearchHit, SessionInfo, Store, copy, lineage

__all__ = [
    "FileStore",
    "MemoryStore",
    "PostgresStore",
    "SQLiteStore",
    "SearchHit",
    "SessionInfo",
    "Store",
    "copy",
    "lineage",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue.stores.jsonl import FileStore
    from glue.stores.memory import MemoryStore
    from glue.stores.postgres import PostgresStore
    from glue.stores.sqlite import SQLiteStore

__getattr__, __dir__ = lazy_names(
    __name__, {"jsonl": "FileStore", "memory": "MemoryStore", "postgres": "PostgresStore", "sqlite": "SQLiteStore"}
)
