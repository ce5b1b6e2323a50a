"""Long outputs of tools: the model sees the start and the end, a file contains the whole text."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
from collections import deque
from contextvars import ContextVar
from typing import BinaryIO

MAX_TEXTS = 256  # in a spool; older texts are removed


class Spool:
    """A private directory of files with the whole texts of outputs that were cut.

    >>> spool = Spool()
    >>> address = spool.write("a long text")
    >>> address
    'spool:5f0c0f9e6f1f4d2a.txt'
    >>> spool.open(address).read()
    b'a long text'

    The tool `read_file` opens such addresses. Names are random, so that a model can read only the
    texts whose addresses it has seen. Only the newest 256 texts are kept. If no directory is given,
    a temporary one is created at the first use and removed when the process ends.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._given = None if directory is None else os.fspath(directory)
        self._temporary: dict[int, str] = {}  # the directory of each process
        self._names: deque[str] = deque()

    @property
    def directory(self) -> str:
        """The path of the directory, which is created if it does not exist."""
        if self._given is not None:
            os.makedirs(self._given, mode=0o700, exist_ok=True)
            return self._given
        # A forked child must not write to the directory of its parent.
        process = os.getpid()
        if process not in self._temporary:
            self._temporary[process] = tempfile.mkdtemp(prefix="glue-")
            atexit.register(_remove, self._temporary[process], process)
        return self._temporary[process]

    def write(self, text: str) -> str:
        """Write a text to a new file and return its address, such as "spool:ID.txt".

        If there are too many files, the oldest is deleted.
        """
        name = f"{os.urandom(8).hex()}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
        with open(os.open(os.path.join(self.directory, name), flags, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        self._names.append(name)
        while len(self._names) > MAX_TEXTS:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, self._names.popleft()))
        return f"spool:{name}"

    def open(self, address: str) -> BinaryIO:
        """Open and return the file with the text that `write` stored at `address`.

        Raise FileNotFoundError if there is no text with this address.
        """
        found = re.fullmatch(r"spool:([0-9a-f]{16}\.txt)", address)
        if found is None:
            raise FileNotFoundError(f"no stored text has the address {address!r}")
        try:
            path = os.path.join(self.directory, found[1])
            return open(os.open(path, os.O_RDONLY | _SAFE_FLAGS), "rb")
        except OSError:
            raise FileNotFoundError(
                f"no stored text has the address {address!r}; it may have been removed"
            ) from None


# Do not follow symbolic links, and do not pass the file to child processes.
_SAFE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def _remove(directory: str, owner: int) -> None:
    if owner == os.getpid():
        shutil.rmtree(directory, ignore_errors=True)


# The spool that tools write to and `read_file` reads from. A run may set its own.
current_spool: ContextVar[Spool] = ContextVar("glue.spool", default=Spool())  # noqa: B039


def cap(text: str, limit: int) -> str:
    """Return a text. If it is longer than `limit`, save it in the spool and leave out its middle.

    About two thirds of the kept characters are from the start of the text, and one third is from
    its end. A note between them contains the address of the whole text in the spool, unless the
    text could not be saved.
    """
    if len(text) <= limit:
        return text
    try:
        address = current_spool.get().write(text)
    except OSError:
        address = ""
    head_size, tail_size = limit - limit // 3, limit // 3
    head, tail = text[:head_size], text[len(text) - tail_size :]
    # Cut at a line break, if there is a line break near.
    if (end := head.rfind("\n")) > head_size * 3 // 4:
        head = head[:end]
    if 0 <= (end := tail.find("\n")) < tail_size // 4:
        tail = tail[end + 1 :]
    note = f"[{len(text) - len(head) - len(tail):,} of {len(text):,} characters left out"
    if address:
        # The first line that is not shown as a whole.
        line = head.count("\n") + 1 + text.startswith("\n", len(head))
        note += f"; the whole text is in {address}; to continue, use read_file with offset {line}"
    return f"{head}\n{note}]\n{tail}"
