"""`FileStore`: a store with an append-only file of JSON lines for each session."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from glue.checks import check_flag, check_path
from glue.errors import ConfigError, StoreError
from glue.messages import Message
from glue.signature import hinted
from glue.stores.files import (
    cannot_open,
    lock,
    open_locked,
    pread,
    read_only_reason,
    sync_data,
    sync_folder,
)
from glue.stores.records import (
    Record,
    StoredSession,
    check_id,
    collector_paused,
    message_record,
    new_header,
    read_message,
)
from glue.stores.search import Query, SearchHit
from glue.stores.store import (
    BlockingStore,
    SessionInfo,
    check_fork,
    no_session,
    session_exists,
    session_info,
)

_log = logging.getLogger("glue.stores")
_log.addHandler(logging.NullHandler())  # silent unless the user configures logging
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.@+=,-]|^\.")  # bytes that are escaped in file names
_SUFFIX = ".jsonl"
_LINE = re.compile(rb"\n")
# The first bytes of records that add a message, and of records that change messages in place.
_MESSAGE = b'{"type":"message","at":'
_CHANGES = (b'{"type":"amend",', b'{"type":"exclude",')
_PIECE = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]+")  # the ASCII and other parts of a word
_BRIEF = 65_536  # bytes in which the header and the first message are expected


class FileStore(BlockingStore):
    """A store in a folder, with one file of JSON lines for each session.

    >>> store = FileStore(".glue")
    >>> session = agent.session("demo", store=store)  # doctest: +SKIP
    >>> session.run_sync("Hello")                     # doctest: +SKIP
    >>> store.path("demo")
    PosixPath('.glue/demo.jsonl')

    Args:
        root: the folder. It is created when the first session is stored.
        sync: wait until each record is on the disk. False is faster and still survives a killed
            process, but a power failure can lose the last records.
    """

    @hinted
    def __init__(self, root: str | os.PathLike[str], *, sync: bool = True) -> None:
        check_path("root", root, ".glue")
        check_flag("sync", sync)
        if sys.platform == "win32":
            raise ConfigError("FileStore needs POSIX file locks; use MemoryStore on Windows")
        self.root = Path(root)
        self.sync = sync

    def path(self, id: str) -> Path:
        """Return the path of the file of a session. Unsafe bytes of the id are written as %XX.

        Raise ValueError if the id is not valid, or too long for a file name.
        """
        name = _UNSAFE.sub(lambda match: b"%%%02X" % match.group()[0], check_id(id).encode())
        if len(name) > 240:
            raise ValueError(
                f"the session id {id!r} is too long for a file name: {len(name)} bytes with"
                " escapes, but at most 240 are possible"
            )
        return self.root / (name.decode() + _SUFFIX)

    def paths(self) -> tuple[Path, ...]:
        """Return the sorted paths of all files in the folder whose names end in .jsonl."""
        return tuple(sorted(path for path in self.root.glob(f"*{_SUFFIX}") if path.is_file()))

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self.path(id), id, first, self.sync)

    def _find(self, id: str) -> Path:
        path = self.path(id)
        if not path.is_file():
            raise no_session(id, [info.id for info in self._list()])
        return path

    def _list(self) -> tuple[SessionInfo, ...]:
        infos = []
        for path in self.paths():
            # An unreadable file must not hide the others.
            with contextlib.suppress(StoreError, OSError):
                stored, _ = read(path, brief=True)
                infos.append(session_info(stored.header, stored.messages, path.stat().st_mtime))
        return tuple(sorted(infos, key=lambda info: info.updated, reverse=True))

    def _read(self, id: str) -> tuple[tuple[Message, ...], Mapping[str, float], Record]:
        stored, times = read(self._find(id))
        return tuple(stored.messages), times, stored.header

    def _search(self, query: Query) -> tuple[SearchHit, ...]:
        paths = self.paths() if query.session is None else [self._find(query.session)]
        return query.newest(hit for path in paths for hit in search_file(path, query))

    async def fork(
        self, id: str, new_id: str, *, at: int | None = None, live: bool = False
    ) -> None:
        """Copy the session `id` of this store to a new session `new_id` of this store.

        `at` and `live` are those of the function `copy`. The lines are copied without decoding
        them, unless `live` is set, or messages were inserted or removed.
        """
        await self._in_thread(self._fork, id, new_id, at, live)

    def _fork(self, id: str, new_id: str, at: int | None, live: bool) -> None:
        path = self._find(id)
        data = path.read_bytes()
        header = check_first(data, path) or {}
        is_count = at is None or isinstance(at, int)  # if not, check_fork raises an error
        plain = lines_of_fork(data, at) if is_count and not live else None
        if plain is not None:
            lines, total = plain
            check_fork(id, at, total)
        else:
            found, times = read(path)
            total = len(found.messages)
            check_fork(id, at, total)
            kept = [each for each in found.messages[:at] if not (live and each.excluded)]
            lines = [encode(message_record(message, times)) for message in kept]
        first = new_header(new_id, id, total if at is None else at, header.get("meta"))
        writer = _Writer(self.path(new_id), new_id, first, self.sync)
        stored = StoredSession()
        try:
            writer.open(stored)
            if stored.messages:
                raise session_exists(new_id, len(stored.messages))
            if lines:
                writer.append(b"".join(lines))
        finally:
            writer.close()

    def _delete(self, id: str) -> None:
        path = self._find(id)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            lock(fd, id)
            path.unlink()
            path.with_suffix(".torn").unlink(missing_ok=True)
            sync_folder(path.parent)
        finally:
            os.close(fd)


# Writing ------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, path: Path, id: str, first: Record, sync: bool) -> None:
        self.path, self.id, self.first, self.sync = path, id, first, sync
        self.blocks = True
        self.fd = -1
        self.end = 0  # offset after the last complete record
        self.failed: StoreError | None = None

    def open(self, stored: StoredSession) -> None:
        self.failed = None
        self.blocks = self.sync  # a write that does not wait for the disk is faster than a thread
        try:
            self.fd = open_locked(self.path, self.id, self.sync)
        except OSError as error:
            self._open_read_only(stored, error)
            return
        size = os.fstat(self.fd).st_size
        head = encode(stored.header)
        # The header is compared because a new file can have the inode of a deleted file.
        if not self.end or size < self.end or pread(self.fd, 0, len(head)) != head:
            stored.clear()
            self.end = 0
        tail = pread(self.fd, self.end, size)
        if not self.end:
            check_first(tail, self.path)
        complete = 0
        with collector_paused():
            for record, stop in records_in(tail):
                apply_or_skip(stored, record)
                complete = stop
        self.end += complete
        if stored.header and stored.header["session"] != self.id:
            found = stored.header["session"]
            raise StoreError(
                f"{self.path} contains the session {found!r}, not {self.id!r}; rename the file"
            )
        if stored.read_only:
            _log.warning("%s", stored.read_only)
            return
        if complete < len(tail):
            self._cut(tail[complete:])
        if not stored.header:
            self.write((self.first,))
            stored.apply(self.first)

    def _open_read_only(self, stored: StoredSession, error: OSError) -> None:
        reason = read_only_reason(self.id, self.path, error)
        try:
            found, _ = read(self.path)
        except OSError:  # the file does not exist, or may not be read either
            raise cannot_open(self.id, self.path, error) from error
        stored.header, stored.messages = found.header, found.messages
        stored.read_only = found.read_only or reason
        self.end = 0

    def write(self, records: Sequence[Record]) -> None:
        if self.failed is not None:
            raise StoreError(
                f"{self.failed}; an earlier write failed: open the session again"
            ) from self.failed
        self.append(b"".join(map(encode, records)))

    def append(self, block: bytes) -> None:
        """Append `block`, which consists of encoded records, to the file, or raise StoreError.

        If the disk is full, for example, the written part of the block is removed from the file,
        and later calls of `write` fail too.
        """
        try:
            _write_all(self.fd, block)
            self._wait(self.fd)
        except OSError as error:
            # An incomplete record must not stay in front of the next record.
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.end)
            self.failed = StoreError(
                f"session {self.id!r} could not be written to {self.path}: {error.strerror}"
            )
            raise self.failed from error
        self.end += len(block)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)  # which also unlocks the file
            self.fd = -1
        self.blocks = True  # opening the session again reads its file

    def _wait(self, fd: int) -> None:
        if self.sync:
            sync_data(fd)

    def _cut(self, tail: bytes) -> None:
        """Move `tail`, an incomplete record at the end of the file, to a file with suffix .torn."""
        side = self.path.with_suffix(".torn")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(side, flags, 0o600)
        try:
            _write_all(fd, tail + b"\n")
            self._wait(fd)
        finally:
            os.close(fd)
        _log.warning(
            "session %r: %d bytes of an incomplete record were moved to %s",
            self.id,
            len(tail),
            side,
        )
        os.ftruncate(self.fd, self.end)
        self._wait(self.fd)


def _write_all(fd: int, block: bytes) -> None:
    """Write a whole block; one call of `os.write` may write a part of it."""
    view = memoryview(block)
    while view:
        view = view[os.write(fd, view) :]


def encode(record: Record) -> bytes:
    """Encode a record as one line of JSON."""
    try:
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which models send: store it escaped
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"


# Reading ------------------------------------------------------------------------------------------


def read(path: Path, *, brief: bool = False) -> tuple[StoredSession, dict[str, float]]:
    """Read a session file without a lock. Return the session, and storage times by message id.

    Args:
        path: the file. Another process may be writing to it.
        brief: read only the first 64 KiB, and stop after the first message.
    """
    stored, times = StoredSession(), dict[str, float]()
    with path.open("rb") as file:
        data = file.read(_BRIEF if brief else -1)
    check_first(data, path)
    with collector_paused():
        for record, _ in records_in(data):
            apply_or_skip(stored, record)
            if record["type"] == "message" and isinstance(record.get("message"), dict):
                times[record["message"].get("id", "")] = stored_at(record)
            if brief and stored.messages:
                break
    if not stored.header:
        raise StoreError(f"{path} is not a session: it is empty, or its header is incomplete")
    return stored, times


def records_in(data: bytes) -> Iterator[tuple[Record, int]]:
    """Yield each record in the bytes of a session file, with the offset of the record's end.

    Stop at the first record that is incomplete or damaged.
    """
    start = 0
    while (stop := data.find(b"\n", start)) >= 0:
        try:
            record = json.loads(data[start:stop].decode())
        except (ValueError, RecursionError):
            return
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            return
        start = stop + 1
        yield record, start


def lines_of_fork(data: bytes, at: int | None) -> tuple[list[bytes], int] | None:
    """Return the lines for a fork and the total of messages, or None if the file must be decoded.

    `data` is the content of the file. The lines are the first `at` messages, and the records that
    change fields of messages or exclude messages. The total counts all messages of the file. Return
    None if a record inserts or removes messages: then the session has to be decoded.
    """
    lines, count = list[bytes](), 0
    for line in data.split(b"\n")[1:-1]:  # without the header and an incomplete line
        # A record that inserts a message ends with a text: {...,"before":"ID"}.
        if line.startswith(_MESSAGE) and line.endswith(b"}}"):
            count += 1
            if at is not None and count > at:
                continue
        elif not line.startswith(_CHANGES):
            return None
        lines.append(line + b"\n")
    return lines, count


def apply_or_skip(stored: StoredSession, record: Record) -> None:
    """Apply a record to the session, or skip a record that is damaged or of a newer version."""
    with contextlib.suppress(StoreError, KeyError, TypeError, ValueError):
        stored.apply(record)


def check_first(data: bytes, path: Path) -> Record | None:
    """Return the header in the first line of a session file, or None if that line is incomplete.

    Raise StoreError if the first line is not a header, so that the caller does not remove the
    contents of such a file as an incomplete record. `data` is the content of the file `path`.
    """
    first = data.find(b"\n")
    if first < 0:
        return None  # empty, or its writer was killed while it wrote the header
    for record, _ in records_in(data[: first + 1]):
        if record["type"] == "header" and isinstance(record.get("session"), str):
            return record
    raise StoreError(f"{path} does not begin with a session header; the file was not changed")


def stored_at(record: Record) -> float:
    """Return the time at which a record was stored, or 0.0 if the record has no valid time."""
    at = record.get("at")
    return at if isinstance(at, (int, float)) else 0.0


# Searching ----------------------------------------------------------------------------------------


def search_file(path: Path, query: Query) -> list[SearchHit]:
    """Return the hits of a query in a session file, or [] if no session can be read from it.

    Unless the text of a message was changed later, the lines are searched from the last to the
    first, and only lines that can match are decoded, which is many times faster.
    """
    try:
        data = path.read_bytes()
        head = check_first(data, path)
    except (StoreError, OSError):
        return []
    if head is None:
        return []
    session = head["session"]
    changes_text, dropped = _changes(data)
    if changes_text:
        stored, times = read(path)
        timed = ((message, times.get(message.id, 0.0)) for message in stored.messages)
        return query.find(session, timed)
    # A line with half a surrogate pair is written with escapes, and Korean letters can be written
    # in parts. If the file has either, only ASCII can be compared byte by byte.
    only_ascii = b"\\ud" in data or b"\xe1\x84" in data
    lines = _lines_with(data, data.lower(), _needles(query, only_ascii=only_ascii))
    return query.find(session, _messages_in(lines, dropped), most=query.limit)


def _changes(data: bytes) -> tuple[bool, set[str]]:
    """Return a pair: whether a record amends message content, and the ids of dropped messages.

    If one of these records is damaged, return True and no ids.
    """
    marks = (b'"type":"amend"', b'"type":"drop"')
    changes: list[Record] = []
    for mark in marks:
        changes += _lines_with(data, data, [(mark, re.compile(mark))])
    amends = [record for record in changes if record["type"] == "amend"]
    drops = [record for record in changes if record["type"] == "drop"]
    try:
        changes_text = any("content" in record.get("fields", ()) for record in amends)
        return changes_text, {key for record in drops for key in record.get("ids", ())}
    except TypeError:  # damaged records
        return True, set()


def _messages_in(records: Iterator[Record], dropped: set[str]) -> Iterator[tuple[Message, float]]:
    for record in records:
        if record["type"] == "message" and isinstance(record.get("message"), dict):
            message = read_message(record["message"])
            if message is not None and message.id not in dropped:
                yield message, stored_at(record)


def _needles(query: Query, *, only_ascii: bool) -> list[tuple[bytes, re.Pattern[bytes]]]:
    """Return pairs of a byte string and a pattern. Lines that match the query contain all of them.

    The byte strings are parts of the words of the query. A pattern also requires that a word begins
    or ends there. Both are for lines whose ASCII letters are in lower case. A part with other
    letters is left out if the letters have two cases, or if `only_ascii` is true.
    """
    needles = []
    words = [(word, prefix and word is term[-1]) for term, prefix in query.terms for word in term]
    for word, prefix in words:
        for match in _PIECE.finditer(word):
            literal = match.group().lower().encode()
            pattern = literal  # the literal comes first in the pattern, for a fast search
            if not literal.isascii():
                if only_ascii or match.group().upper() != match.group().lower():
                    continue
            else:
                if match.end() == len(word) and not prefix:
                    pattern += rb"(?![a-z0-9])"
                if match.start() == 0:  # the word may follow an escape that ends in a letter
                    before = (rb"(?<![a-z0-9]%b)", rb"(?<=\\[nrtbf]%b)", rb"(?<=\\u[0-9a-f]{4}%b)")
                    pattern += rb"(?:" + rb"|".join(each % literal for each in before) + rb")"
            needles.append((literal, re.compile(pattern)))
    return needles


def _lines_with(
    data: bytes, text: bytes, needles: Sequence[tuple[bytes, re.Pattern[bytes]]]
) -> Iterator[Record]:
    """Yield the records of the lines that contain all `needles`, the last line first.

    Args:
        data: the lines.
        text: the same lines, in lower case if the needles are.
        needles: byte strings and patterns, as `_needles` returns them.
    """
    if any(literal not in text for literal, _ in needles):
        return
    rarest = sorted(needles, key=lambda needle: text.count(needle[0]))
    first, *others = [pattern for _, pattern in rarest] or [_LINE]
    before = len(text)
    for at in reversed([match.start() for match in first.finditer(text)]):
        left = text.rfind(b"\n", 0, at) + 1
        right = text.find(b"\n", at)  # -1 if the line is incomplete: then the slice below is empty
        if left >= before:  # seen already
            continue
        before = left
        if all(needle.search(text, left, right) for needle in others):
            for record, _ in records_in(data[left : right + 1]):
                yield record
