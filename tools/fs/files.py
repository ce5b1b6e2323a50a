"""Read pages of files, guess the encodings of files, and write files atomically.

A page of a file of any size is read without loading the whole file. A write replaces the file
atomically, or changes nothing. It never leads outside the root or into git's own directory.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from sys import maxsize

from glue.errors import ToolError, UnsafePath
from glue.tools.fs.root import (
    DIRECTORY,
    Guard,
    ResolvedPath,
    Root,
    file_kind,
    is_same_file,
    path_error,
    shorten,
)

LINES = 2000
BYTES = 80 * 1024
BLOCK = 1024 * 1024
SECONDS = 4.0
SNIFF = 8192
MAX_WRITE = 8 * 1024 * 1024
MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
CONTROLS = re.compile(rb"[\x80-\x9f]")

Mark = tuple[int, int, int, int]  # device, inode, size, and time of the last write


def read_page(
    file: io.BufferedReader,
    offset: int = 1,
    limit: int = LINES,
    start: int = 0,
    numbers: bool = False,
) -> str:
    """Return a page of a file: up to `limit` lines from line `offset`, and a note if more follow.

    `start` skips that many bytes of the first line, for a line that is longer than a page. For a
    binary file, return only a note.
    """
    if offset < 1 or limit < 1 or start < 0:
        raise ToolError(
            "offset and limit must be at least 1, and start at least 0; "
            f"got offset {offset}, limit {limit} and start {start}"
        )
    head = file.peek(SNIFF)[:SNIFF]
    if b"\0" in head:
        size = file.seek(0, io.SEEK_END)
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return f"[UTF-16 text of {size} bytes; not shown: UTF-16 text cannot be read]"
        return f"[binary file of {size} bytes; not shown]"
    deadline = time.monotonic() + SECONDS
    pager = Pager(offset, BYTES, min(limit, LINES), start, "the file")
    while (block := file.read(BLOCK)) and pager.feed(block):
        if time.monotonic() > deadline:
            raise ToolError(
                f"line {offset} was not reached in {SECONDS:g} s: stopped after {file.tell()}"
                " bytes; use grep"
            )
    content, last, hint = pager.take()
    if not content:
        return (
            "[the file is empty]"
            if offset == 1 and start == 0
            else f"[no more text: line {offset} ends here]"
        )
    text = content.decode("latin-1" if guess_encoding(content) == "latin-1" else "utf-8", "replace")
    if numbers:
        # Not splitlines, which also splits at form feeds and other characters.
        lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
        text = "".join(f"{at:6}| {line}" for at, line in enumerate(lines, offset))
    return _noted(text, f"lines {offset}-{last}; {hint}" if hint else "")


class Pager:
    """A collector of one page of a text: `feed` adds a block of the text, `take` returns the page.

    `offset` is the first line, `cap` the maximum of bytes, `limit` the maximum of lines, `start`
    the bytes to skip in the first line, and `what` the name of the text in messages. Without
    `start`, a line that does not fit is cut.
    """

    def __init__(
        self,
        offset: int,
        cap: int,
        limit: int = maxsize,
        start: int | None = None,
        what: str = "the text",
    ) -> None:
        self.offset, self.cap, self.limit = max(offset, 1), cap, limit
        self.start, self.what = start, what
        self.passed = 0  # lines before the page
        self.skip = start or 0  # bytes still to skip in the first line
        self.ended = True  # the text before the page ends with a newline
        self.is_past = True  # the text ends before the page starts
        self.kept = bytearray()

    def feed(self, block: bytes) -> bool:
        """Add a block of the text; return whether the page needs another block."""
        if wanted := self.offset - 1 - self.passed:
            count = block.count(b"\n")
            if count < wanted:
                self.passed += count
                self.ended = block.endswith(b"\n")
                return True
            self.passed, self.ended, at = self.offset - 1, True, 0
            for _ in range(wanted):
                at = block.index(b"\n", at) + 1
            block = block[at:]
        self.is_past = self.is_past and not block
        if b"\n" in block[: self.skip]:
            return False  # the line is shorter than `start`
        self.kept += block[self.skip :]
        self.skip = max(self.skip - len(block), 0)
        return len(self.kept) <= self.cap

    def take(self) -> tuple[bytes, int, str]:
        """Return the page, the number of its last line, and a hint on how to continue.

        The hint is "" if no text follows. Raise ToolError if the text ends before the page starts.
        """
        if self.offset > 1 and self.is_past:
            count = self.passed + (not self.ended)
            raise ToolError(f"offset {self.offset} is past the end: {self.what} has {count} lines")
        if self.skip:
            raise ToolError(
                f"line {self.offset} is shorter than {self.start} bytes, "
                "so start is past its end; leave out start"
            )
        lines = re.findall(rb"[^\n]*\n|[^\n]+$", self.kept[: self.cap])
        if len(self.kept) > self.cap and not lines[-1].endswith(b"\n"):
            begun = lines.pop()
            if not lines:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                decoder.decode(begun)
                # Without the bytes of a character that was cut in two.
                begun = begun[: len(begun) - len(decoder.getstate()[0])]
                if self.start is None:
                    hint = f"line {self.offset} is cut; continue with offset {self.offset + 1}"
                    return begun, self.offset, hint
                more = f"continue with offset {self.offset} and start {self.start + len(begun)}"
                return begun, self.offset, f"line {self.offset} is longer than this page: {more}"
        content = b"".join(lines[: self.limit])
        last = self.offset + min(len(lines), self.limit) - 1
        hint = f"continue with offset {last + 1}" if len(content) < len(self.kept) else ""
        return content, last, hint

    def text(self) -> str:
        """Return the page as text, with a note on how to continue if more text follows."""
        content, _, hint = self.take()
        return _noted(content.decode("utf-8", "replace"), hint)


def _noted(text: str, note: str) -> str:
    separator = "" if text.endswith("\n") else "\n"
    return f"{text}{separator}[{note}]" if note else text


def lines_that_fit(lines: Iterable[str], cap: int) -> list[str]:
    """Return the first lines, as many as fit into `cap` bytes."""
    kept: list[str] = []
    for line in lines:
        cap -= len(line.encode("utf-8", "replace")) + 1
        if cap < 0:
            break
        kept.append(line)
    return kept


def count_lines(content: bytes) -> int:
    """Return the number of lines in some bytes; the last line need not end with a newline."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def show_name(name: str) -> str:
    """Return a name to show in a message: unchanged or, if unusual, quoted as JSON on one line."""
    plain = name.isprintable() and name == name.strip() and not name.startswith(('"', "["))
    return name if plain else json.dumps(name)


