"""`FileStore`: append-only files that survive damage."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from fakes.examples import examples
from fakes.sessions import (
    fill,
    forbid_writing,
    open_files,
    talk,
    write_texts,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue import Message, user
from glue.errors import NewerSchema, SessionBusy, StoreError
from glue.messages import SCHEMA_VERSION
from glue.stores import FileStore, copy
from glue.stores.jsonl import lines_of_fork


async def test_a_file_of_a_newer_version_can_be_read_but_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    path = store.path("demo")
    path.write_text(
        path.read_text().replace(f'"schema":{SCHEMA_VERSION}', '"schema":99')
        + '{"type":"hologram"}\n{"to'
    )
    before = path.read_bytes()

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == [each.text for each in talk()]
        assert "schema 99" in log.read_only
        with pytest.raises(NewerSchema, match="it can be read but not changed; upgrade"):
            await log.append(user("x"))

    assert path.read_bytes() == before
    assert len(await store.load("demo")) == 4
    assert caplog.messages == [log.read_only]


async def test_an_appended_message_adds_one_line_to_the_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path, sync=False)
    await fill(store, "demo", tuple(user(str(i)) for i in range(200)))
    before = store.path("demo").read_bytes()

    await fill(store, "demo", (user("one more"),))

    after = store.path("demo").read_bytes()
    assert after.startswith(before)
    assert after[len(before) :].count(b"\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        b"my shopping list\nmilk\n",
        b"\nmilk\n",
        b'{"type":"header"}\n',
        b'{"type":"message","session":"demo"}\n',
    ],
)
async def test_a_file_that_is_not_a_session_is_not_changed(tmp_path: Path, content: bytes) -> None:
    store = FileStore(tmp_path)
    store.path("demo").write_bytes(content)

    with pytest.raises(StoreError, match="does not begin with a session header"):
        await fill(store, "demo", talk())

    assert store.path("demo").read_bytes() == content
    assert await store.list() == ()


async def test_the_time_of_an_update_is_never_before_the_creation(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    os.utime(store.path("demo"), (1, 1))  # file times may be behind the clock

    (info,) = await store.list()

    assert info.updated == info.created > 1


async def test_a_session_with_an_invalid_time_is_listed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    path = store.path("demo")
    header, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps({**json.loads(header), "created": "noon"}).encode() + b"\n" + rest)

    (info,) = await store.list()

    assert info.created == 0.0


async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    (tmp_path / "elsewhere").write_text("")
    store.path("demo").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError, match="cannot be opened"):
        await fill(store, "demo", talk())


async def test_a_file_with_the_name_of_another_session_is_rejected(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    store.path("demo").rename(store.path("other"))

    with pytest.raises(StoreError, match="contains the session 'demo'"):
        await fill(store, "other", talk())


async def test_a_full_disk_is_reported_and_the_incomplete_record_is_removed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    size = store.path("demo").stat().st_size
    code = f"""
import anyio, resource, signal
from glue import user
from glue.errors import StoreError
from glue.stores import FileStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 100}, {size + 100}))
async def main():
    async with FileStore({str(tmp_path)!r}).log("demo") as log:
        for _ in range(2):
            try:
                await log.append(user("x" * 1000))
            except StoreError as error:
                print(error)
anyio.run(main)
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert "could not be written" in done.stdout
    assert "an earlier write failed" in done.stdout
    assert store.path("demo").stat().st_size == size


def damage(kind: str, data: bytes, at: int, noise: bytes) -> bytes:
    """Return the data with its end damaged from an offset on."""
    at = min(at, len(data))
    if kind == "cut":
        return data[:at]
    if kind == "nul":  # blocks that were allocated but not written
        return data[:at] + bytes(len(data) - at)
    if kind == "noise":
        return data[:at] + noise
    return data + noise  # an incomplete record after the last one


