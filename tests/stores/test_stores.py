"""The package `glue.stores`: stores by name, and checks of whole stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.sessions import write_texts

import glue.stores
from glue.errors import ConfigError, StoreError
from glue.stores import (
    FileStore,
    MemoryStore,
    SessionInfo,
    SQLiteStore,
    check_store,
    open_store,
    read_session_file,
    store_name,
    store_path,
)


def test_an_unknown_store_class_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="RedisStore"):
        _ = glue.stores.RedisStore


def test_a_path_names_a_folder_or_a_sqlite_file(tmp_path: Path) -> None:
    folder, file = open_store(str(tmp_path / "files")), open_store(str(tmp_path / "new" / "x.db"))

    assert isinstance(folder, FileStore)
    assert folder.root == tmp_path / "files"
    assert isinstance(file, SQLiteStore)
    assert file.path.parent.is_dir()
    for _ in range(2):
        deep = open_store(str(tmp_path / "very" / "deep" / "x.sqlite3"))
        assert isinstance(deep, SQLiteStore)
        assert deep.path.parent.is_dir()


def test_the_default_store_is_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert store_path() == tmp_path / "glue" / "sessions"
    assert isinstance(open_store(), FileStore)


def test_a_path_of_the_wrong_kind_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(
        ConfigError, match=r"is a folder; give a SQLite file, or a name without \.db"
    ):
        open_store(str(tmp_path / "x.db"))
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        open_store(str(tmp_path / "file"))


def test_an_address_is_named_without_its_password() -> None:
    name = store_name("postgresql://me:hunter22@db.example:5432/x?options=-c")

    assert name == "postgresql://db.example:5432/x"


async def test_check_store_reports_files_that_are_not_sessions(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "good", "apples")
    assert await check_store(store) == (1, [])

    store.path("bad").write_text("my shopping list\n")

    assert await check_store(store) == (1, ["1 file in the store is not a session"])


async def test_check_store_reports_files_only_in_a_folder_of_session_files(tmp_path: Path) -> None:
    for store in (MemoryStore(), SQLiteStore(tmp_path / "x.db")):
        await write_texts(store, "good", "apples")

        assert await check_store(store) == (1, [])

    files = FileStore(tmp_path / "files")
    await write_texts(files, "good", "apples")
    for name in ("bad", "worse"):
        files.path(name).write_text("my shopping list\n")
    assert await check_store(files) == (1, ["2 files in the store are not sessions"])


class Shared(MemoryStore):
    """A store whose sessions another program deletes after they were listed."""

    async def list(self) -> tuple[SessionInfo, ...]:
        found = await super().list()
        for info in found:
            await self.delete(info.id)
        return found


async def test_check_store_reports_sessions_that_cannot_be_read() -> None:
    store = Shared()
    await write_texts(store, "a", "apples")
    await write_texts(store, "b", "pears")

    count, problems = await check_store(store)

    assert count == 2
    assert sorted(problems) == [
        "a: there is no session 'a'; there are: none",
        "b: there is no session 'b'; there are: none",
    ]


async def test_a_session_file_is_read_with_its_header_and_times(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    messages = await write_texts(store, "demo", "apples")

    found = read_session_file(store.path("demo"))

    assert found is not None
    header, stored, times = found
    assert header["session"] == "demo"
    assert tuple(stored) == messages
    assert set(times) == {messages[0].id}


async def test_other_files_are_not_read_as_sessions(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("milk\n")
    await write_texts(SQLiteStore(tmp_path / "x.db"), "demo", "apples")

    assert read_session_file(tmp_path / "list.txt") is None
    with pytest.raises(StoreError, match="is a store of many sessions"):
        read_session_file(tmp_path / "x.db")
