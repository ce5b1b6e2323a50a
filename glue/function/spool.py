"""Where the whole text goes when a tool says more than its cap: private files that `read_file` can page.

A text is addressed as `spool:NAME`. Names are random and the directory is private, so that a model can
read only what it was told of. The files are removed when the process ends.
"""

from __future__ import annotations

import os
import re
from collections import deque
from contextvars import ContextVar
from typing import BinaryIO

PREFIX = "spool:"
_NAME = re.compile(r"[0-9a-f]{16}\.txt")


class Spool:
    """A directory for texts that were cut. Without one given, a temporary directory is made at first use."""

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, keep: int = 256) -> None:
        self._given = None if directory is None else os.fspath(directory)
        self._made = ""
        self._owner = 0
        self._names: deque[str] = deque()
        self._keep = keep

    @property
    def directory(self) -> str:
        """The directory's path; it exists afterwards."""
        if self._given is not None:
            os.makedirs(self._given, mode=0o700, exist_ok=True)
            return self._given
        if not self._made or self._owner != os.getpid():  # a forked child must not share its parent's
            import atexit
            import tempfile

            self._made, self._owner = tempfile.mkdtemp(prefix="glue-"), os.getpid()
            atexit.register(_remove, self._made, self._owner)
        return self._made

    def write(self, text: str) -> str:
        """Keep a text and return its address."""
        name = f"{os.urandom(8).hex()}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(os.path.join(self.directory, name), flags, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        self._names.append(name)
        while len(self._names) > self._keep:
            self._drop(self._names.popleft())
        return PREFIX + name

    def open(self, address: str) -> BinaryIO:
        """Open a text by its address; FileNotFoundError for anything else."""
        name = address.removeprefix(PREFIX)
        if not is_spooled(address) or not _NAME.fullmatch(name):
            raise FileNotFoundError(f"no such text: {address!r}")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            return open(os.open(os.path.join(self.directory, name), flags), "rb")
        except OSError:
            raise FileNotFoundError(f"no such text: {address!r}; it may have been dropped") from None

    def _drop(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self.directory, name))
        except OSError:
            pass


def is_spooled(path: str) -> bool:
    """Whether a path is an address that `open` of a spool understands."""
    return path.startswith(PREFIX)


def _remove(directory: str, owner: int) -> None:
    import shutil

    if owner == os.getpid():
        shutil.rmtree(directory, ignore_errors=True)


# What tools write to, and what fs.read_file opens: one for the process, unless a run is given its own.
current: ContextVar[Spool] = ContextVar("glue.spool", default=Spool())  # noqa: B039


def cap(text: str, limit: int, spool: Spool | None = None) -> str:
    """Keep the head and the tail of a long text, and say where the whole of it is."""
    if len(text) <= limit:
        return text
    try:
        address = (current.get() if spool is None else spool).write(text)
    except OSError:
        address = ""
    head, tail = _cut(text, limit)
    left = len(text) - len(head) - len(tail)
    line = head.count("\n") + 1 + text.startswith("\n", len(head))  # the first line that is not shown whole
    note = f"[{left:,} of {len(text):,} characters left out"
    if address:
        note += f"; the whole text is {address}: read_file pages it, offset {line} goes on here"
    return f"{head}\n{note}]\n{tail}"


def _cut(text: str, limit: int) -> tuple[str, str]:
    """Two thirds from the start and one from the end, at line breaks where there are some nearby."""
    first, last = limit - limit // 3, limit // 3
    head, tail = text[:first], text[len(text) - last :]
    line = head.rfind("\n")
    if line > first * 3 // 4:
        head = head[:line]
    line = tail.find("\n")
    if 0 <= line < last // 4:
        tail = tail[line + 1 :]
    return head, tail
