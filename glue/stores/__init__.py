"""Where conversations are kept: in memory, in one file each, in SQLite or in Postgres."""

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

_HOMES = {"FileStore": "jsonl", "MemoryStore": "memory", "PostgresStore": "postgres", "SQLiteStore": "sqlite"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'glue.stores' has no attribute {name!r}")
    return getattr(__import__(f"glue.stores.{home}", fromlist=[name]), name)
