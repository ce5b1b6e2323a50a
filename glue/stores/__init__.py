"""Stores keep conversations: in memory, in one file each, in SQLite or in Postgres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from glue.errors import ConfigError, GlueError, StoreError
from glue.lazy import lazy_names
from glue.messages import Message
from glue.paths import state_dir
from glue.stores.store import Record, SearchHit, SessionInfo, Store, copy, lineage

__all__ = [
    "FileStore",
    "MemoryStore",
    "PostgresStore",
    "SQLiteStore",
    "SearchHit",
    "SessionInfo",
    "Store",
    "check_store",
    "copy",
    "is_address",
    "lineage",
    "open_store",
    "read_session_file",
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


async def check_store(store: Store) -> tuple[int, list[str]]:
    """Read every session of a store; give how many there are, and what cannot be read."""
    from glue.stores.jsonl import FileStore

    infos, damaged = await store.list(), list[str]()
    for info in infos:
        try:
            await store.load(info.id)
        except GlueError as error:
            damaged.append(f"{info.id}: {error}")
    strays = len(store.paths()) - len(infos) if isinstance(store, FileStore) else 0
    if strays > 0 and not damaged:
        damaged.append(f"{strays} of its files are no conversations")
    return len(infos), damaged


def read_session_file(path: Path) -> tuple[Record, Sequence[Message], Mapping[str, float]] | None:
    """Read the header, the messages and their times from a file of one session; None where it is another file."""
    from glue.stores import jsonl

    database = b"SQLite format 3\0"
    with path.open("rb") as file:
        start = file.read(len(database))
        if start == database:
            raise StoreError(f"{path} is a store of many sessions; name one of them and give the file as --store")
        first = (start + file.readline()).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not any(record["type"] == "header" for record, _ in jsonl.records_in(first + b"\n")):
        return None
    fold, times = jsonl.read(path)
    return fold.header, fold.messages, times
