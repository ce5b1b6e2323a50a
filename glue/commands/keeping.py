"""Where the command line keeps conversations, and which one it goes on with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from glue.config import state_home
from glue.errors import ConfigError

if TYPE_CHECKING:
    from glue.stores.protocol import Store


def store_path(named: str = "", environ: Mapping[str, str] = os.environ) -> Path:
    return Path(named).expanduser() if named else state_home(environ) / "glue" / "sessions"


def open_store(named: str = "") -> Store:
    """Open the store that was named, or the usual one; a .db file is SQLite, anything else a folder."""
    path = store_path(named)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        if path.is_dir():
            raise ConfigError(f"the store {path} is a folder; a name that ends in {path.suffix} is a file")
        from glue.stores.sqlite import SQLiteStore

        path.parent.mkdir(parents=True, exist_ok=True)
        return SQLiteStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"the store {path} is a file; name a folder, or a file that ends in .db")
    from glue.stores.file import FileStore

    return FileStore(path)


async def last_session(store: Store, named: str = "") -> str:
    """Give the id of the conversation that was changed last."""
    sessions = await store.list()
    if not sessions:
        raise ConfigError(f"there is no conversation to continue in {store_path(named)}; begin one with -s NAME")
    return sessions[0].id
