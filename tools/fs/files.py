"""Read a page of a file of any size without ever holding it, and write a file whole or not at all.

Text is decoded in the encoding that it has. Nothing is written through a link, nor into git's own directory.
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
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from sys import maxsize

from glue.errors import ToolError, UnsafePath
from glue.tools.fs.root import DIRECTORY, Guard, ResolvedPath, Root, failure, kind, same, shorten

LINES = 2000
BYTES = 80 * 1024
BLOCK = 1024 * 1024
SECONDS = 4.0
SNIFF = 8192
MAX_WRITE = 8 * 1024 * 1024
MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
CONTROLS = re.compile(rb"[\x80-\x9f]")

Mark = tuple[int, int, int, int]

# Pages ---------------------------------------------------------------------------------------------------


def page(file: io.BufferedReader, offset: int = 1, limit: int = LINES, start: int = 0, numbers: bool = False) -> str:
    """Give the lines from `offset` on, as many as fit, and say how to go on.

    `start` leaves out that many bytes of the first line, for a line that is longer than a page.
    """
    if offset < 1 or limit < 1 or start < 0:
        raise ToolError(f"offset and limit count from 1, start from 0; got {offset}, {limit} and {start}")
    head = file.peek(SNIFF)[:SNIFF]
    if b"\0" in head:
        size = file.seek(0, io.SEEK_END)
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return f"[UTF-16 text of {size} bytes; not shown: only text in UTF-8 or a kin of ASCII can be paged]"
        return f"[binary file of {size} bytes; not shown]"
    deadline = time.monotonic() + SECONDS
    pager = Pager(offset, BYTES, min(limit, LINES), start, "the file")
    while (block := file.read(BLOCK)) and pager.feed(block):
        if time.monotonic() > deadline:
            raise ToolError(f"line {offset} is too far into the file: gave up after {file.tell()} bytes; use grep")
    content, last, hint = pager.take()
    if not content:
        return "[the file is empty]" if offset == 1 and start == 0 else f"[no more text: line {offset} ends here]"
    text = content.decode("latin-1" if encoding(content) == "latin-1" else "utf-8", "replace")
    if numbers:
        lines = re.findall(r"[^\n]*\n|[^\n]+$", text)  # not splitlines: it ends lines where no one else does
        text = "".join(f"{at:6}| {line}" for at, line in enumerate(lines, offset))
    return _noted(text, f"lines {offset}-{last}; {hint}" if hint else "")


class Pager:
    """Takes a text block by block, keeps the lines from `offset` on that fit, and says when it has enough.

    `start` leaves out that many bytes of the first of them; without one, what does not fit of a line is not shown.
    """

    def __init__(
        self, offset: int, cap: int, limit: int = maxsize, start: int | None = None, what: str = "the text"
    ) -> None:
        self.offset, self.cap, self.limit, self.start, self.what = max(offset, 1), cap, limit, start, what
        self.passed, self.skip = 0, start or 0  # lines before the page, and bytes still to be left out of the first
        self.ended = self.is_past = True  # whether what was passed ends a line; whether that was all there is
        self.kept = bytearray()

    def feed(self, block: bytes) -> bool:
        """Take a block, and say whether another is wanted."""
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
            return False  # the line does not go on for so long
        self.kept += block[self.skip :]
        self.skip = max(self.skip - len(block), 0)
        return len(self.kept) <= self.cap

    def take(self) -> tuple[bytes, int, str]:
        """Give the page, the number of its last line, and how to go on; nothing where that is the end."""
        if self.offset > 1 and self.is_past:
            count = self.passed + (not self.ended)
            raise ToolError(f"offset {self.offset} is past the end: {self.what} has {count} lines")
        if self.skip:
            raise ToolError(f"line {self.offset} has no byte {self.start}; start is for a line that goes on")
        lines = re.findall(rb"[^\n]*\n|[^\n]+$", self.kept[: self.cap])
        if len(self.kept) > self.cap and not lines[-1].endswith(b"\n"):
            begun = lines.pop()
            if not lines:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                decoder.decode(begun)
                begun = begun[: len(begun) - len(decoder.getstate()[0])]  # without a character that was cut in two
                if self.start is None:
                    return begun, self.offset, f"line {self.offset} is cut; continue with offset {self.offset + 1}"
                on = f"continue with offset {self.offset} and start {self.start + len(begun)}"
                return begun, self.offset, f"line {self.offset} is longer: {on}"
        content = b"".join(lines[: self.limit])
        last = self.offset + min(len(lines), self.limit) - 1
        return content, last, f"continue with offset {last + 1}" if len(content) < len(self.kept) else ""

    def text(self) -> str:
        """Give the page as text, and how to go on."""
        content, _, hint = self.take()
        return _noted(content.decode("utf-8", "replace"), hint)


def _noted(text: str, note: str) -> str:
    separator = "" if text.endswith("\n") else "\n"
    return f"{text}{separator}[{note}]" if note else text


def fitting(lines: Iterable[str], cap: int) -> list[str]:
    """Give the first lines that fit into so many bytes."""
    kept: list[str] = []
    for line in lines:
        cap -= len(line.encode("utf-8", "replace")) + 1
        if cap < 0:
            break
        kept.append(line)
    return kept


def count_lines(content: bytes) -> int:
    """Count lines; the last need not be ended."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def show(name: str) -> str:
    """Write a file name on one line; odd ones as JSON text, which may be sent back as it stands."""
    plain = name.isprintable() and name == name.strip() and not name.startswith(('"', "["))
    return name if plain else json.dumps(name)


