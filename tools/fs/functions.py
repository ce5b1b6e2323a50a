"""The file tools, as functions over one root."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, cast

from glue.errors import ToolError
from glue.function import spool
from glue.function.decorator import Tool, tool
from glue.tools.fs import walk
from glue.tools.fs.blocklist import Blocklist
from glue.tools.fs.glob import Glob, alternatives
from glue.tools.fs.read import LINES, page, show
from glue.tools.fs.root import Root, kind, open_entry, shorten
from glue.tools.fs.write import MAX_WRITE, Mark
from glue.tools.fs.write import write as put

LISTED = 1000
RESULT = 200 * 1024
SECONDS = 3.0  # for a walk
SECONDS_TOLD = 10.0  # when the model is told that a tool timed out; each ends by itself long before

Function = Callable[..., Any]


def functions(root: Root, blocklist: Blocklist | None = None) -> dict[str, Function]:
    """Make the functions behind the tools, by name."""

    watch = None if blocklist is None else blocklist.guard

    def read_file(path: str, offset: int = 1, limit: int = LINES, start: int = 0, numbers: bool = False) -> str:
        """Read lines of a text file; says how to continue where a page does not hold all of it.

        Read a file before you change it. Search first in large files, then read around the hit.

        Args:
            path: relative to the root
            offset: first line, counted from 1
            limit: lines to read, at most 2000
            start: bytes of the first line to leave out; only for a line longer than a page
            numbers: put the number before each line
        """
        with _told(path), _spooled(path) or root.open(path, guard=watch) as file:
            return page(file, offset, limit, start, numbers)

    def list_dir(path: str = ".", offset: int = 1) -> str:
        """List a directory: folders end in `/`, links in `@`, files are followed by their size.

        Args:
            path: relative to the root
            offset: first entry, counted from 1
        """
        offset = max(offset, 1)
        with _told(path), root.directory(path, guard=watch) as place:
            entries, more = _entries(place.fd)
            last = min(offset - 1 + LISTED, len(entries))
            text = _bounded([_described(place.fd, *entry) for entry in entries[offset - 1 : last]])
        if not entries:
            return "[the directory is empty]"
        if last < len(entries):
            text.append(f"[entries {offset}-{last} of {len(entries)}; continue with offset {last + 1}]")
        elif more:
            text.append(f"[only the first {len(entries)} entries were looked at; use find_files with a pattern]")
        return "\n".join(text)

    def find_files(pattern: str, path: str = ".", ignored: bool = False, limit: int = 200) -> str:
        """Find files by a glob such as `*.py`, `src/**/*.ts` or `*.{yml,yaml}`; what .gitignore excludes is left out.

        Args:
            pattern: matched against the name, or against the path below `path` if it has a `/`; `**` spans folders
            path: folder to look in, relative to the root
            ignored: look at ignored files too
            limit: most paths to give, up to 1000
        """
        budget = walk.Budget(deadline=time.monotonic() + SECONDS)
        globs = [_glob(each) for each in alternatives(pattern)]
        found: list[str] = []
        limit = max(1, min(limit, 1000))
        with _told(path), root.directory(path, guard=watch) as place:
            above = len(place.names)
            above_rules = () if ignored else walk.rules_above(root, place.names)
            for entry in walk.walk(place, budget, everything=ignored, rules=above_rules):
                if entry.kind != "folder" and any(glob.matches(entry.names[above:]) for glob in globs):
                    found.append(show(entry.path))
                    if len(found) > limit:
                        break
        text = _bounded(found[:limit]) or ["no file matches"]
        if len(found) > limit:
            text.append(f"[the first {limit}; narrow the pattern or the path for more]")
        if budget.stopped:
            text.append(f"[stopped early, {budget.stopped}: narrow the path]")
        if budget.skipped:
            text.append(f"[{budget.skipped} folders could not be entered]")
        return "\n".join(text)

    async def grep(
        pattern: str,
        path: str = ".",
        glob: str = "",
        context: int = 0,
        ignore_case: bool = False,
        fixed: bool = False,
        ignored: bool = False,
        limit: int = 100,
    ) -> str:
        """Search files for a regular expression (Python syntax), line by line; gives `path:line: text`.

        Narrow it by path or glob rather than reading whole files one after the other.

        Args:
            pattern: the expression
            path: file or folder to search, relative to the root
            glob: only files that match this, such as `*.py` or `src/**`
            context: lines to show before and after each hit, at most 10
            ignore_case: take upper and lower case for the same
            fixed: take the pattern as plain text
            ignored: search ignored files too
            limit: most hits to give, up to 1000
        """
        if not pattern:
            raise ToolError("the pattern is empty")
        query: dict[str, object] = {
            "pattern": pattern,
            "path": path,
            "glob": glob,
            "context": max(0, min(context, 10)),
            "ignore_case": ignore_case,
            "fixed": fixed,
            "ignored": ignored,
            "limit": max(1, min(limit, 1000)),
            "blocked": None if blocklist is None else blocklist.patterns,
        }
        from glue.tools.fs.grep import grep as search
        from glue.tools.process import in_thread

        with _told(path):
            return await in_thread(lambda stop: search(root, query, stop))

    def write_file(path: str, content: str) -> str:
        """Write a whole file, and make the folders it needs; what was there is replaced.

        For new files; to change part of a file use edit_file.

        Args:
            path: relative to the root
            content: the new text, written as it is
        """
        with _told(path):
            data = content.encode("utf-8")
            new = put(root, path, data, guard=watch)
        return f"{'created' if new else 'replaced'} {show(path)}: {len(data)} bytes, {_count(data)} lines"

    def edit_file(path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Replace one piece of text in a file, and show the lines that changed.

        Quote the old text as it stands in the file, and look at the lines that come back.

        Args:
            path: relative to the root
            old: the text to replace, quoted from the file with enough lines around it to be the only one
            new: what goes in its place
            replace_all: replace every place that fits instead of refusing when there are several
        """
        from glue.tools.fs.edit import edit

        with _told(path):
            with root.place(path, guard=watch) as place, open_entry(place, path) as file:
                mark = Mark.of(os.fstat(file.fileno()))
                content = _whole(file, mark.size, path)
            done = edit(content, old, new, replace_all=replace_all)
            put(root, path, done.content, guard=watch, mark=mark)
        times = "1 replacement" if done.count == 1 else f"{done.count} replacements"
        return f"edited {show(path)}: {times}, matched by {done.rung}\n{done.echo}".encode("utf-8", "replace").decode()

    made: tuple[Function, ...] = (read_file, list_dir, find_files, grep, write_file, edit_file)
    return {function.__name__: function for function in made}


