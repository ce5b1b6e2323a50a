"""Files of stores: permissions and locks."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.sessions import (
    CHILD,
    fill,
    make_store,
    open_files,
    talk,
    write_texts,
)

from glue import user
from glue.errors import SessionBusy, StoreError
from glue.stores import FileStore, SQLiteStore, Store, copy


async def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    await fill(FileStore(tmp_path / "f"), "demo", talk())
    await fill(SQLiteStore(tmp_path / "x.db"), "demo", talk())

    for path in (tmp_path / "f" / "demo.jsonl", tmp_path / "x.db"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o700
    assert sorted(os.listdir(tmp_path)) == ["f", "x.db"]  # lock files are deleted


async def test_a_session_file_is_locked_for_other_processes(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, "file", str(tmp_path)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            with pytest.raises(SessionBusy, match="another process"):
                async with FileStore(tmp_path).log("demo"):
                    pass
        finally:
            child.kill()
    async with FileStore(tmp_path).log("demo") as log:
        assert log.messages


async def test_a_session_that_is_in_use_leaves_no_open_files(durable_store: Store) -> None:
    async with durable_store.log("demo"):
        refused = 0
        before = open_files()
        for _ in range(20):
            with pytest.raises(SessionBusy):
                async with durable_store.log("demo"):
                    pass
            refused += 1

        assert refused == 20
        assert open_files() == before


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that can be mounted as read-only; skip the test if mounting fails."""
    folder = tmp_path / "mount"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs permission to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.name != "posix" or not os.path.exists("/bin/mount"), reason="needs mount")
@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_sessions_on_a_read_only_filesystem_can_be_read(kind: str, mounted: Path) -> None:
    store = make_store(kind, mounted)
    await write_texts(store, "demo", "apples", "pears")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)

    assert [message.text for message in await store.load("demo")] == ["apples", "pears"]
    assert len(await store.list()) == len(await store.search("pears")) == 1
    async with store.log("demo") as log:
        assert len(log.messages) == 2
        with pytest.raises(StoreError, match="is read-only: Read-only file system"):
            await log.append(user("x"))
    with pytest.raises(StoreError, match="Read-only file system"):
        await write_texts(store, "new", "x")
    with pytest.raises(StoreError, match="Read-only file system"):
        await store.delete("demo")
    with pytest.raises(StoreError, match="Read-only file system"):
        await copy(store, "demo", store, "fork")
