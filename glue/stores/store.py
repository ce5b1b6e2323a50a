"""The store protocol, the records that stores keep, and searching, copying and listing in any store."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from glue.codec import Json
from glue.errors import NewerSchema, SessionBusy, StoreError
from glue.messages import (
    SCHEMA_VERSION,
    AssistantMessage,
    Message,
    Messages,
    ToolMessage,
    message_from_json,
    message_to_json,
)

T = TypeVar("T")
Record: TypeAlias = dict[str, Json]  # a header, or one of: message, amend, drop, exclude


@dataclass(slots=True)
class Fold:
    """The conversation that a log's records add up to. `read_only` says why it may not be changed.

    The list of messages only ever grows; any other change makes a new one, so that a view of it stays as it is.
    """

    header: Record = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    read_only: str = ""

    def clear(self) -> None:
        self.header, self.messages, self.read_only = {}, [], ""

    def apply(self, record: Record, message: Message | None = None) -> None:
        """Take in one record; what only a newer version knows is passed over."""
        kind = record["type"]
        if kind == "header":
            self.header = record
            self.read_only = newer(record)
        elif kind == "message":
            message = message or read_message(record["message"])
            if message is not None:
                if (before := record.get("before")) is None:
                    self.messages.append(message)
                else:
                    at = self.index(before)
                    self.messages = [*self.messages[:at], message, *self.messages[at:]]
        elif kind == "amend":
            at = self.index(record["id"])
            changed = amended(self.messages[at], record["fields"])
            self.messages = [*self.messages[:at], changed, *self.messages[at + 1 :]]
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


def read_message(data: Json) -> Message | None:
    """Decode a stored message; None for a role or a version that only a newer glue knows: it stays where it is."""
    try:
        if data.get("v", SCHEMA_VERSION) > SCHEMA_VERSION:
            return None
        return message_from_json(data)
    except (StoreError, TypeError, AttributeError):
        return None


def amended(message: Message, fields: Mapping[str, Json]) -> Message:
    return message_from_json({**message_to_json(message), **fields})


def newer(header: Record) -> str:
    """Say why a header forbids changes; empty where it does not."""
    schema = header.get("schema", SCHEMA_VERSION)
    if schema <= SCHEMA_VERSION:
        return ""
    return too_new(f"session {header.get('session', '')!r} was written with schema", schema)


def too_new(what: str, version: int, known: int = SCHEMA_VERSION) -> str:
    advice = "it may be read, not changed; upgrade glue-agents to go on with it"
    return f"{what} {version}, this version knows {known}: {advice}"


def header(id: str, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None) -> Record:
    check_id(id)
    record: Record = {"type": "header", "schema": SCHEMA_VERSION, "session": id, "created": round(time.time(), 6)}
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
        """Return when the records are where they survive; on an error none of them is."""

    def close(self) -> None: ...


class Log:
    """A conversation in a store. Inside `async with log` it is ours alone and may be added to.

    It may be entered again and again; only what others wrote in between is read.
    Each method returns when its record is stored, so that acknowledged means kept. One that is
    cancelled has stored its record, in the store and in `messages`, or has not begun to.
    """

    def __init__(self, id: str, writer: Writer) -> None:
        self.id = id
        self._writer = writer
        self._fold = Fold()
        self._entered = False

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._fold.messages)

    @property
    def view(self) -> Messages:
        """The messages as they are now, without a copy."""
        return Messages(self._fold.messages)

    @property
    def blocks(self) -> bool:
        """Whether a write waits for a disk or a server."""
        return self._writer.blocks

    @property
    def read_only(self) -> str:
        """Why the session may not be changed; empty where it may."""
        return self._fold.read_only

    def check_writable(self) -> None:
        """Raise where the session may not be changed: NewerSchema, or a StoreError that says why else."""
        if self.read_only:
            raise (NewerSchema if newer(self._fold.header) else StoreError)(self.read_only)

    async def __aenter__(self) -> Log:
        def enter() -> None:
            try:
                self._writer.open(self._fold)
            except BaseException:
                self._writer.close()
                raise
            self._entered = True

        if not self._writer.blocks:
            enter()
            return self
        try:
            await finish(enter)
        except BaseException:
            if self._entered:  # cancelled, and the session was taken nevertheless
                await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered = False
        if not self._writer.blocks:
            self._writer.close()
            return
        with anyio.CancelScope(shield=True):
            await finish(self._writer.close, always=True)

    async def append(self, message: Message) -> None:
        await self.extend((message,))

    async def extend(self, messages: Iterable[Message], times: Mapping[str, float] | None = None) -> None:
        """Append many with one wait for the disk; `times` says when those of a copy were stored first."""
        messages = tuple(messages)
        if messages:
            await self._write([_message_record(message, times) for message in messages], messages)

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
        if not self._entered:
            raise StoreError(f"session {self.id!r} is not open for writing; use `async with log`")
        self.check_writable()

        def write() -> None:
            self._writer.write(records)
            for record, message in zip(records, messages, strict=True):
                self._fold.apply(record, message)

        if self._writer.blocks:
            await finish(write)
        else:
            write()


async def finish(work: Callable[[], None], *, always: bool = False) -> None:
    """Run blocking work in a thread, wholly or not at all: a cancellation is raised when the work is over.

    anyio's own shield does not withstand `task.cancel()` of asyncio. `always` does the work also where
    the cancellation came before it began.
    """
    begun, over = threading.Lock(), threading.Event()

    def run() -> None:
        if begun.acquire(blocking=False):
            try:
                work()
            finally:
                over.set()

    try:
        await anyio.to_thread.run_sync(run)
    except anyio.get_cancelled_exc_class():
        if always:
            threading.Thread(target=run, name="glue-store").start()  # which does nothing where it had begun
        elif begun.acquire(blocking=False):
            raise  # it had not begun, and never will
        while not over.is_set():
            with anyio.CancelScope(shield=True), contextlib.suppress(anyio.get_cancelled_exc_class()):
                await anyio.to_thread.run_sync(over.wait)
        raise


def _message_record(message: Message, times: Mapping[str, float] | None = None) -> Record:
    data = message_to_json(message)
    return {"type": "message", "at": (times or {}).get(message.id) or round(time.time(), 6), "message": data}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One conversation in a list."""

    id: str
    created: float  # seconds since 1970
    updated: float
    title: str = ""  # the beginning of the first prompt
    parent: str = ""  # the session this one was forked from
    forked_at: int | None = None  # how many of its messages were taken over
    schema: int = SCHEMA_VERSION
    meta: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One message that a search found; the matches stand in [brackets] in the snippet."""

    session: str
    message_id: str
    role: str
    snippet: str
    at: float  # when it was stored


class Store(Protocol):
    """Somewhere to keep conversations, each under an id."""

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        """Give the conversation's log; nothing is read or made before it is entered."""

    async def list(self) -> tuple[SessionInfo, ...]:
        """List all sessions, the last changed first."""

    async def load(self, id: str) -> tuple[Message, ...]:
        """Read a conversation without taking hold of it."""

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[SearchHit, ...]:
        """Find messages that hold every word of the query; "a phrase" in quotes, a prefix as word*."""

    async def delete(self, id: str) -> None: ...


