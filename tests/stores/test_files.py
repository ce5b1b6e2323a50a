"""Files of stores: permissions and locks."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from glue.stores.files import pread, sync_data


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


def test_pread_returns_the_bytes_between_two_offsets(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcdef")

    with (tmp_path / "x").open("rb") as file:
        found = [pread(file.fileno(), *each) for each in ((0, 2), (2, 4), (3, 3), (4, 99))]

    assert found == [b"ab", b"cd", b"", b"ef"]


async def test_each_new_name_is_on_the_disk_before_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def record(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        real(fd)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", record)
    folder = tmp_path / "deep" / "files"

    for sync, name, expected in (
        (True, "one", ["deep", "files"]),  # the names of the folder and of the file
        (True, "one", []),
        (True, "two", ["files"]),
        (False, "three", []),
    ):
        async with FileStore(folder, sync=sync).log(name) as log:
            await log.append(user("x"))
        assert synced == expected
        synced.clear()


async def test_a_session_file_that_is_deleted_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "old")
    before, deleted = open_files(), list[Path]()

    def lock_late(fd: int, operation: int) -> None:
        if not deleted:  # another process deletes the session just before it is locked here
            deleted.append(store.path("demo"))
            deleted[0].unlink()
        real(fd, operation)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lock_late)
    await write_texts(store, "demo", "new")

    assert deleted
    assert open_files() == before
    assert [message.text for message in await store.load("demo")] == ["new"]


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_store_may_use_the_descriptor_0(kind: str, tmp_path: Path) -> None:
    stdin = os.dup(0)
    os.close(0)
    try:
        store = make_store(kind, tmp_path)
        for text in ("one", "two"):
            await write_texts(store, "demo", text)
        assert [message.text for message in await store.load("demo")] == ["one", "two"]
        if kind == "file":
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(0)  # the session file is closed
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)

    assert list(tmp_path.glob("**/*.lock")) == []


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_the_folder_of_a_store_is_created_for_its_owner_only(
    kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "deep" / "private"
    store = FileStore(folder) if kind == "file" else SQLiteStore(folder / "x.db")

    await write_texts(store, "demo", "apples")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(await store.list()) == 1


@pytest.mark.parametrize("maker", [FileStore, SQLiteStore])
def test_a_wrong_argument_of_a_store_is_named(maker: Any) -> None:
    name = "root" if maker is FileStore else "path"

    for wrong in (5, None):
        with pytest.raises(TypeError, match=f"{name} must be a path"):
            maker(wrong)
    with pytest.raises(TypeError, match="sync must be True or False, not 'no'"):
        maker("x", sync="no")


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


@pytest.mark.parametrize(
    ("platform", "expected"), [("linux", "fdatasync"), ("darwin", "F_FULLFSYNC")]
)
def test_written_data_is_flushed_to_the_disk_itself(
    platform: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append((fd, "fdatasync")), raising=False)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", "F_FULLFSYNC", raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: calls.append(arguments))

    sync_data(7)

    assert calls == [(7, expected)]