def suggest(near: Iterable[str]) -> str:
    """Return a hint with the given names, such as "; did you mean a.py?", or "" for no names."""
    names = " or ".join(map(show_name, near))
    return f"; did you mean {names}?" if names else ""


def decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Return a file's text, and a function that encodes another text in the file's encoding.

    Raise ToolError if the file is binary. The function raises ToolError for a character that the
    encoding does not have.
    """
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            try:
                return content[2:].decode(name), partial(_encode, mark, name, "strict")
            except UnicodeDecodeError:
                break
    if b"\0" in content[:SNIFF]:
        raise ToolError("the file is binary; only text can be edited")
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    name = "utf-8" if mark else guess_encoding(content)
    return content[len(mark) :].decode(name, "surrogateescape"), partial(
        _encode, mark, name, "surrogateescape"
    )


def _encode(mark: bytes, name: str, errors: str, text: str) -> bytes:
    try:
        return mark + text.encode(name, errors)
    except UnicodeEncodeError as error:
        odd = text[error.start]
        raise ToolError(
            f"the file is not in UTF-8 but in {name} or a similar encoding, "
            f"which does not have the character {odd!a}; leave the character out"
        ) from None


def guess_encoding(content: bytes) -> str:
    """Return the probable encoding of some bytes: "utf-8", "latin-1", or "ascii" if unknown.

    The result is "utf-8" also if some characters are broken.
    """
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        if MULTIBYTE.search(content):
            return "utf-8"
        return "ascii" if CONTROLS.search(content) else "latin-1"
    return "utf-8"


def mark_of(found: os.stat_result) -> Mark:
    """Return the mark of a file: four numbers of its stat result, which differ after each write."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def write(
    root: Root,
    path: str,
    content: bytes,
    *,
    guard: Guard | None = None,
    mark: Mark | None = None,
    is_new: bool = False,
) -> tuple[bool, Mark]:
    """Write a file atomically, create its folders, and return whether it is new, and its Mark.

    The mark differs after each write, so that a later write can detect changes; see `mark_of`.
    A link that stays below the root is followed, and the file that it names is replaced.

    Args:
        root: the root of the path.
        path: the file, relative to the root.
        content: the whole new content.
        guard: a function that raises if it refuses the resolved path.
        mark: the mark of the file as it was read; if the file differs now, raise a ToolError.
        is_new: raise a ToolError if the file exists.
    """
    if len(content) > MAX_WRITE:
        raise ToolError(
            f"{len(content)} bytes are too many for one file; at most {MAX_WRITE} can be written"
        )
    with root.place(path) as place, ExitStack() as stack:
        if any(map(folds_to_git, place.names)):
            raise UnsafePath(
                f"{shorten(place.path)} is in git's own directory, which tools do not write to"
            )
        if guard is not None:
            guard(place.names)
        if place.name is None or path.rpartition("/")[2] in ("", ".", ".."):
            raise path_error(errno.EISDIR, path)
        parent = place.fd
        for name in place.missing:
            # Another process may create it first; the open below refuses anything but a folder.
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
            parent = os.open(name, DIRECTORY, dir_fd=parent)
            stack.callback(os.close, parent)
        old = _target(parent, place.name, path, mark, is_new)
        return old is None, _replace(root, parent, place.name, place, content, old)


