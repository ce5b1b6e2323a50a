"""Records as lines of a file: opened alone, written whole, read as far as they are whole."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from glue.errors import SessionBusy, StoreError
from glue.stores.log import Fold, Record, newer
from glue.stores.protocol import SessionInfo, describe


def open_locked(path: Path, id: str, sync: bool) -> int:
    """Open for appending, alone; make the file where there is none."""
    while True:
        new = not path.exists()
        if new:
            _make_folder(path.parent)
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"session {id!r} cannot be opened: {error}") from error
        try:
            lock(fd, id)
            if new and sync:
                sync_folder(path.parent)
            if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
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
        raise SessionBusy(f"session {id!r} is in use, here or by another process; one writer at a time") from error


def sync_data(fd: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's own cache
    else:
        os.fdatasync(fd)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


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
        except ValueError:
            return
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            return
        start = stop + 1
        yield record, start


def applied(fold: Fold, record: Record) -> bool:
    try:
        fold.apply(record)
    except (StoreError, KeyError, TypeError, ValueError):
        return bool(newer(fold.header))  # a newer version may know what this one cannot read
    return True


def check_first(data: bytes, path: Path) -> None:
    """Refuse what was never a transcript, rather than cut it away as damage."""
    first = data.find(b"\n")
    if first < 0:
        return  # empty, or killed while the header was written
    for record, _ in records_in(data[: first + 1]):
        if record["type"] == "header" and isinstance(record.get("session"), str):
            return
    raise StoreError(f"{path} does not begin with a session header; it is left as it is")


def read(path: Path) -> tuple[Fold, dict[str, float]]:
    """Read a file that someone else may be writing: no lock, nothing is cut."""
    fold, times = Fold(), dict[str, float]()
    data = path.read_bytes()
    check_first(data, path)
    for record, _ in records_in(data):
        if not applied(fold, record):
            break
        if record["type"] == "message":
            times[record["message"].get("id", "")] = record.get("at", 0.0)
    if not fold.header:
        raise StoreError(f"{path} has no session header")
    return fold, times


def read_info(path: Path) -> SessionInfo:
    """Sum up from the first records; a long session is not read to its end."""
    fold = Fold()
    with path.open("rb") as file:
        data = file.read(65_536)
    check_first(data, path)
    for record, _ in records_in(data):
        if not applied(fold, record) or fold.messages:
            break
    if not fold.header:
        raise StoreError(f"{path} has no session header")
    return describe(fold.header, fold.messages, path.stat().st_mtime)
