"""Search files for a pattern, in a process that can be killed: a pattern may run for ever and holds the GIL."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from glue.errors import GlueError, ToolError, UnsafePath
from glue.tools.fs import walk
from glue.tools.fs.files import SNIFF, encoding, fitting, show
from glue.tools.fs.patterns import Blocklist, globs
from glue.tools.fs.root import FILE, Root, failure, regular, shorten

if TYPE_CHECKING:
    from glue.tools.process import StopFlag

SECONDS = 3.0
MEMORY = 400 * 1024 * 1024
OUTPUT = 4 * 1024 * 1024
RESULT = 200 * 1024
BLOCK = 1024 * 1024
LINE = 500  # characters of a line that are shown
MAX_PATTERN = 4096
REFUSED = 3  # the worker's exit code where it was asked for what cannot be done
# With one of these in it, a pattern may fit a line and yet not fit where other lines stand around it.
SEES_AROUND = re.compile(r"\(\?|\\[AZz]|[*+?}]\+|\\B")


def grep(root: Root, query: dict[str, object], stop: StopFlag | None = None, seconds: float = SECONDS) -> str:
    """Run a query in a process of its own, which has no site and no environment, and write out its hits."""
    import glue
    from glue.tools.process import run

    if not sys.executable:
        raise ToolError("grep needs a Python interpreter of its own, and sys.executable names none")
    home = os.path.dirname(os.path.dirname(os.path.abspath(glue.__file__)))
    program = "import sys; sys.path.insert(0, sys.argv[1]); from glue.tools.fs.grep import main; main()"
    given = {"fd": root.fd, "spellings": root.spellings, "seconds": seconds - 0.4, "memory": MEMORY}
    order = json.dumps({**query, **given})
    finished = run(
        [sys.executable, "-I", "-S", "-B", "-c", program, home],
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        deadline=seconds,
        cap=OUTPUT,
        feed=order.encode(),
        pass_fds=(root.fd,),
        stop=stop,
    )
    # The last piece is empty, or was cut off when the worker was killed.
    lines, said = (each.decode("utf-8", "replace").split("\n")[:-1] for each in (finished.out, finished.err))
    notes = [] if finished.reason else said
    if finished.reason == "deadline":
        notes.append(f"stopped after {seconds:g} s: simplify the pattern or narrow the path")
    elif finished.code == REFUSED and not finished.reason:
        raise ToolError("\n".join(said))
    elif finished.code and not finished.reason:
        raise ToolError(f"grep failed: {finished.err.decode('utf-8', 'replace').strip()[-300:] or finished.code}")
    shown = fitting(lines, RESULT)
    if len(shown) < len(lines):
        notes.append("too much to show: narrow the pattern or the path")
    return "\n".join([*(shown if lines else ["no match"]), *(f"[{note}]" for note in notes)])


def main() -> None:
    """Answer the query on standard input: hits on standard output, notes on them, or what is wrong, on the other.

    The process is killed when it takes too long.
    """
    query = json.load(sys.stdin)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (query["memory"], query["memory"]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass
    code = REFUSED
    try:
        notes, code = search(query), 0
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        notes = [f"the pattern cannot be used: {str(error) or 'it takes too much memory'}"]
    except OSError as error:
        notes = [f"{shorten(query['path'])}: {(error.strerror or 'cannot be used').lower()}"]
    except GlueError as error:
        notes = [str(error)]
    say(notes, 2)
    sys.exit(code)


def search(query: dict[str, Any]) -> list[str]:
    """Write out the hits as they are found, and give the notes on them."""
    searcher = Searcher(query)
    root = Root.adopt(query["fd"], tuple(query["spellings"]))
    budget = walk.Budget(deadline=time.monotonic() + query["seconds"])
    blocked = Blocklist(tuple(query["blocked"])) if query["blocked"] is not None else None
    wanted = globs(query["glob"], root.spellings) if query["glob"] else []
    with root.place(query["path"]) as place:
        if place.missing:
            raise failure(errno.ENOENT, query["path"])
        if place.name is not None:
            if blocked is not None and blocked.blocks(place.path):
                raise UnsafePath(f"{place.path} is on the block list")
            searcher.file(place.fd, place.names, must=True)
        else:
            for entry in walk.walk(root, place, budget, everything=query["ignored"]):
                if entry.kind != "file" or (wanted and not any(glob.matches(entry.names) for glob in wanted)):
                    continue
                if blocked is not None and blocked.blocks(entry.path):
                    searcher.withheld += 1
                    continue
                searcher.file(entry.parent, entry.names)
                if searcher.left <= 0:
                    break
    notes = []
    if searcher.left <= 0:
        notes.append(f"the first {query['limit']} hits; narrow the pattern or raise the limit for more")
    if searcher.withheld:
        notes.append(f"{searcher.withheld} files are on the block list and were not searched")
    if budget.stopped:
        notes.append(f"stopped early, {budget.stopped}: narrow the path")
    if budget.skipped + searcher.unreadable:
        notes.append(f"{budget.skipped + searcher.unreadable} unreadable entries passed over")
    return notes


class Searcher:
    """A compiled pattern, and what is left to find."""

    def __init__(self, query: dict[str, Any]) -> None:
        pattern = query["pattern"]
        if len(pattern) > MAX_PATTERN:
            raise OverflowError(f"it is {len(pattern)} characters long; {MAX_PATTERN} are allowed")
        source = re.escape(pattern) if query["fixed"] else pattern
        flags = re.IGNORECASE if query["ignore_case"] else 0
        self.line = re.compile(source, flags)
        # One search through a whole block tells most files apart from those with a hit.
        self.block = None if SEES_AROUND.search(source) else re.compile(source, flags | re.MULTILINE)
        plain = re.escape(pattern) == pattern or query["fixed"]
        self.literal = pattern.encode("utf-8", "replace") if plain and not flags and pattern.isascii() else b""
        self.context = query["context"]
        self.left = query["limit"]
        self.unreadable = self.withheld = 0

    def file(self, parent: int, names: tuple[str, ...], must: bool = False) -> None:
        path, number = "/".join(names), 1
        said: list[str] = []
        try:
            for text in texts(parent, names[-1], path, self.literal):
                if self.block is None or self.block.search(text):
                    said += self.hits(show(path), text.split("\n"), number)
                if self.left <= 0:
                    break
                number += text.count("\n")
        except (OSError, UnsafePath):
            if must:
                raise
            self.unreadable += 1
        else:
            say(said)

    def hits(self, name: str, lines: list[str], number: int) -> Iterator[str]:
        """Write out the hits among lines, with those around them; `number` is that of the first."""
        if lines[-1] == "":
            lines.pop()
        hits = list(islice((at for at, line in enumerate(lines) if self.line.search(line)), self.left))
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
        if len(line) <= LINE:
            return line
        found = self.line.search(line)
        start = max(found.start() - LINE // 4, 0) if found else 0
        head = "..." if start else ""
        tail = "..." if start + LINE < len(line) else ""
        return f"{head}{line[start : start + LINE]}{tail}"


def texts(parent: int, name: str, path: str, literal: bytes) -> Iterator[str]:
    """Give a file's text in blocks, or nothing where it is not text or does not hold a literal that is sought."""
    fd = os.open(name, FILE, dir_fd=parent)
    try:
        found = os.fstat(fd)
        regular(found, path)
        if found.st_size >= BLOCK:
            return blocks(open(os.dup(fd), "rb"), literal)
        whole = os.read(fd, found.st_size + 1)  # no more than that is set aside
    finally:
        os.close(fd)
    return iter(()) if literal not in whole or b"\0" in whole[:SNIFF] else iter((decode(whole),))


def blocks(file: io.BufferedReader, literal: bytes) -> Iterator[str]:
    """Read a file by whole lines, a block at a time; a line longer than a block is taken in pieces.

    A block without the literal that is sought only has its lines counted.
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
    if b"\r\n" in block:
        block = block.replace(b"\r\n", b"\n")
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError:
        return block.decode("latin-1" if encoding(block) == "latin-1" else "utf-8", "replace")


def say(lines: list[str], fd: int = 1) -> None:
    rest = memoryview("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    while rest:
        rest = rest[os.write(fd, rest) :]