def suggest(near: Iterable[str]) -> str:
    """Write the end of a message: which files may have been meant."""
    names = " or ".join(map(show, near))
    return f"; did you mean {names}?" if names else ""


# Encodings -----------------------------------------------------------------------------------------------


def decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Decode a file; the function that comes along encodes a text as the file was, or refuses what does not fit it."""
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            try:
                return content[2:].decode(name), partial(_encode, mark, name, "strict")
            except UnicodeDecodeError:
                break
    if b"\0" in content[:SNIFF]:
        raise ToolError("the file is binary; only text can be edited")
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    name = "utf-8" if mark else encoding(content)
    return content[len(mark) :].decode(name, "surrogateescape"), partial(_encode, mark, name, "surrogateescape")


def _encode(mark: bytes, name: str, errors: str, text: str) -> bytes:
    try:
        return mark + text.encode(name, errors)
    except UnicodeEncodeError as error:
        odd = text[error.start]
        raise ToolError(f"the file is not in UTF-8 but in {name} or a kin of it, which has no {odd!a}") from None


def encoding(content: bytes) -> str:
    """Tell UTF-8, also with broken characters in it, from Latin-1, and from what is only known to extend ASCII."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        if MULTIBYTE.search(content):
            return "utf-8"
        return "ascii" if CONTROLS.search(content) else "latin-1"
    return "utf-8"


# Writing -------------------------------------------------------------------------------------------------


def mark_of(found: os.stat_result) -> Mark:
    """Tell a file, as it was when it was read, from what it may become."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def write(
    root: Root, path: str, content: bytes, *, guard: Guard | None = None, mark: Mark | None = None
) -> tuple[bool, Mark]:
    """Put a file in place in one step, and make its folders; say whether it is new, and how to tell it.

    `mark` refuses to write over anything but the file that was read.
    """
    if len(content) > MAX_WRITE:
        raise ToolError(f"{len(content)} bytes are too many for one file; at most {MAX_WRITE} can be written")
    with root.place(path, final=False) as place, ExitStack() as held:
        if any(map(folds_to_git, place.names)):
            raise UnsafePath(f"{shorten(place.path)} lies in git's own directory, which is not written to")
        if guard is not None:
            guard(place.names)
        if place.name is None or path.rpartition("/")[2] in ("", ".", ".."):
            raise failure(errno.EISDIR, path)
        parent = place.fd
        for name in place.missing:
            with suppress(FileExistsError):  # someone was quicker; what it is, the next line finds out
                os.mkdir(name, dir_fd=parent)
            parent = os.open(name, DIRECTORY, dir_fd=parent)
            held.callback(os.close, parent)
        old = _target(parent, place.name, path, mark)
        return old is None, _replace(root, parent, place.name, place, content, old)


def folds_to_git(name: str) -> bool:
    """Say whether some file system takes a name for `.git`."""
    import unicodedata  # not for those who only read

    # HFS+ and others drop these from names: joiners, direction marks, variation selectors and the like.
    dropped = ("Cf", "Cc", "Cs")
    plain = "".join(
        char for char in name if unicodedata.category(char) not in dropped and not 0xFE00 <= ord(char) <= 0xFE0F
    )
    plain = unicodedata.normalize("NFKC", plain).casefold()
    parts = (part.split(":")[0].rstrip(". ") for part in plain.split("\\"))
    return any(part == ".git" or (part.startswith("git~") and part[4:].isdigit()) for part in parts)


def _target(parent: int, name: str, path: str, mark: Mark | None) -> os.stat_result | None:
    try:
        old = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if mark is not None:
            raise ToolError(f"{shorten(path)} was removed meanwhile; nothing was written") from None
        return None
    if not stat.S_ISREG(old.st_mode):
        raise UnsafePath(f"{shorten(path)} is a {kind(old.st_mode)}, not a regular file; nothing was written")
    if mark is not None and mark_of(old) != mark:
        raise ToolError(f"{shorten(path)} changed meanwhile; nothing was written: read it again")
    if not old.st_mode & 0o222:
        # A rename asks only the folder for leave; the file's own word counts too.
        raise failure(errno.EACCES, path, "the file is read-only")
    return old


def _replace(
    root: Root, parent: int, name: str, place: ResolvedPath, content: bytes, old: os.stat_result | None
) -> Mark:
    temporary = f".{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A new file gets what the umask leaves; nobody but us may look until it is whole.
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=parent)
    try:
        with open(fd, "wb") as file:
            now = os.fstat(fd)
            os.fchmod(fd, 0o600)
            file.write(content)
            file.flush()
            if old is not None and (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
                with suppress(OSError):  # given back to its owner, where we may
                    os.fchown(fd, old.st_uid, old.st_gid)
            os.fchmod(fd, stat.S_IMODE((old or now).st_mode) & 0o777)
            os.fsync(fd)
            made = mark_of(os.fstat(fd))
        _check_still_there(root, parent, place)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    with suppress(OSError):  # some file systems do not know how; the content itself is on disk
        os.fsync(parent)
    return made


def _check_still_there(root: Root, parent: int, place: ResolvedPath) -> None:
    """Refuse where the folder was moved away since it was opened: it may lie outside by now."""
    try:
        with root.place("/".join(place.names[:-1]) or ".", links=False) as again:
            there = again.name is None and same(os.fstat(again.fd), os.fstat(parent))
    except (OSError, UnsafePath):
        there = False
    if not there:
        raise UnsafePath(f"the folder of {shorten(place.path)} was moved while it was written to; nothing was written")
