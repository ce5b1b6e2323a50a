"""Stores of sessions: in memory, in one file for each session, in SQLite or in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from glue.errors import ConfigError, GlueError, StoreError
from glue.lazy import lazy_names
from glue.messages import Message
from glue.paths import state_dir
from glue.stores import jsonl
from glue.stores.jsonl import FileStore
from glue.stores.memory import MemoryStore
from glue.stores.records import Record
from glue.stores.search import SearchHit
from glue.stores.store import SessionInfo, Store, copy, lineage
from glue.text import count

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
    from glue.stores.postgres import PostgresStore
    from glue.stores.sqlite import SQLiteStore

# Loaded at first use: sqlite3 is slow to import, and many programs need neither database.
__getattr__, __dir__ = lazy_names(__name__, {"postgres": "PostgresStore", "sqlite": "SQLiteStore"})


def store_path(name: str = "") -> Path:
    """Return `name` as a path, with ~ expanded. "" is the default store, in the state folder."""
    return Path(name).expanduser() if name else state_dir() / "sessions"


def is_address(name: str) -> bool:
    """Return whether the name of a store is the address of a server, such as postgresql://..."""
    return "://" in name


def store_name(name: str = "") -> str:
    """Return the path or address of a store to show to users, without the login and parameters."""
    if not is_address(name):
        return str(store_path(name))
    scheme, _, rest = name.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def open_store(name: str = "") -> Store:
    """Return the store for a name: a server's address, a SQLite file or a folder.

    Args:
        name: an address opens a PostgreSQL store; a path that ends in .db, .sqlite or .sqlite3
            opens a SQLite file; any other path opens a folder of session files. "" opens the
            default folder.
    """
    if is_address(name):
        from glue.stores.postgres import PostgresStore  # needs the extra glue-agents[postgres]

        return PostgresStore(name)
    path = store_path(name)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        if path.is_dir():
            raise ConfigError(
                f"the store {path} is a folder; give a SQLite file, or a name without {path.suffix}"
            )
        from glue.stores.sqlite import SQLiteStore  # sqlite3 is slow to import

        path.parent.mkdir(parents=True, exist_ok=True)
        return SQLiteStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"the store {path} is a file; name a folder, or a file that ends in .db")
    return FileStore(path)


async def check_store(store: Store) -> tuple[int, list[str]]:
    """Load every session of a store; return the number of sessions, and a line about each problem.

    A problem is a session that cannot be read. If all sessions can be read, files in the folder of
    a FileStore that are not sessions are one problem.
    """
    infos, damaged = await store.list(), list[str]()
    for info in infos:
        try:
            await store.load(info.id)
        except GlueError as error:
            damaged.append(f"{info.id}: {error}")
    others = len(store.paths()) - len(infos) if isinstance(store, FileStore) else 0
    if others > 0 and not damaged:
        one, many = "file in the store is not a session", "files in the store are not sessions"
        damaged.append(count(others, one, many))
    return len(infos), damaged


def read_session_file(path: Path) -> tuple[Record, Sequence[Message], Mapping[str, float]] | None:
    """Return the header, messages and storage times of a session file; None for any other file.

    Raise StoreError if the file is a SQLite store.
    """
    database = b"SQLite format 3\0"
    with path.open("rb") as file:
        start = file.read(len(database))
        if start == database:
            raise StoreError(
                f"{path} is a store of many sessions; name a session, and pass the file as --store"
            )
        first = (start + file.readline()).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not any(record["type"] == "header" for record, _ in jsonl.records_in(first + b"\n")):
        return None
    stored, times = jsonl.read(path)
    return stored.header, stored.messages, times
