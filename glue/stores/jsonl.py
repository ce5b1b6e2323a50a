"""`FileStore`: one append-only JSON-lines file a conversation. Acknowledged means on disk."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from glue.errors import ConfigError, StoreError
from glue.messages import Message
from glue.stores import store
from glue.stores.store import BlockingStore, Fold, Query, Record, SearchHit, SessionInfo

_log = logging.getLogger("glue.stores")
_log.addHandler(logging.NullHandler())  # silent unless someone listens
_PLAIN = re.compile(rb"[^A-Za-z0-9_.@+=,-]|^\.")
_SUFFIX = ".jsonl"
_LINE = re.compile(rb"\n")
_PIECE = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]+")  # of a word


class FileStore(BlockingStore):
    """Keep each conversation in a file of its own below a folder.

    `sync=False` leaves it to the system when records reach the disk: quicker, and still safe from a
    killed process, but not from a power cut.
    """

    def __init__(self, root: str | os.PathLike[str], *, sync: bool = True) -> None:
        if sys.platform == "win32":
            raise ConfigError("FileStore needs POSIX file locks; use MemoryStore on Windows")
        self.root = Path(root)
        self.sync = sync

    def path(self, id: str) -> Path:
        """Say where a session is kept; characters that are unsafe in file names are written as %XX."""
        name = _PLAIN.sub(lambda match: b"%%%02X" % match.group()[0], store.check_id(id).encode())
        if len(name) > 240:
            raise ValueError(f"the session id {id!r} is too long for a file name")
        return self.root / (name.decode() + _SUFFIX)

    def _writer(self, id: str, first: Record) -> _Writer:
        return _Writer(self.path(id), id, first, self.sync)

    def paths(self) -> tuple[Path, ...]:
        """Give the files that are sessions, or are named like one."""
        return tuple(sorted(path for path in self.root.glob(f"*{_SUFFIX}") if path.is_file()))

    def _there(self, id: str) -> Path:
        path = self.path(id)
        if not path.is_file():
            raise store.missing(id, [info.id for info in self._list()])
        return path

    def _list(self) -> tuple[SessionInfo, ...]:
        infos = []
        for path in self.paths():
            with contextlib.suppress(StoreError, OSError):  # one unreadable file must not hide the others
                fold, _ = read(path, brief=True)
                infos.append(store.describe(fold.header, fold.messages, path.stat().st_mtime))
        return tuple(sorted(infos, key=lambda info: info.updated, reverse=True))

    def _read(self, id: str) -> tuple[tuple[Message, ...], Mapping[str, float], Record]:
        fold, times = read(self._there(id))
        return tuple(fold.messages), times, fold.header

    def _search(self, query: Query) -> tuple[SearchHit, ...]:
        paths = self.paths() if query.session is None else [self._there(query.session)]
        return query.newest(hit for path in paths for hit in scan(path, query))

    def _delete(self, id: str) -> None:
        path = self._there(id)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            lock(fd, id)
            path.unlink()
            path.with_suffix(".torn").unlink(missing_ok=True)
            sync_folder(path.parent)
        finally:
            os.close(fd)


class _Writer:
    def __init__(self, path: Path, id: str, first: Record, sync: bool) -> None:
        self.path, self.id, self.first, self.sync = path, id, first, sync
        self.blocks = True
        self.fd = -1
        self.end = 0  # where the last whole record ends
        self.failed: StoreError | None = None

    def open(self, fold: Fold) -> None:
        self.failed, self.blocks = None, self.sync  # without a wait for the disk a write is quicker than a thread
        try:
            self.fd = open_locked(self.path, self.id, self.sync)
        except OSError as error:
            self._open_to_read(fold, error)
            return
        size = os.fstat(self.fd).st_size
        head = line(fold.header)
        # A file that was made anew may well have the old inode.
        if not self.end or size < self.end or pread(self.fd, 0, len(head)) != head:
            fold.clear()
            self.end = 0
        tail = pread(self.fd, self.end, size)
        if not self.end:
            check_first(tail, self.path)
        good = 0
        for record, stop in records_in(tail):
            applied(fold, record)
            good = stop
        self.end += good
        if fold.header and fold.header["session"] != self.id:
            raise StoreError(f"{self.path} holds the session {fold.header['session']!r}, not {self.id!r}")
        if fold.read_only:
            _log.warning("%s", fold.read_only)
            return
        if good < len(tail):
            self._cut(tail[good:])
        if not fold.header:
            self.write((self.first,))
            fold.apply(self.first)

    def _open_to_read(self, fold: Fold, error: OSError) -> None:
        why = store.read_only(self.id, self.path, error)
        try:
            found, _ = read(self.path)
        except OSError:  # there is none, or it is not for us to read
            raise store.closed(self.id, self.path, error) from error
        fold.header, fold.messages, fold.read_only = found.header, found.messages, found.read_only or why
        self.end = 0

    def write(self, records: Sequence[Record]) -> None:
        if self.failed is not None:
            raise StoreError(f"{self.failed}; an earlier write failed: open the session again") from self.failed
        block = b"".join(map(line, records))
        try:
            view = memoryview(block)
            while view:
                view = view[os.write(self.fd, view) :]
            self._wait(self.fd)
        except OSError as error:
            # Half a record must not stay where the next one would be joined to it.
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.end)
            self.failed = StoreError(f"session {self.id!r} could not be written to {self.path}: {error.strerror}")
            raise self.failed from error
        self.end += len(block)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)  # gives up the lock too
            self.fd = -1
        self.blocks = True  # to open it again is to read it

    def _wait(self, fd: int) -> None:
        if self.sync:
            store.sync_data(fd)

    def _cut(self, tail: bytes) -> None:
        side = self.path.with_suffix(".torn")
        fd = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, tail + b"\n")
            self._wait(fd)
        finally:
            os.close(fd)
        _log.warning("session %r: %d torn bytes at the end were moved to %s", self.id, len(tail), side)
        os.ftruncate(self.fd, self.end)
        self._wait(self.fd)


# Files --------------------------------------------------------------------------------------------


def open_locked(path: Path, id: str, sync: bool) -> int:
    """Open for appending, alone; make the file where there is none."""
    while True:
        new = not path.exists()
        if new and not path.parent.is_dir():
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
            sync_folder(path.parent.parent)
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            lock(fd, id)
            if new and sync:
                sync_folder(path.parent)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # deleted between the opening and the locking: once more


def lock(fd: int, id: str) -> None:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise store.busy(id) from error


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def line(record: Record) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, as a model may send: only escapes can keep it
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def pread(fd: int, start: int, stop: int) -> bytes:
    blocks = []
    while start < stop and (block := os.pread(fd, stop - start, start)):
        blocks.append(block)
        start += len(block)
    return b"".join(blocks)


def records_in(data: bytes) -> Iterator[tuple[Record, int]]:
    """Give each record and where it ends, up to the first that is not whole."""
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


def applied(fold: Fold, record: Record) -> None:
    """Take in a whole record; one that this version cannot read is passed over and stays in the file."""
    with contextlib.suppress(StoreError, KeyError, TypeError, ValueError):
        fold.apply(record)


def check_first(data: bytes, path: Path) -> Record | None:
    """Give the header, None of an empty file; refuse what was never a transcript, rather than cut it away as damage."""
    first = data.find(b"\n")
    if first < 0:
        return None  # or killed while the header was written
    for record, _ in records_in(data[: first + 1]):
        if record["type"] == "header" and isinstance(record.get("session"), str):
            return record
    raise StoreError(f"{path} does not begin with a session header; it is left as it is")


def read(path: Path, *, brief: bool = False) -> tuple[Fold, dict[str, float]]:
    """Read a file that someone else may be writing: no lock, nothing is cut. `brief` stops at the first message."""
    fold, times = Fold(), dict[str, float]()
    with path.open("rb") as file:
        data = file.read(65_536 if brief else -1)
    check_first(data, path)
    for record, _ in records_in(data):
        applied(fold, record)
        if record["type"] == "message" and isinstance(record.get("message"), dict):
            times[record["message"].get("id", "")] = stored_at(record)
        if brief and fold.messages:
            break
    if not fold.header:
        raise StoreError(f"{path} has no session header")
    return fold, times


def stored_at(record: Record) -> float:
    at = record.get("at")
    return at if isinstance(at, (int, float)) else 0.0


def scan(path: Path, query: Query) -> list[SearchHit]:
    """Search one file from its end, decoding only lines that can hold a match; a file that is no session has none."""
    try:
        data = path.read_bytes()
        head = check_first(data, path)
    except (StoreError, OSError):
        return []
    if head is None:
        return []
    session = head["session"]
    marks = (b'"type":"amend"', b'"type":"drop"')
    changes = [record for mark in marks for record in _lines_with(data, data, [(mark, re.compile(mark))])]
    try:
        amended = any("content" in record.get("fields", ()) for record in changes if record["type"] == "amend")
        dropped = {key for record in changes if record["type"] == "drop" for key in record.get("ids", ())}
    except TypeError:  # damaged
        amended = True
    if amended:
        fold, times = read(path)
        return query.find(session, ((one, times.get(one.id, 0.0)) for one in fold.messages))
    # Half a surrogate pair makes a line be written in escapes, and Korean may be written in parts of its letters:
    # then only ASCII can be looked for.
    only_ascii = b"\\ud" in data or b"\xe1\x84" in data
    lines = _lines_with(data, data.lower(), _needles(query, only_ascii=only_ascii))
    records = (record for record in lines if record["type"] == "message" and isinstance(record.get("message"), dict))
    found = ((store.read_message(record["message"]), stored_at(record)) for record in records)
    return query.find(session, ((one, at) for one, at in found if one and one.id not in dropped), most=query.limit)


def _needles(query: Query, *, only_ascii: bool) -> list[tuple[bytes, re.Pattern[bytes]]]:
    """Make literals, with patterns around them, that a line, its ASCII in lower case, must fit to match a query.

    What has two cases beyond ASCII does not count.
    """
    made = []
    for word, prefix in ((word, prefix and word is words[-1]) for words, prefix in query.terms for word in words):
        for match in _PIECE.finditer(word):
            literal = match.group().lower().encode()
            pattern = literal
            if not literal.isascii():
                if only_ascii or match.group().upper() != match.group().lower():
                    continue
            else:
                if match.end() == len(word) and not prefix:
                    pattern += rb"(?![a-z0-9])"
                if match.start() == 0:  # or behind an escape that ends in a letter: "\\nword"
                    behind = (rb"(?<![a-z0-9]%b)", rb"(?<=\\[nrtbf]%b)", rb"(?<=\\u[0-9a-f]{4}%b)")
                    pattern += rb"(?:" + rb"|".join(each % literal for each in behind) + rb")"
            made.append((literal, re.compile(pattern)))  # begins with the literal, which is what makes it quick
    return made


def _lines_with(data: bytes, text: bytes, needles: Sequence[tuple[bytes, re.Pattern[bytes]]]) -> Iterator[Record]:
    """Give the records of lines that fit all needles, the last first; `text` is the data in the needles' case."""
    if any(literal not in text for literal, _ in needles):
        return
    first, *others = [pattern for _, pattern in sorted(needles, key=lambda needle: text.count(needle[0]))] or [_LINE]
    before = len(text)
    for at in reversed([match.start() for match in first.finditer(text)]):
        left = text.rfind(b"\n", 0, at) + 1
        right = text.find(b"\n", at)
        if right < 0 or left >= before:  # torn or being written, or seen already
            continue
        before = left
        if all(needle.search(text, left, right) for needle in others):
            for record, _ in records_in(data[left : right + 1]):
                yield record
