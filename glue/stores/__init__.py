"""Stores keep conversations: in memory, in one file each, in SQLite or in Postgres."""

from __future__ import annotations

from pathlib import Path

from glue.errors import ConfigError
from glue.lazy import lazy_names
from glue.paths import state_dir
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
    "is_address",
    "lineage",
    "open_store",
    "store_name",
    "store_path",
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


def store_path(named: str = "") -> Path:
    return Path(named).expanduser() if named else state_dir() / "sessions"


def is_address(named: str) -> bool:
    """Tell whether a store is named by the address of a server."""
    return "://" in named


def store_name(named: str = "") -> str:
    """Name a store in a message; an address without its user and password."""
    if not is_address(named):
        return str(store_path(named))
    scheme, _, rest = named.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def open_store(named: str = "") -> Store:
    """Open the store that was named, or the usual one: an address is Postgres, a .db file SQLite, the rest folders."""
    if is_address(named):
        from glue.stores.postgres import PostgresStore

        return PostgresStore(named)
    path = store_path(named)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        if path.is_dir():
            raise ConfigError(f"the store {path} is a folder; a name that ends in {path.suffix} is a file")
        from glue.stores.sqlite import SQLiteStore

        path.parent.mkdir(parents=True, exist_ok=True)
        return SQLiteStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"the store {path} is a file; name a folder, or a file that ends in .db")
    from glue.stores.jsonl import FileStore

    return FileStore(path)