def tools(
    root: Root | str | os.PathLike[str], write: bool = False, *, blocklist: Blocklist | None = None
) -> list[Tool[..., Any]]:
    """Make the tools of glue.tools.fs."""
    opened = root if isinstance(root, Root) else Root(root)
    made = functions(opened, blocklist)
    reading = [_tool(made[name], SECONDS_TOLD) for name in ("read_file", "list_dir", "find_files", "grep")]
    if not write:
        return reading
    writing = [_tool(made[name], None, alone=True) for name in ("write_file", "edit_file")]
    return [*reading, *writing]


def _tool(function: Function, timeout: float | None, alone: bool = False) -> Tool[..., Any]:
    # The functions bound what they say by themselves, and say how to go on.
    return tool(timeout=timeout, alone=alone, needs_permission=alone, target="path" if alone else "", max_output=None)(
        function
    )


def _spooled(path: str) -> BufferedReader | None:
    """Open the whole of what another tool said, which it may have been told to read here."""
    if not spool.is_spooled(path):
        return None
    try:
        file = spool.current.get().open(path)
    except FileNotFoundError:
        return None  # then it is a file that happens to be called so
    return cast(BufferedReader, file)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Say what went wrong in one line that names the path as it was given, and nothing else."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{shorten(path)}: {(error.strerror or 'cannot be used').lower()}") from None
    except UnicodeEncodeError:
        raise ToolError("the text holds half a character, which no file can hold") from None


def _entries(fd: int) -> tuple[list[tuple[str, str]], bool]:
    """Gather the names of a folder and what they are, sorted; say whether there were too many."""
    names: list[tuple[str, str]] = []
    with os.scandir(fd) as found:
        for entry in found:
            if len(names) >= walk.MAX_ENTRIES:
                return sorted(names), True
            names.append((entry.name, walk.kind_of(entry)))
    return sorted(names), False


def _described(fd: int, name: str, what: str) -> str:
    if what in ("link", "folder"):
        return show(name) + ("@" if what == "link" else "/")
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return f"{show(name)}  (unreadable)"
    if stat.S_ISREG(found.st_mode):
        return f"{show(name)}  {found.st_size} bytes"
    return f"{show(name)}  ({kind(found.st_mode)})"


def _bounded(lines: list[str]) -> list[str]:
    size, kept = 0, []
    for line in lines:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > RESULT:
            kept.append("[too many to show]")
            break
        kept.append(line)
    return kept


def _glob(pattern: str) -> Glob:
    pattern = pattern.removeprefix("./")
    return Glob(pattern if "/" in pattern else f"**/{pattern}")


def _whole(file: BufferedReader, size: int, path: str) -> bytes:
    if size > MAX_WRITE:
        raise ToolError(f"{shorten(path)} has {size} bytes; files of more than {MAX_WRITE} are not edited")
    return file.read(MAX_WRITE + 1)[:MAX_WRITE]


def _count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