class BlockingStore:
    """The methods of a store, made of blocking ones that run in a worker thread."""

    _writer: Callable[[str, Record], Writer]  # takes an id, and the header of the session should it be new
    _list: Callable[[], tuple[SessionInfo, ...]]
    _read: Callable[[str], tuple[tuple[Message, ...], Mapping[str, float], Record]]  # messages, their times, header
    _search: Callable[[Query], tuple[SearchHit, ...]]
    _delete: Callable[[str], None]

    def log(
        self, id: str, *, parent: str = "", forked_at: int | None = None, meta: Mapping[str, Json] | None = None
    ) -> Log:
        return Log(id, self._writer(id, header(id, parent, forked_at, meta)))

    async def list(self) -> tuple[SessionInfo, ...]:
        return await self._in_thread(self._list)

    async def load(self, id: str) -> tuple[Message, ...]:
        return (await self._in_thread(self._read, id))[0]

    async def times(self, id: str) -> Mapping[str, float]:
        """Say when each message was stored."""
        return (await self._in_thread(self._read, id))[1]

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        session: str | None = None,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[SearchHit, ...]:
        return await self._in_thread(self._search, Query(query, limit, session, role, since, until))

    async def delete(self, id: str) -> None:
        await self._in_thread(self._delete, id)

    async def _in_thread(self, work: Callable[..., T], *values: Any) -> T:
        try:
            return await anyio.to_thread.run_sync(work, *values)
        except OSError as error:
            raise StoreError(f"the store cannot do that: {error.strerror}: {error.filename}") from error


