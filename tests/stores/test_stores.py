"""Stores keep what they acknowledged, as an exact prefix, whatever happens to the process or the file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from fakes.sessions import CHILD, POSTGRES, fill, kill_many, make_store, talk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue import AssistantMessage, Message, StopReason, user
from glue.errors import NewerSchema, SessionBusy, StoreError
from glue.messages import SCHEMA_VERSION
from glue.stores import FileStore, SQLiteStore, Store, copy, lineage


@pytest.fixture(params=["memory", "file", "sqlite", POSTGRES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, tmp_path, request)


# What every store does ---------------------------------------------------------------------------


async def test_what_is_appended_is_loaded(store: Store) -> None:
    messages = talk()

    await fill(store, "demo", messages)

    assert await store.load("demo") == messages
    async with store.log("demo") as log:
        assert log.messages == messages


async def test_records_fold_into_the_conversation(store: Store) -> None:
    ask, asked, found, told = talk()
    summary = user("so far", origin="summary")

    async with store.log("demo") as log:
        await log.extend((ask, asked, found, told))
        await log.amend(told.id, {"stop_reason": StopReason.MAX_TURNS, "meta": {"a": 1}})
        await log.insert(summary, found.id)
        await log.exclude([ask.id, "nobody"])
        await log.drop([asked.id, "nobody"])
        live = log.messages

    assert [message.id for message in live] == [ask.id, summary.id, found.id, told.id]
    assert [message.excluded for message in live] == [True, False, False, False]
    last = live[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.meta, last.text) == (StopReason.MAX_TURNS, {"a": 1}, told.text)
    assert await store.load("demo") == live


async def test_many_inserts_at_one_place_keep_their_order(store: Store) -> None:
    first, last = user("first"), user("last")
    between = [user(str(i)) for i in range(80)]

    async with store.log("demo") as log:
        await log.extend((first, last))
        for message in between:
            await log.insert(message, last.id)

    assert await store.load("demo") == (first, *between, last)


async def test_a_change_to_an_unknown_message_is_refused_and_nothing_is_stored(store: Store) -> None:
    await fill(store, "demo", talk())

    async with store.log("demo") as log:
        before = log.messages
        with pytest.raises(StoreError, match="no message 'nobody'"):
            await log.amend("nobody", {"meta": {}})
        with pytest.raises(StoreError, match="no message 'nobody'"):
            await log.insert(user("x"), "nobody")

    assert await store.load("demo") == before


@pytest.mark.parametrize("store", ["file", "sqlite", POSTGRES], indirect=True)
async def test_what_cannot_be_written_whole_is_not_written_at_all(store: Store) -> None:
    bad = replace(user("bad"), meta={"no": object()})

    async with store.log("demo") as log:
        with pytest.raises(TypeError):
            await log.extend((user("good"), bad))
        assert log.messages == ()
        await log.append(user("next"))

    assert [message.text for message in await store.load("demo")] == ["next"]


async def test_a_session_has_one_writer_at_a_time(store: Store) -> None:
    async with store.log("demo") as log:
        with pytest.raises(SessionBusy, match="session 'demo' is in use"):
            async with store.log("demo"):
                pass
        with pytest.raises(SessionBusy):
            await store.delete("demo")
        await log.append(user("still mine"))
        async with store.log("other"):
            pass

    async with store.log("demo") as log:
        assert len(log.messages) == 1


async def test_a_log_outside_its_block_cannot_be_written(store: Store) -> None:
    log = store.log("demo")
    with pytest.raises(StoreError, match="not open"):
        await log.append(user("x"))

    async with log:
        pass
    with pytest.raises(StoreError, match="not open"):
        await log.append(user("x"))


async def test_a_log_entered_again_sees_what_others_wrote(store: Store) -> None:
    mine = store.log("demo")
    async with mine:
        await mine.append(user("one"))
    await fill(store, "demo", (user("two"),))
    async with mine:
        await mine.append(user("three"))

    assert [message.text for message in mine.messages] == ["one", "two", "three"]
    assert await store.load("demo") == mine.messages


async def test_a_session_deleted_meanwhile_begins_anew(store: Store) -> None:
    mine = store.log("demo")
    async with mine:
        await mine.append(user("one"))
    await store.delete("demo")
    async with mine:
        await mine.append(user("two"))

    assert [message.text for message in await store.load("demo")] == ["two"]


async def test_a_session_made_anew_meanwhile_is_read_anew(store: Store) -> None:
    mine = store.log("demo")
    async with mine:
        await mine.append(user("one"))
    await store.delete("demo")
    async with store.log("demo", meta={"made": "anew"}) as other:
        await other.extend([user("two"), user("three"), user("four")])
    async with mine:
        await mine.append(user("five"))

    assert [message.text for message in mine.messages] == ["two", "three", "four", "five"]
    assert await store.load("demo") == mine.messages


async def test_sessions_are_listed_with_title_and_parent(store: Store) -> None:
    await fill(store, "demo", talk())
    await copy(store, "demo", store, "fork", at=2)

    fork, demo = sorted(await store.list(), key=lambda info: info.id, reverse=True)

    assert (demo.id, demo.title, demo.parent) == ("demo", "Weather in Toronto?", "")
    assert (fork.id, fork.parent, fork.forked_at) == ("fork", "demo", 2)
    assert len(await store.load("fork")) == 2
    assert demo.created <= demo.updated


async def test_an_unknown_session_is_an_error_that_names_what_is_there(store: Store) -> None:
    await fill(store, "demo", talk())

    with pytest.raises(StoreError, match="no session 'dmo'; there are: demo"):
        await store.load("dmo")
    with pytest.raises(StoreError, match="no session 'dmo'"):
        await store.delete("dmo")


async def test_a_deleted_session_is_gone(store: Store) -> None:
    await fill(store, "demo", talk())

    await store.delete("demo")

    assert await store.list() == ()
    assert await store.search("Toronto") == ()
    with pytest.raises(StoreError):
        await store.load("demo")


async def test_search_finds_all_words_with_snippet_and_filters(store: Store) -> None:
    await fill(store, "one", talk())
    await fill(store, "two", (user("Toronto has a tower, and the tower has a name"),))

    assert {hit.session for hit in await store.search("toronto")} == {"one", "two"}
    assert [hit.session for hit in await store.search("toronto tower")] == ["two"]
    assert [hit.session for hit in await store.search('"has a name"')] == ["two"]
    assert await store.search('"a has name"') == ()
    assert len(await store.search("tor*")) == 3  # two prompts and the arguments of a call
    assert await store.search("tor") == ()
    assert [hit.role for hit in await store.search("toronto", session="one", role="assistant")] == ["assistant"]
    assert len(await store.search("toronto", limit=1)) == 1
    (hit,) = await store.search("name", session="two")
    assert "[name]" in hit.snippet
    assert await store.search("toronto", until=hit.at - 3600) == ()
    assert len(await store.search("toronto", since=hit.at - 3600)) == 3
    assert hit.message_id == (await store.load("two"))[0].id


@pytest.mark.parametrize("query", ["a AND (", "col:x", "-x", "'", "NEAR(a b)", 'tower"', "*x"])
async def test_search_takes_any_text_as_words(store: Store, query: str) -> None:
    await fill(store, "one", talk())

    assert await store.search(query + " zzz") == ()


async def test_an_empty_search_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="at least one word"):
        await store.search(' "" * ')


async def test_what_was_amended_or_dropped_is_searched_as_it_is_now(store: Store) -> None:
    one, two = user("apples"), user("pears")
    async with store.log("demo") as log:
        await log.extend((one, two))
        await log.drop([one.id])
        await log.amend(two.id, {"content": [{"type": "text", "text": "plums"}]})

    assert await store.search("apples") == ()
    assert await store.search("pears") == ()
    assert len(await store.search("plums")) == 1


@pytest.mark.parametrize("id", ["a/b", "../up", ".hidden", "with space", "ü", "%41", "A", "a" * 60, "-x"])
async def test_any_text_may_be_an_id(store: Store, id: str) -> None:
    await fill(store, id, talk())

    assert [info.id for info in await store.list()] == [id]
    assert await store.load(id)


@pytest.mark.parametrize("id", ["", "x" * 201, "nul\0"])
async def test_an_impossible_id_is_refused(store: Store, id: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        store.log(id)


async def test_sessions_move_between_stores_without_loss(store: Store, tmp_path: Path) -> None:
    other = FileStore(tmp_path / "exported")
    async with store.log("demo") as log:
        await log.extend(talk())
        await log.exclude([log.messages[0].id])

    await copy(store, "demo", other)
    await copy(other, "demo", store, "back")

    assert await store.load("back") == await store.load("demo")
    await copy(store, "demo", other, "live", live=True)
    assert await other.load("live") == (await store.load("demo"))[1:]
    with pytest.raises(StoreError, match="there already"):
        await copy(store, "demo", other)
    with pytest.raises(ValueError, match="cannot be forked at 9"):
        await copy(store, "demo", other, "x", at=9)


async def test_lineage_is_a_tree(store: Store) -> None:
    await fill(store, "root", talk())
    await copy(store, "root", store, "child", at=1)
    await copy(store, "child", store, "grandchild")
    await copy(store, "root", store, "sister")
    await fill(store, "alone", talk())

    tree = [(depth, info.id) for depth, info in lineage(await store.list())]

    assert tree == [(0, "root"), (1, "child"), (2, "grandchild"), (1, "sister"), (0, "alone")]


# Newer versions ----------------------------------------------------------------------------------


async def test_a_newer_file_may_be_read_and_not_changed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    path = store.path("demo")
    path.write_text(path.read_text().replace(f'"schema":{SCHEMA_VERSION}', '"schema":99') + '{"type":"hologram"}\n{"to')
    before = path.read_bytes()

    async with store.log("demo") as log:
        assert log.messages == talk_as(log.messages)
        assert "schema 99" in log.read_only
        with pytest.raises(NewerSchema, match="may be read, not changed; upgrade"):
            await log.append(user("x"))

    assert path.read_bytes() == before
    assert len(await store.load("demo")) == 4


def talk_as(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    assert [message.text for message in messages] == [message.text for message in talk()]
    return messages


async def test_a_newer_database_may_be_read_and_not_changed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    await fill(store, "demo", talk())
    with store.connect() as connection:
        connection.execute("PRAGMA user_version = 99")

    async with store.log("demo") as log:
        talk_as(log.messages)
        with pytest.raises(NewerSchema, match="schema 99"):
            await log.append(user("x"))
    assert len(await store.load("demo")) == 4
    with pytest.raises(NewerSchema, match="tables of version 99"):
        await fill(store, "new", talk())
    with pytest.raises(NewerSchema, match="tables of version 99"):
        await store.delete("demo")


# Files -------------------------------------------------------------------------------------------


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    await fill(FileStore(tmp_path / "f"), "demo", talk())
    await fill(SQLiteStore(tmp_path / "x.db"), "demo", talk())

    for path in (tmp_path / "f" / "demo.jsonl", tmp_path / "x.db"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "x.db"]  # no lock is left behind


async def test_an_append_adds_one_line_and_rewrites_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path, sync=False)
    await fill(store, "demo", tuple(user(str(i)) for i in range(200)))
    before = store.path("demo").read_bytes()

    await fill(store, "demo", (user("one more"),))

    after = store.path("demo").read_bytes()
    assert after.startswith(before)
    assert after[len(before) :].count(b"\n") == 1


async def test_what_is_no_transcript_is_left_as_it_is(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.path("demo").write_text("my shopping list\nmilk\n")

    with pytest.raises(StoreError, match="does not begin with a session header"):
        await fill(store, "demo", talk())

    assert store.path("demo").read_text() == "my shopping list\nmilk\n"
    assert await store.list() == ()


async def test_a_session_is_never_updated_before_it_was_created(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    os.utime(store.path("demo"), (1, 1))  # the kernel's clock for files is some milliseconds behind

    (info,) = await store.list()

    assert info.updated == info.created > 1


async def test_a_time_that_is_none_hides_no_session(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    path = store.path("demo")
    header, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps({**json.loads(header), "created": "noon"}).encode() + b"\n" + rest)

    (info,) = await store.list()

    assert info.created == 0.0


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    (tmp_path / "elsewhere").write_text("")
    store.path("demo").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError, match="cannot be opened"):
        await fill(store, "demo", talk())


async def test_a_file_renamed_to_another_session_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    store.path("demo").rename(store.path("other"))

    with pytest.raises(StoreError, match="holds the session 'demo'"):
        await fill(store, "other", talk())


async def test_a_full_disk_is_a_clear_error_and_half_a_record_is_taken_back(tmp_path: Path) -> None:
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

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert "could not be written" in done.stdout
    assert "an earlier write failed" in done.stdout
    assert store.path("demo").stat().st_size == size


# Damage ------------------------------------------------------------------------------------------


def damage(kind: str, data: bytes, at: int, noise: bytes) -> bytes:
    at = min(at, len(data))
    if kind == "cut":
        return data[:at]
    if kind == "nul":  # pages that were allocated and never written
        return data[:at] + bytes(len(data) - at)
    if kind == "noise":
        return data[:at] + noise
    return data + noise  # half a record, or none, behind the last


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[FileStore, tuple[Message, ...], bytes]:
    store = FileStore(tmp_path_factory.mktemp("damage"), sync=False)
    written = tuple(user(f"{i} é\n" * 3) for i in range(5))
    anyio.run(fill, store, "demo", written)
    return store, written, store.path("demo").read_bytes()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["cut", "nul", "noise", "tail"]),
    back=st.integers(0, 900),
    noise=st.binary(max_size=40) | st.sampled_from([b'{"type":"message","mess', "é".encode()[:1], b"{}\n", b"\n"]),
)
def test_a_damaged_tail_loads_as_an_exact_prefix(
    undamaged: tuple[FileStore, tuple[Message, ...], bytes], kind: str, back: int, noise: bytes
) -> None:
    store, written, whole = undamaged
    path, extra = store.path("demo"), user("after")
    first = whole.index(b"\n") + 1  # the header itself is a case of its own
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


async def test_a_torn_tail_is_kept_in_a_side_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await fill(store, "demo", talk())
    with store.path("demo").open("ab") as file:
        file.write(b'{"type":"message","me')

    await fill(store, "demo", (user("next"),))

    side = tmp_path / "demo.torn"
    assert side.read_bytes() == b'{"type":"message","me\n'
    assert stat.S_IMODE(side.stat().st_mode) == 0o600
    assert len(await store.load("demo")) == 5
    await store.delete("demo")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [b"", b'{"type":"hea', bytes(50)])
async def test_a_session_killed_at_its_first_write_begins_anew(tmp_path: Path, left: bytes) -> None:
    store = FileStore(tmp_path)
    store.path("demo").write_bytes(left)

    await fill(store, "demo", talk())

    assert len(await store.load("demo")) == 4


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_was_acknowledged_survives_kill_9(kind: str, tmp_path: Path) -> None:
    await kill_many(kind, tmp_path / "store", 6)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_was_acknowledged_survives_kill_9_a_thousand_times(kind: str, tmp_path: Path) -> None:
    await kill_many(kind, tmp_path / "store", 1000)


@pytest.mark.skipif(not Path("/usr/bin/strace").exists(), reason="needs strace")
@pytest.mark.parametrize(("kind", "kept"), [("file", "/demo.jsonl>"), ("sqlite", "-wal>")])
def test_the_disk_is_waited_for_before_each_acknowledgement(kind: str, kept: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-e", "trace=write,pwrite64,fdatasync", "-o", str(trace), sys.executable, "-c"]
    command += [CHILD, kind, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        for _ in range(5):
            child.stdout.readline()
        child.kill()

    acknowledged, waits = 0, []
    for line in trace.read_text(errors="replace").splitlines():
        if kept in line:
            waits.append("fdatasync" in line)
        elif "write(1<" in line and acknowledged < 5:
            acknowledged += 1
            assert len(waits) > 1  # something was written,
            assert waits[-1]  # and the last that was done is the wait
            waits.clear()
    assert acknowledged == 5


async def test_another_process_holds_the_session(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD, "file", str(tmp_path)], stdout=subprocess.PIPE) as child:
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


def test_stores_say_what_they_do_not_have() -> None:
    import glue.stores

    with pytest.raises(AttributeError, match="RedisStore"):
        _ = glue.stores.RedisStore
    assert os.path.basename(FileStore("x").path("y")) == "y.jsonl"
