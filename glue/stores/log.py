"""One conversation that is being written: records in order, folded into messages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.to_thread

from glue.codec import message_from_json, message_to_json
from glue.errors import NewerSchema, StoreError
from glue.types import SCHEMA_VERSION, Json, Message

Record: TypeAlias = dict[str, Json]  # a header, or one of: message, amend, drop, exclude


@dataclass(slots=True)
class Fold:
    """What a log amounts to. `read_only` says why it may not be changed."""

    header: Record = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    read_only: str = ""

    def clear(self) -> None:
        self.header, self.messages, self.read_only = {}, [], ""

    def apply(self, record: Record, message: Message | None = None) -> None:
        """Take in one record; a kind that only a newer version knows is passed over."""
        kind = record["type"]
        if kind == "header":
            self.header = record
            self.read_only = newer(record)
        elif kind == "message":
            self._insert(message or message_from_json(record["message"]), record.get("before"))
        elif kind == "amend":
            at = self.index(record["id"])
            self.messages[at] = message_from_json({**message_to_json(self.messages[at]), **record["fields"]})
        elif kind == "drop":
            gone = set(record["ids"])
            self.messages = [message for message in self.messages if message.id not in gone]
        elif kind == "exclude":
            gone = set(record["ids"])
            self.messages = [replace(old, excluded=True) if old.id in gone else old for old in self.messages]

    def index(self, id: str) -> int:
        for at in range(len(self.messages) - 1, -1, -1):  # what is changed is nearly always near the end
            if self.messages[at].id == id:
                return at
        raise StoreError(f"there is no message {id!r} in this session")

    def _insert(self, message: Message, before: str | None) -> None:
        self.messages.insert(len(self.messages) if before is None else self.index(before), message)


def newer(header: Record) -> str:
    """Say why a header forbids changes; empty where it does not."""
    schema = header.get("schema", SCHEMA_VERSION)
    if schema <= SCHEMA_VERSION:
        return ""
    return (
        f"session {header.get('session', '')!r} was written with schema {schema}, this version knows"
        f" {SCHEMA_VERSION}: it may be read, not changed; upgrade glue-agents to go on with it"
    )


def header(id: str, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None) -> Record:
    record: Record = {"type": "header", "schema": SCHEMA_VERSION, "session": id, "created": round(time.time(), 3)}
    if parent:
        record |= {"parent": parent, "forked_at": forked_at}
    return {**record, "meta": dict(meta)} if meta else record


class Writer(Protocol):
    """How one kind of store keeps records; called in a worker thread where `blocks` is set."""

    @property
    def blocks(self) -> bool: ...

    def open(self, fold: Fold) -> None:
        """Take the session for this writer alone, and bring the fold up to date."""

    def write(self, records: Sequence[Record]) -> None:
        """Return when the records are where they survive."""

    def close(self) -> None: ...


class Log:
    """A conversation in a store. Inside `async with log` it is ours alone and may be added to.

    It may be entered again and again; only what others wrote in between is read.
    Each method returns when its record is stored, so that acknowledged means kept.
    """

    def __init__(self, id: str, writer: Writer) -> None:
        self.id = id
        self._writer = writer
        self._fold = Fold()
        self._held = False

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._fold.messages)

    @property
    def read_only(self) -> str:
        """Why the session may not be changed; empty where it may."""
        return self._fold.read_only

    @property
    def parent(self) -> str:
        return str(self._fold.header.get("parent", ""))

    async def __aenter__(self) -> Log:
        try:
            await anyio.to_thread.run_sync(self._writer.open, self._fold)
        except BaseException:
            self._writer.close()
            raise
        self._held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._held = False
        self._writer.close()

    async def append(self, message: Message) -> None:
        await self.extend((message,))

    async def extend(self, messages: Iterable[Message]) -> None:
        """Append many with one wait for the disk."""
        messages = tuple(messages)
        await self._write([_message_record(message) for message in messages], messages)

    async def insert(self, message: Message, before: str) -> None:
        self._fold.index(before)
        await self._write([_message_record(message) | {"before": before}], (message,))

    async def amend(self, id: str, fields: Mapping[str, Any]) -> None:
        """Change some fields of a message, given as JSON values."""
        self._fold.index(id)
        await self._write([{"type": "amend", "id": id, "fields": dict(fields)}])

    async def drop(self, ids: Iterable[str]) -> None:
        """Take messages out of the conversation."""
        await self._write([{"type": "drop", "ids": list(ids)}])

    async def exclude(self, ids: Iterable[str]) -> None:
        """Keep messages in the log, but never send them again."""
        await self._write([{"type": "exclude", "ids": list(ids)}])

    async def _write(self, records: Sequence[Record], messages: Sequence[Message | None] = (None,)) -> None:
        if not self._held:
            raise StoreError(f"session {self.id!r} is not open for writing; use `async with log`")
        if self.read_only:
            raise NewerSchema(self.read_only)
        if self._writer.blocks:
            await anyio.to_thread.run_sync(self._writer.write, records)
        else:
            self._writer.write(records)
        for record, message in zip(records, messages, strict=True):
            self._fold.apply(record, message)


def _message_record(message: Message) -> Record:
    return {"type": "message", "at": round(time.time(), 3), "message": message_to_json(message)}