async def copy(
    source: Store, id: str, target: Store, new_id: str = "", *, at: int | None = None, live: bool = False
) -> str:
    """Copy a session, within a store or to another; `at` takes only that many of its messages.

    `live` leaves out what compaction or a refusal has excluded. Give the id of the copy; under a new
    id it names its parent. A store that can copy by itself has a method `fork`.
    """
    new_id = new_id or id
    if source is target and new_id != id and (fork := getattr(source, "fork", None)) is not None:
        await fork(id, new_id, at=at, live=live)
        return new_id
    times: Mapping[str, float] = {}
    head: Record = {}
    if isinstance(source, BlockingStore):
        messages, times, head = await source._in_thread(source._read, id)
    else:
        messages = await source.load(id)
    check_fork(id, at, len(messages))
    taken = messages if at is None else messages[:at]
    if new_id != id:
        head = {**head, "parent": id, "forked_at": len(taken)}
    kept = {name: head[name] for name in ("parent", "forked_at", "meta") if name in head}
    async with target.log(new_id, **kept) as log:
        if log.messages:
            raise taken_already(new_id, len(log.messages))
        await log.extend((message for message in taken if not (live and message.excluded)), times)
    return new_id


def check_fork(id: str, at: int | None, count: int) -> None:
    if at is not None and not (isinstance(at, int) and 0 <= at <= count):
        raise ValueError(f"session {id!r} has {count} messages; it cannot be forked at {at!r}")


def taken_already(id: str, count: int) -> StoreError:
    return StoreError(f"session {id!r} is there already, with {count} messages")


def lineage(sessions: Sequence[SessionInfo]) -> tuple[tuple[int, SessionInfo], ...]:
    """Order sessions as a tree: each with its depth, below the one it was forked from."""
    known = {info.id for info in sessions}
    below: dict[str, list[SessionInfo]] = {}
    for info in sorted(sessions, key=lambda info: (info.created, info.id)):
        below.setdefault(info.parent if info.parent in known and info.parent != info.id else "", []).append(info)
    out: list[tuple[int, SessionInfo]] = []
    todo = [(0, info) for info in reversed(below.get("", []))]
    while todo:
        depth, info = todo.pop()
        out.append((depth, info))
        todo += [(depth + 1, child) for child in reversed(below.pop(info.id, []))]
    return tuple(out)


def describe(header: Record, messages: Sequence[Message], updated: float) -> SessionInfo:
    """Sum up a session from its header and its first messages."""
    created = header.get("created")
    created = float(created) if isinstance(created, (int, float)) else 0.0
    prompts = (message.text for message in messages if role_of(message) == "user" and message.text.strip())
    return SessionInfo(
        id=header["session"],
        created=created,
        updated=max(created, updated),  # the clock of a file's time may be some milliseconds behind
        title=" ".join(next(prompts, "").split())[:80],
        parent=header.get("parent", ""),
        forked_at=header.get("forked_at"),
        schema=header.get("schema", SCHEMA_VERSION),
        meta=header.get("meta"),
    )


def check_id(id: str) -> str:
    whole = isinstance(id, str) and not re.search("[\0\ud800-\udfff]", id)
    if not whole or not 0 < len(id.encode()) <= 200:
        raise ValueError(f"a session id is a text of 1 to 200 bytes of UTF-8, not {id!r}")
    return id


