"""The records that a store keeps for a session, and the session that results from them.

A session is stored as a header and a sequence of records. Records are only appended, never changed:

- `{"type": "header", "schema": 1, "session": ID, "created": SECONDS, "parent": ID, "meta": {}}`
- `{"type": "message", "at": SECONDS, "message": {}}`, with `"before": ID` if it is an insertion
- `{"type": "amend", "id": ID, "fields": {}}` changes fields of a message
- `{"type": "drop", "ids": []}` removes messages
- `{"type": "exclude", "ids": []}` marks messages that are kept, but not sent to a model again
"""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from glue.codec import Json
from glue.errors import StoreError
from glue.messages import SCHEMA_VERSION, Message, message_from_json, message_to_json

Record: TypeAlias = dict[str, Json]


@dataclass(slots=True)
class StoredSession:
    """The header and the messages of a session, after all its records were applied.

    A new message is appended to the list `messages` in place. Every other change replaces the list,
    so that a view of the old list does not change.
    """

    header: Record = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    read_only: str = ""  # the reason why the session must not be changed, or empty

    def clear(self) -> None:
        self.header, self.messages, self.read_only = {}, [], ""

    def apply(self, record: Record, message: Message | None = None) -> None:
        """Apply one record to the session. A record of an unknown type is skipped.

        Args:
            record: the record as it is stored.
            message: the decoded message of a `message` record, if the caller has it already.
        """
        kind = record["type"]
        if kind == "header":
            self.header = record
            self.read_only = newer_header(record)
        elif kind == "message":
            message = message or read_message(record["message"])
            if message is not None:
                self._add(message, record.get("before"))
        elif kind == "amend":
            at = self.index(record["id"])
            changed = amend_message(self.messages[at], record["fields"])
            self.messages = [*self.messages[:at], changed, *self.messages[at + 1 :]]
        elif kind == "drop":
            ids = set(record["ids"])
            self.messages = [message for message in self.messages if message.id not in ids]
        elif kind == "exclude":
            ids = set(record["ids"])
            self.messages = [
                replace(message, excluded=True) if message.id in ids else message
                for message in self.messages
            ]

    def _add(self, message: Message, before: str | None) -> None:
        if before is None:
            self.messages.append(message)
        else:
            at = self.index(before)
            self.messages = [*self.messages[:at], message, *self.messages[at:]]

    def index(self, id: str) -> int:
        """Return the index of the message `id`. Raise StoreError if there is no such message."""
        # Searched from the end, because changes nearly always concern recent messages.
        for at in range(len(self.messages) - 1, -1, -1):
            if self.messages[at].id == id:
                return at
        raise StoreError(f"there is no message {id!r} in this session")


def new_header(
    id: str, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
) -> Record:
    """Return the header record of a new session. Raise ValueError if the id is not valid."""
    check_id(id)
    record: Record = {
        "type": "header",
        "schema": SCHEMA_VERSION,
        "session": id,
        "created": round(time.time(), 6),
    }
    if parent:
        record |= {"parent": parent, "forked_at": forked_at}
    return {**record, "meta": dict(meta)} if meta else record


def message_record(message: Message, times: Mapping[str, float] | None = None) -> Record:
    """Return the record that adds a message at the end of a session.

    `times` contains the storage times of copied messages, by message id. The storage time of any
    other message is now.
    """
    data = message_to_json(message)  # raises TypeError if it is not a message
    at = (times or {}).get(message.id) or round(time.time(), 6)
    return {"type": "message", "at": at, "message": data}


def read_message(data: Json) -> Message | None:
    """Decode a stored message. Return None if it is damaged, or a newer version of glue wrote it.

    The record stays in the store, so that a newer version of glue can read it.
    """
    try:
        if data.get("v", SCHEMA_VERSION) > SCHEMA_VERSION:
            return None
        return message_from_json(data)
    except (StoreError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector during a `with` block that decodes a session.

    The collector runs after every few hundred new objects and finds nothing, because messages have
    no reference cycles. It takes a third of the time of decoding 100,000 messages.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def amend_message(message: Message, fields: Mapping[str, Json]) -> Message:
    """Return a copy of a message in which the JSON fields `fields` are replaced."""
    return message_from_json({**message_to_json(message), **fields})


def newer_header(header: Record) -> str:
    """Return an error message if a newer version of glue wrote this header, or else ""."""
    schema = header.get("schema", SCHEMA_VERSION)
    if schema <= SCHEMA_VERSION:
        return ""
    return newer_schema(f"session {header.get('session', '')!r} was written with schema", schema)


def newer_schema(what: str, version: int, known: int = SCHEMA_VERSION) -> str:
    """Return the error: data of a newer glue can be read but not changed until glue is upgraded.

    `what` is the start of the message, before the schema `version` of the data. `known` is the
    newest schema version that this glue supports.
    """
    advice = "it can be read but not changed; upgrade glue-agents to continue it"
    return f"{what} {version}, but this glue supports only {known}: {advice}"


def check_id(id: str) -> str:
    """Return the session id unchanged. Raise ValueError if it is not valid."""
    is_text = isinstance(id, str) and not re.search("[\0\ud800-\udfff]", id)
    if not is_text or not 0 < len(id.encode()) <= 200:
        raise ValueError(f"a session id must be a string of 1 to 200 bytes of UTF-8, not {id!r}")
    return id