@pytest.fixture(scope="module")
def undamaged(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[FileStore, tuple[Message, ...], bytes]:
    store = FileStore(tmp_path_factory.mktemp("damage"), sync=False)
    written = tuple(user(f"{i} é\n" * 3) for i in range(5))
    anyio.run(fill, store, "demo", written)
    return store, written, store.path("demo").read_bytes()


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kind=st.sampled_from(["cut", "nul", "noise", "tail"]),
    back=st.integers(0, 900),
    noise=st.binary(max_size=40)
    | st.sampled_from([b'{"type":"message","mess', "é".encode()[:1], b"{}\n", b"\n"]),
)
def test_a_file_with_a_damaged_end_loads_the_messages_before_it(
    undamaged: tuple[FileStore, tuple[Message, ...], bytes], kind: str, back: int, noise: bytes
) -> None:
    store, written, whole = undamaged
    path, extra = store.path("demo"), user("after")
    first = whole.index(b"\n") + 1  # a damaged header is tested elsewhere
    at = max(first, len(whole) - back)
    path.write_bytes(damage(kind, whole, at, noise))
    kept = whole[:at].count(b"\n") - 1 if kind != "tail" else len(written)

    async def check() -> None:
        found = await store.load("demo")
        assert found == written[: len(found)]
        assert len(found) >= kept
        async with store.log("demo") as log:
            assert log.messages == found
            await log.append(extra)

        assert await store.load("demo") == (*found, extra)
        for line in path.read_bytes().splitlines():
            json.loads(line)

    anyio.run(check)


async def test_an_incomplete_record_is_moved_to_a_file_beside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    with store.path("demo").open("ab") as file:
        file.write(b'{"type":"message","me')

    before = open_files()
    await fill(store, "demo", (user("next"),))

    side = tmp_path / "demo.torn"
    assert open_files() == before
    assert caplog.messages == [
        f"session 'demo': 21 bytes of an incomplete record were moved to {side}"
    ]
    assert side.read_bytes() == b'{"type":"message","me\n'
    assert stat.S_IMODE(side.stat().st_mode) == 0o600
    assert len(await store.load("demo")) == 5
    await store.delete("demo")
    assert list(tmp_path.iterdir()) == []


async def test_writes_that_the_system_cuts_short_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    with store.path("demo").open("ab") as file:
        file.write(b'{"type":"message","me')
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))

    await fill(store, "demo", (user("next"),))

    assert (tmp_path / "demo.torn").read_bytes() == b'{"type":"message","me\n'
    assert len(await store.load("demo")) == 5


@pytest.mark.parametrize("left", [b"", b'{"type":"hea', bytes(50)])
async def test_a_session_killed_at_its_first_write_starts_empty(
    tmp_path: Path, left: bytes
) -> None:
    store = FileStore(tmp_path)
    store.path("demo").write_bytes(left)

    await fill(store, "demo", talk())

    assert len(await store.load("demo")) == 4


async def test_the_error_of_a_failed_write_is_repeated_until_the_session_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    real = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with store.log("demo") as log:
        await log.append(user("one"))
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            await log.append(user("two"))
        monkeypatch.setattr(os, "write", real)
        with pytest.raises(StoreError, match=r"No space left.*an earlier write failed"):
            await log.append(user("three"))

    assert [message.text for message in await store.load("demo")] == ["one"]
    async with store.log("demo") as log:
        await log.append(user("four"))


async def test_a_file_without_write_permission_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples")
    forbid_writing(monkeypatch)

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["apples"]
        with pytest.raises(StoreError, match="is read-only: Permission denied"):
            await log.append(user("x"))
    with pytest.raises(StoreError, match="Permission denied"):
        await write_texts(store, "new", "x")


async def test_a_file_without_read_permission_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples")
    forbid_writing(monkeypatch)

    def refuse(*given: Any, **named: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), *given[:1])

    monkeypatch.setattr(io, "open", refuse)

    with pytest.raises(StoreError, match="session 'demo' cannot be opened: Permission denied"):
        await write_texts(store, "demo", "x")
    assert await store.search("apples") == ()