def sync_data(fd: int) -> None:
    """Wait until what was written to a file is on the disk."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's own cache
    else:
        os.fdatasync(fd)


def busy(id: str) -> SessionBusy:
    return SessionBusy(f"session {id!r} is in use, here or by another process; one writer at a time")


def read_only(id: str, path: os.PathLike[str], error: OSError) -> str:
    """Say why a session may be read and not changed; a StoreError where the file cannot even be opened."""
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise closed(id, path, error) from error
    return f"session {id!r} may be read, not changed: {error.strerror}: {path}"


def closed(id: str, path: os.PathLike[str], error: OSError) -> StoreError:
    return StoreError(f"session {id!r} cannot be opened: {error.strerror}: {path}")


def missing(id: str, there: Sequence[str]) -> StoreError:
    some = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "")
    return StoreError(f"there is no session {id!r}; there are: {some or 'none'}")


_QUERY = re.compile(r'"([^"]*)"|(\S+)')
WORD = re.compile(r"[^\W_]+")
AROUND = 60  # characters on each side of the first match
# Scripts that are written without spaces: each character is a word of its own, and a word is a phrase of these.
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_GAP = "\u200b"  # a zero-width space


def split_words(text: str) -> str:
    """Put invisible gaps between characters of scripts that have no spaces, so that a search finds words in them.

    An accent is part of its letter, in whichever of its two forms a text was written.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    return _UNSPACED.sub(rf"{_GAP}\g<0>{_GAP}", text).replace(_GAP * 2, _GAP)


def join_words(text: str) -> str:
    """Take out the gaps of `split_words`, and put a text on one line."""
    return " ".join(text.replace(_GAP, "").split())


def searchable(message: Message) -> str:
    """Give the text that a search looks through: what was said, and the calls with their arguments."""
    text = message.text
    if isinstance(message, AssistantMessage) and message.calls:
        text = "\n".join(filter(None, [text, *(f"{call.name} {call.arguments}" for call in message.calls)]))
    return split_words(text.replace("\0", " "))


def role_of(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return "assistant"
    return "tool" if isinstance(message, ToolMessage) else "user"


@dataclass(frozen=True)
class Query:
    """A search, checked: what every store is asked alike."""

    text: str
    limit: int = 20
    session: str | None = None
    role: str | None = None
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError(f"nothing to search for in {self.text!r}; give at least one word")
        if type(self.limit) is not int or self.limit < 0:
            raise ValueError(f"limit must be a number of hits, 0 or more, not {self.limit!r}")
        for name, at in (("since", self.since), ("until", self.until)):
            if at is not None and (not isinstance(at, (int, float)) or at != at):
                raise ValueError(f"{name} must be a time in seconds since 1970, not {at!r}")

    @functools.cached_property
    def terms(self) -> tuple[tuple[list[str], bool], ...]:
        """The words of each term, which stand one behind the other; the flag says that the last is only a beginning."""
        found = _QUERY.findall(self.text.replace("\0", " "))
        terms = [(WORD.findall(split_words(phrase or word)), word.endswith("*")) for phrase, word in found]
        return tuple((words, prefix) for words, prefix in terms if words)

    @functools.cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """One pattern for each term; a text fits when all of them are found."""
        return tuple(
            re.compile(
                r"(?<![^\W_])" + r"[\W_]+".join(words) + (r"[^\W_]*" if prefix else r"(?![^\W_])"), re.IGNORECASE
            )
            for words, prefix in self.terms
        )

    def find(self, session: str, messages: Iterable[tuple[Message, float]], most: int | None = None) -> list[SearchHit]:
        """Search messages, each with the time it was stored, one by one, until there are as many hits as are wanted."""
        hits: list[SearchHit] = []
        for message, at in messages:
            if most is not None and len(hits) >= most:
                break
            role = role_of(message)
            if self.role not in (None, role) or at < (self.since or 0) or (self.until is not None and at > self.until):
                continue
            if (found := self.snippet(searchable(message))) is not None:
                hits.append(SearchHit(session=session, message_id=message.id, role=role, snippet=found, at=at))
        return hits

    def snippet(self, text: str) -> str | None:
        """Cut a piece out of a text, with the matches in brackets; None where it does not fit."""
        found = [match for match in (each.search(text) for each in self.patterns) if match is not None]
        if len(found) < len(self.patterns):
            return None
        start = min(match.start() for match in found)
        left, right = max(0, start - AROUND), start + AROUND
        piece = text[left:right]
        for each in self.patterns:
            piece = each.sub(lambda match: f"[{match.group()}]", piece)
        return ("…" if left else "") + join_words(piece) + ("…" if right < len(text) else "")

    def newest(self, hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
        return tuple(sorted(hits, key=lambda hit: hit.at, reverse=True)[: self.limit])
