"""Reading what can be shown: a session of a store, its file, a recording, events, or messages as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from glue.codec import message_from_json
from glue.errors import StoreError
from glue.types import Json, Message, Text, Thinking, ToolCall, ToolMessage
from glue.view.model import Entry, Transcript, attempts_of

if TYPE_CHECKING:
    from glue.stores.log import Record
    from glue.stores.protocol import Store

_SQLITE = b"SQLite format 3\0"
WANTED = "a session file, a recording, the events of --json, or a JSON list of messages"


async def read_session(store: Store, id: str) -> Transcript:
    """Read a session with the times its store knows."""
    from glue.stores.file import FileStore
    from glue.stores.sqlite import SQLiteStore

    messages = await store.load(id)
    info = next((info for info in await store.list() if info.id == id), None)
    times: Mapping[str, float] = {}
    if isinstance(store, FileStore):
        from glue.stores.jsonl import read

        times = read(store.path(id))[1]
    elif isinstance(store, SQLiteStore):
        sql = "SELECT messages.id, at FROM messages JOIN sessions ON sessions.number = session WHERE sessions.id = ?"
        with store.connect() as connection:
            times = dict(connection.execute(sql, (id,)).fetchall())
    head: Record = {"session": id}
    if info is not None:
        head |= {"created": info.created, "parent": info.parent, "forked_at": info.forked_at}
    return _session(head, messages, times)


def read_file(path: Path) -> Transcript:
    """Read whatever a file holds that can be shown."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            raise StoreError(f"{path} is a store of many sessions; name one of them and give the file as --store")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise StoreError(f"{path} is no text; wanted is {WANTED}") from None
    first = _first(text)
    kind = first.get("type") if isinstance(first, Mapping) else None
    if kind == "header":
        from glue.stores.jsonl import read

        fold, times = read(path)
        return _session(fold.header, fold.messages, times)
    if kind == "recording":
        from glue.view.recordings import read_recording

        return read_recording(path)
    if isinstance(kind, str) and isinstance(first, Mapping) and "role" not in first and "messages" not in first:
        from glue.view.eventlog import read_events

        return read_events(path, text)
    return _messages(path, text)


def _first(text: str) -> Json:
    """Give the first line as JSON; None where it is none."""
    line = text.lstrip("\ufeff \t\r\n").split("\n", 1)[0]
    try:
        return json.loads(line)
    except ValueError:
        return None


def _session(head: Record, messages: Iterable[Message], times: Mapping[str, float]) -> Transcript:
    # What was taken over from a parent bears the time of the fork, which says nothing.
    taken = head.get("forked_at") or 0
    entries = tuple(
        entry_of(message, None if index < taken else times.get(message.id)) for index, message in enumerate(messages)
    )
    return Transcript(
        title=str(head.get("session", "")),
        source="session",
        entries=entries,
        created=head.get("created"),
        parent=str(head.get("parent") or ""),
    )


def _messages(path: Path, text: str) -> Transcript:
    try:
        said = json.loads(text)
    except ValueError:
        said = _lines(text)
    if isinstance(said, Mapping) and "messages" in said:
        said = said["messages"]
    if not isinstance(said, list):
        raise StoreError(f"{path} holds nothing that can be shown; wanted is {WANTED}")
    try:
        entries = tuple(entry_of(message_from_json(item)) for item in said)
    except StoreError as error:
        raise StoreError(f"{path}: {error}; wanted is {WANTED}") from error
    return Transcript(title=path.name, source="messages", entries=entries)


def _lines(text: str) -> Json:
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()] or None
    except ValueError:
        return None


def entry_of(message: Message, at: float | None = None, seconds: float | None = None) -> Entry:
    """Make an entry of a message, with the attempts that it tells of itself."""
    _check(message)
    meta = message.meta if isinstance(message.meta, Mapping) else {}
    return Entry(message=message, at=at, seconds=seconds, attempts=attempts_of(meta.get("attempts")))


def _check(message: Message) -> None:
    """Refuse what the codec lets through and no page could show."""
    words: list[object] = [message.id]
    for part in message.content:
        if isinstance(part, (Text, Thinking)):
            words.append(part.text)
        elif isinstance(part, ToolCall):
            words += [part.id, part.name, part.arguments]
    if isinstance(message, ToolMessage):
        words += [message.call_id, message.name]
    wrong = next((word for word in words if not isinstance(word, str)), None)
    if wrong is not None:
        raise StoreError(f"a message holds {json.dumps(wrong)[:80]} where a text belongs")
