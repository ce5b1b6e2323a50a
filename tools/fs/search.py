"""The worker of grep: reads a query from standard input, searches files, and prints hits.

It runs in a process of its own (see `glue.tools.fs.grep_process`), so it imports as little as
possible.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from glue.errors import GlueError, UnsafePath
from glue.globs import parse_globs
from glue.tools.fs import walk
from glue.tools.fs.files import SNIFF, guess_encoding, show_name
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import FILE, Root, check_regular, path_error, shorten

BLOCK = 1024 * 1024
LINE = 500  # characters of a line that are shown
MAX_PATTERN = 4096
REFUSED = 3  # the worker's exit code for a query that it cannot run
# A pattern with one of these may match a single line, but not the same line among others. Such a
# pattern is searched line by line, not block by block.
SEES_AROUND = re.compile(r"\(\?|\\[AZz]|[*+?}]\+|\\B")


def main() -> None:
    """Read a query from stdin and run it: print hits to stdout, and notes or an error to stderr.

    The parent process kills this process if it takes too long.
    """
    query = json.load(sys.stdin)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (query["memory"], query["memory"]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):
        pass
    code = REFUSED
    try:
        notes, code = search(query), 0
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        notes = [f"the pattern cannot be used: {str(error) or 'the search takes too much memory'}"]
    except OSError as error:
        notes = [f"{shorten(query['path'])}: {(error.strerror or 'cannot be used').lower()}"]
    except GlueError as error:
        notes = [str(error)]
    write_lines(notes, 2)
    sys.exit(code)


def search(query: dict[str, Any]) -> list[str]:
    """Search files, print hits as they are found, and return notes on limits and skipped files."""
    budget = walk.Budget(deadline=time.monotonic() + query["seconds"])
    searcher = Searcher(query, budget)
    root = Root.adopt(query["fd"], tuple(query["spellings"]))
    blocked = Blocklist(tuple(query["blocked"])) if query["blocked"] is not None else None
    wanted = parse_globs(query["glob"], root.spellings) if query["glob"] else []
    with root.place(query["path"]) as place:
        if place.missing:
            raise path_error(errno.ENOENT, query["path"])
        if place.name is not None:
            if blocked is not None and blocked.blocks(place.path):
                raise UnsafePath(f"{place.path} is on the block list")
            searcher.search_file(place.fd, place.names, required=True)
        else:
            for entry in walk.walk(root, place, budget, everything=query["ignored"]):
                if entry.kind != "file":
                    continue
                if wanted and not any(glob.matches(entry.names) for glob in wanted):
                    continue
                if blocked is not None and blocked.blocks(entry.path):
                    searcher.withheld += 1
                    continue
                searcher.search_file(entry.parent, entry.names)
                if not searcher.left:
                    break
    notes = []
    if searcher.left <= 0:
        notes.append(
            f"only the first {query['limit']} hits are shown; narrow the pattern or raise the limit"
        )
    if searcher.withheld:
        notes.append(f"{searcher.withheld} files are on the block list and were not searched")
    if budget.stopped:
        notes.append(f"the search stopped early ({budget.stopped}): narrow the path")
    if budget.skipped:
        notes.append(f"{budget.skipped} entries were skipped: unreadable or nested too deep")
    return notes


class Searcher:
    """A search in files. It counts the hits left to print, and the files on the block list."""

    def __init__(self, query: dict[str, Any], budget: walk.Budget) -> None:
        pattern = query["pattern"]
        if len(pattern) > MAX_PATTERN:
            raise OverflowError(
                f"a pattern may have at most {MAX_PATTERN} characters, not {len(pattern)}"
            )
        source = re.escape(pattern) if query["fixed"] else pattern
        flags = re.IGNORECASE if query["ignore_case"] else 0
        self.line = re.compile(source, flags)
        # One search through a whole block excludes most files without splitting them into lines.
        self.block = (
            None if SEES_AROUND.search(source) else re.compile(source, flags | re.MULTILINE)
        )
        # A literal is found in the bytes of a file, so most files need not be decoded.
        plain = re.escape(pattern) == pattern or query["fixed"]
        is_literal = plain and not flags and pattern.isascii()
        self.literal = pattern.encode("utf-8", "replace") if is_literal else b""
        self.context = query["context"]
        self.left = query["limit"]
        self.withheld = 0
        self.budget = budget

    def search_file(self, parent: int, names: tuple[str, ...], required: bool = False) -> None:
        """Search one file, and print its matching lines with their context.

        If the file cannot be read, raise an error if `required` is set, otherwise count the file.
        """
        path, number = "/".join(names), 1
        hits: list[str] = []
        try:
            for text in read_texts(parent, names[-1], path, self.literal):
                if self.block is None or self.block.search(text):
                    hits += self.find_hits(show_name(path), text.split("\n"), number)
                if self.left <= 0:
                    break
                number += text.count("\n")
        except (OSError, UnsafePath):
            if required:
                raise
            self.budget.skipped += 1
        else:
            write_lines(hits)

    def find_hits(self, name: str, lines: list[str], number: int) -> Iterator[str]:
        """Yield output lines for at most `left` hits, with context; subtract the hits from `left`.

        `number` is the line number of the first line.
        """
        if lines[-1] == "":
            lines.pop()
        found = (at for at, line in enumerate(lines) if self.line.search(line))
        hits = list(islice(found, self.left))
        self.left -= len(hits)
        shown, marks = -1, dict.fromkeys(hits, ":")
        for at in hits:
            first = max(at - self.context, shown + 1)
            if self.context and 0 <= shown < first - 1:
                yield "--"
            for shown in range(first, min(at + self.context + 1, len(lines))):
                mark = marks.get(shown, "-")
                yield f"{name}{mark}{number + shown}{mark} {self.clip(lines[shown])}"

    def clip(self, line: str) -> str:
        """Return a line for display. Cut a long line to the part around its first match.

        A long line without a match is cut to its beginning.
        """
        if len(line) <= LINE:
            return line
        found = self.line.search(line)
        start = max(found.start() - LINE // 4, 0) if found else 0
        head = "..." if start else ""
        tail = "..." if start + LINE < len(line) else ""
        return f"{head}{line[start : start + LINE]}{tail}"


def read_texts(parent: int, name: str, path: str, literal: bytes) -> Iterator[str]:
    """Return an iterator over the text of a file, in blocks; leave out text without the literal.

    A block that lacks the literal is left out in a small file, and becomes empty lines in a large
    file. A binary file has no blocks.
    """
    fd = os.open(name, FILE, dir_fd=parent)
    try:
        found = os.fstat(fd)
        check_regular(found, path)
        if found.st_size >= BLOCK:
            return read_blocks(open(os.dup(fd), "rb"), literal)
        whole = os.read(fd, found.st_size + 1)  # allocates no more than the file's size
    finally:
        os.close(fd)
    return iter(()) if literal not in whole or b"\0" in whole[:SNIFF] else iter((decode(whole),))


def read_blocks(file: io.BufferedReader, literal: bytes) -> Iterator[str]:
    """Yield the text of a large file in blocks; a block without the literal becomes empty lines.

    The empty lines keep the line numbers right. A block has whole lines, but a line longer than a
    block comes in pieces. A binary file has no blocks. The file is closed at the end.
    """
    with file:
        rest, chunk = b"", b"" if b"\0" in file.peek(SNIFF)[:SNIFF] else file.read(BLOCK)
        while chunk or rest:
            cut = chunk.rfind(b"\n") + 1
            if chunk and not cut and len(rest) < BLOCK:
                rest += chunk
            else:
                block, rest = rest + chunk[:cut], chunk[cut:]
                yield decode(block) if literal in block else "\n" * block.count(b"\n")
            chunk = file.read(BLOCK)


def decode(block: bytes) -> str:
    """Decode a block as UTF-8, or as Latin-1 if that is more likely; `\\r\\n` becomes `\\n`."""
    if b"\r\n" in block:
        block = block.replace(b"\r\n", b"\n")
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError:
        return block.decode("latin-1" if guess_encoding(block) == "latin-1" else "utf-8", "replace")


def write_lines(lines: list[str], fd: int = 1) -> None:
    """Write lines to a descriptor without buffering, so that a killed worker loses none."""
    rest = memoryview("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    while rest:
        rest = rest[os.write(fd, rest) :]