@pytest.mark.parametrize(
    "content", [b"", b"my shopping list\nmilk\n", b"\xff\xfe\n", b'{"type":"message"}\n', b"apples"]
)
async def test_files_that_are_not_sessions_are_ignored(tmp_path: Path, content: bytes) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples")
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "z.jsonl").write_bytes(content)
    os.mkfifo(tmp_path / "pipe.jsonl")

    assert [info.id for info in await store.list()] == ["demo"]
    assert [hit.session for hit in await store.search("apples")] == ["demo"]


async def test_a_record_nested_too_deeply_is_removed_like_an_incomplete_one(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "one")
    with store.path("demo").open("a") as file:
        file.write("[" * 100_000 + "\n")

    assert [message.text for message in await store.load("demo")] == ["one"]
    await write_texts(store, "demo", "two")
    assert [message.text for message in await store.load("demo")] == ["one", "two"]


NEWER: list[dict[str, Any]] = [
    {"type": "hologram", "data": [1]},
    {"type": "message", "at": 1.0, "message": {"v": 1, "role": "oracle", "id": "o", "content": []}},
    {
        "type": "message",
        "at": 1.0,
        "message": {"v": 99, "role": "user", "id": "n", "content": "new"},
    },
    {"type": "amend", "id": "unknown", "fields": {"aura": 1}},
]


@pytest.mark.parametrize("record", NEWER, ids=["record", "role", "version", "change"])
async def test_a_record_of_a_newer_version_is_skipped_and_kept(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "one")
    with store.path("demo").open("a") as file:
        file.write(json.dumps(record) + "\n")
    await write_texts(store, "demo", "two")
    before = store.path("demo").read_bytes()

    async with store.log("demo") as log:
        assert [message.text for message in log.messages] == ["one", "two"]
        await log.append(user("three"))

    assert store.path("demo").read_bytes().startswith(before)
    assert json.loads(store.path("demo").read_bytes().splitlines()[2]) == record
    assert [message.text for message in await store.load("demo")] == ["one", "two", "three"]
    assert not store.path("demo").with_suffix(".torn").exists()