def folds_to_git(name: str) -> bool:
    """Return whether a file name is `.git`, or a name that some file system treats as `.git`."""
    # HFS+ and others drop these characters: joiners, direction marks, variation selectors.
    dropped = ("Cf", "Cc", "Cs")
    plain = "".join(
        char
        for char in name
        if unicodedata.category(char) not in dropped and not 0xFE00 <= ord(char) <= 0xFE0F
    )
    plain = unicodedata.normalize("NFKC", plain).casefold()
    parts = (part.split(":")[0].rstrip(". ") for part in plain.split("\\"))
    return any(part == ".git" or (part.startswith("git~") and part[4:].isdigit()) for part in parts)


def _target(
    parent: int, name: str, path: str, mark: Mark | None, is_new: bool
) -> os.stat_result | None:
    """Return the stat result of the file that a write replaces, or None if no file exists.

    Raise an error if the file must not be replaced: it changed, is read-only, or is not regular.
    """
    try:
        old = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if mark is not None:
            raise ToolError(f"{shorten(path)} was removed meanwhile; nothing was written") from None
        return None
    if not stat.S_ISREG(old.st_mode):
        kind = file_kind(old.st_mode)
        raise UnsafePath(f"{shorten(path)} is a {kind}, not a regular file; nothing was written")
    if is_new:
        raise ToolError(
            f"{shorten(path)} was created meanwhile; nothing was written; read the file"
        )
    if mark is not None and mark_of(old) != mark:
        raise ToolError(f"{shorten(path)} changed meanwhile; nothing was written; read it again")
    if not old.st_mode & 0o222:
        # A rename needs only the folder's permission, but a read-only file is not replaced.
        raise path_error(errno.EACCES, path, "the file is read-only")
    return old


def _replace(
    root: Root,
    parent: int,
    name: str,
    place: ResolvedPath,
    content: bytes,
    old: os.stat_result | None,
) -> Mark:
    temporary = f".{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A new file gets the mode of the umask; until it is complete, only the owner may read it.
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=parent)
    try:
        with open(fd, "wb") as file:
            now = os.fstat(fd)
            os.fchmod(fd, 0o600)
            file.write(content)
            file.flush()
            if old is not None:
                if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
                    with suppress(OSError):  # only root may give a file to another owner
                        os.fchown(fd, old.st_uid, old.st_gid)
                _copy_attributes(parent, name, fd)
            os.fchmod(fd, stat.S_IMODE((old or now).st_mode) & 0o777)
            os.fsync(fd)
            made = mark_of(os.fstat(fd))
        _check_still_there(root, parent, place)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    with suppress(OSError):  # some file systems cannot sync a folder; the content is on disk
        os.fsync(parent)
    return made


def _copy_attributes(parent: int, name: str, fd: int) -> None:
    """Copy the extended attributes of a file, such as access lists, to another open file.

    Python supports them only on Linux. File capabilities are not copied, because the kernel removes
    them from every file whose content changes.
    """
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):  # the file cannot be opened, or the file system has no attributes
        old = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
        )
        try:
            for attribute in os.listxattr(old):
                if attribute == "security.capability":
                    continue
                with suppress(OSError):  # some attributes may be set only by the system
                    os.setxattr(fd, attribute, os.getxattr(old, attribute))
        finally:
            os.close(old)


def _check_still_there(root: Root, parent: int, place: ResolvedPath) -> None:
    """Raise UnsafePath if the open folder was moved, because it may be outside the root now."""
    try:
        with root.place("/".join(place.names[:-1]) or ".", links=False) as again:
            there = again.name is None and is_same_file(os.fstat(again.fd), os.fstat(parent))
    except (OSError, UnsafePath):
        there = False
    if not there:
        raise UnsafePath(
            f"the folder of {shorten(place.path)} was moved meanwhile; nothing was written"
        )