@pytest.mark.parametrize(
    "record",
    [
        {"type": "drop", "ids": 5},
        {"type": "amend", "id": "x", "fields": 5},
        {"type": "message", "at": "noon"},
    ],
    ids=["drop", "amend", "time"],
)
async def test_a_damaged_record_does_not_break_a_search(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples")
    if record["type"] == "message":
        record = {
            **record,
            "message": {"role": "user", "id": "n", "content": [{"type": "text", "text": "pears"}]},
        }
    with store.path("demo").open("ab") as file:
        file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    assert len(await store.search("apples", since=1.0)) == 1
    assert len(await store.search("pears")) == (record["type"] == "message")


async def test_a_damaged_record_does_not_bring_back_dropped_messages(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    async with store.log("demo") as log:
        await log.extend((user("apples"), user("apples too")))
        await log.drop([log.messages[0].id])
    with store.path("demo").open("ab") as file:
        file.write(b'{"type":"drop","ids":5}\n')

    assert len(await store.search("apples")) == 1


async def test_a_line_with_several_matches_is_one_hit(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples, apples and apples", "pears", "more apples, apples")

    assert [hit.snippet for hit in await store.search("apples")] == [
        "more [apples], [apples]",
        "[apples], [apples] and [apples]",
    ]


async def test_an_incomplete_line_is_not_found(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples", "apples too")
    path = store.path("demo")
    path.write_bytes(path.read_bytes()[:-1])

    assert [hit.snippet for hit in await store.search("apples")] == ["[apples]"]


async def test_a_fork_copies_plain_lines_and_folds_changed_ones(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "plain", talk())
    await copy(store, "plain", store, "all")
    await copy(store, "plain", store, "two", at=2)
    async with store.log("plain") as log:
        await log.exclude([log.messages[1].id])
        await log.amend(log.messages[3].id, {"meta": {"x": 1}})
        await copy(store, "plain", store, "changed", at=3)
        assert list(await store.load("changed")) == list(log.messages[:3])
        await log.drop([log.messages[0].id])
    await copy(store, "plain", store, "folded", at=2)

    lines = {name: (tmp_path / f"{name}.jsonl").read_bytes().splitlines()[1:] for name in ("all",)}
    original = (tmp_path / "plain.jsonl").read_bytes().splitlines()
    assert lines["all"] == original[1:5]
    whole = await store.load("all")
    assert list(await store.load("two")) == list(whole[:2])
    assert [each.id for each in await store.load("folded")] == [each.id for each in whole[1:3]]
    forks = {info.id: (info.parent, info.forked_at) for info in await store.list()}
    assert forks["all"] == ("plain", 4)
    assert forks["folded"] == ("plain", 2)
    with pytest.raises(StoreError, match="already exists"):
        await copy(store, "all", store, "two")
    with pytest.raises(ValueError, match="cannot be forked at 9"):
        await copy(store, "all", store, "new", at=9)


@pytest.mark.parametrize("sync", [True, False])
async def test_a_record_is_awaited_on_the_disk_only_if_sync_is_set(
    sync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def record(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        real(fd)

    real = os.fdatasync
    store = FileStore(tmp_path, sync=sync)
    await write_texts(store, "demo", "one")
    monkeypatch.setattr(os, "fdatasync", record)

    async with store.log("demo") as log:
        assert log.blocks == sync
        await log.append(user("two"))
    assert synced == ["demo.jsonl"] * sync

    with store.path("demo").open("ab") as file:
        file.write(b'{"type":"message","me')
    async with store.log("demo"):
        pass
    # The incomplete record is saved in its new place before it is removed.
    assert synced[1:] == ["demo.torn", "demo.jsonl"] * sync


async def test_a_list_reads_only_the_beginning_of_each_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "apples", "pears")
    os.truncate(store.path("demo"), 2**40)  # more bytes than fit into memory

    (info,) = await store.list()

    assert (info.id, info.title) == ("demo", "apples")


async def test_a_session_is_listed_with_a_title_if_its_first_message_ends_within_64_kib(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path)
    await write_texts(store, "demo", "")
    size = store.path("demo").stat().st_size
    header, record = store.path("demo").read_bytes().splitlines()
    titles: list[str] = []

    for length in (65_536 - size, 65_537 - size):
        text = b'"text":"' + b"x" * length
        store.path("demo").write_bytes(b"%b\n%b\n" % (header, record.replace(b'"text":"', text)))
        titles += [info.title for info in await store.list()]

    assert titles == ["x" * 80, ""]


async def test_a_fork_keeps_changes_as_records_and_leaves_excluded_messages_out_if_it_is_live(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path)
    async with store.log("demo") as log:
        await log.extend((user("one"), user("two"), user("three")))
        await log.exclude([log.messages[0].id])

    await copy(store, "demo", store, "all")
    await copy(store, "demo", store, "live", at=2, live=True)

    assert store.path("all").read_bytes().count(b'{"type":"exclude"') == 1
    assert store.path("live").read_bytes().count(b'{"type":"exclude"') == 0
    assert [message.text for message in await store.load("live")] == ["two"]
    assert [info.forked_at for info in await store.list() if info.id == "live"] == [2]
    with pytest.raises(ValueError, match="has 3 messages; it cannot be forked at 4"):
        await copy(store, "demo", store, "more", at=4, live=True)


async def test_a_rejected_change_writes_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    async with store.log("demo") as log:
        await log.append(user("one"))
        before = store.path("demo").read_bytes()
        for change in (log.insert(user("zero"), "unknown"), log.amend("unknown", {})):
            with pytest.raises(StoreError, match="no message 'unknown'"):
                await change

    assert store.path("demo").read_bytes() == before


async def test_a_fork_decodes_messages_only_if_some_were_inserted_or_removed(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path)
    async with store.log("demo") as log:
        await log.extend((user("one"), user("two"), user("three")))
        await log.exclude([log.messages[0].id])
        await log.amend(log.messages[1].id, {"meta": {"x": 1}})
        data = store.path("demo").read_bytes()
        await log.insert(user("zero"), log.messages[0].id)
        inserted = store.path("demo").read_bytes()

    _, one, two, three, *changes = data.splitlines(keepends=True)
    assert lines_of_fork(data + b'{"type":"mess', None) == ([one, two, three, *changes], 3)
    assert lines_of_fork(data, 1) == ([one, *changes], 3)
    assert lines_of_fork(data, 0) == (changes, 3)
    assert lines_of_fork(inserted, None) is None
    assert lines_of_fork(data + b'{"type":"drop","ids":[]}\n', None) is None


def test_an_id_is_escaped_to_at_most_240_bytes(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    assert store.path("/" * 80) == tmp_path / ("%2F" * 80 + ".jsonl")
    with pytest.raises(ValueError, match="241 bytes with escapes, but at most 240 are possible"):
        store.path("/" * 80 + "a")


async def test_a_deleted_file_is_closed_and_its_name_is_removed_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, synced = FileStore(tmp_path), list[str]()
    await write_texts(store, "demo", "one")
    before = open_files()

    def record(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", record)
    await store.delete("demo")

    assert synced == [str(tmp_path)]
    assert open_files() == before


async def test_a_session_in_use_cannot_be_deleted(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async with store.log("demo") as log:
        await log.append(user("one"))
        with pytest.raises(SessionBusy, match="session 'demo' is in use"):
            await store.delete("demo")

    assert len(await store.load("demo")) == 1


async def test_a_session_entered_again_reads_only_its_header_and_new_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = FileStore(tmp_path), list[bytes]()
    log = store.log("demo")
    async with log:
        await log.append(user("x" * 1000))
    header = store.path("demo").read_bytes().splitlines(keepends=True)[0]

    def record(fd: int, length: int, offset: int) -> bytes:
        read.append(real(fd, length, offset))
        return read[-1]

    real = os.pread
    monkeypatch.setattr(os, "pread", record)

    async with log:
        assert b"".join(read) == header
    await write_texts(store, "demo", "new")
    read.clear()
    async with log:
        assert len(b"".join(read)) < 1000
        assert [len(message.text) for message in log.messages] == [1000, 3]


async def test_a_file_is_read_again_after_it_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    log = store.log("demo")
    async with log:
        await log.append(user("one"))
    await write_texts(store, "demo", "two")
    with monkeypatch.context() as patch:
        forbid_writing(patch)
        async with log:
            assert [message.text for message in log.messages] == ["one", "two"]

    async with log:
        assert log.read_only == ""
        assert [message.text for message in log.messages] == ["one", "two"]
        await log.append(user("three"))

    assert [message.text for message in await store.load("demo")] == ["one", "two", "three"]


async def test_a_log_whose_session_is_in_use_can_be_entered_later(tmp_path: Path) -> None:
    store = FileStore(tmp_path, sync=False)
    log = store.log("demo")
    assert log.blocks  # opening reads the file
    async with log:
        assert not log.blocks
    assert log.blocks
    async with store.log("demo"):
        before = open_files()
        with pytest.raises(SessionBusy, match="session 'demo' is in use"):
            await log.__aenter__()
        assert open_files() == before

    async with log:
        await log.append(user("one"))
    assert len(await store.load("demo")) == 1


async def test_a_long_session_is_loaded_completely(tmp_path: Path) -> None:
    store = FileStore(tmp_path, sync=False)
    await write_texts(store, "demo", *["x" * 10_000] * 10)

    assert len(await store.load("demo")) == 10
