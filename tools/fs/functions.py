"""The file tools of one root: `functions` returns plain functions, `tools` returns tools."""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import SEEK_END, BufferedReader, BytesIO, RawIOBase
from posixpath import normpath
from typing import Any, TypedDict, cast

from glue import Image, Part, Text, Tool, tool
from glue.errors import GlueError, ToolError, UnsafePath
from glue.function.spool import current_spool
from glue.globs import parse_globs
from glue.permission import PermissionTarget
from glue.tasks import in_stoppable_thread
from glue.text import count
from glue.tools.documents import (
    MAX_PDF,
    MAX_PICTURE,
    PDF,
    picture_size,
    picture_type,
    read_pdf,
)
from glue.tools.fs import files, walk
from glue.tools.fs.edit import compare, edit_all, read_edits, refuse_placeholder
from glue.tools.fs.files import LINES, Mark, decode, mark_of, show_name
from glue.tools.fs.grep_process import grep as run_grep
from glue.tools.fs.paths import path_target
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import Guard, Root, file_kind, shorten, stat_or_none

LISTED = 1000
RESULT = 200 * 1024
SECONDS = 3.0  # for a walk
MAX_SHOWN = 8  # questions about one path that may be open at once
REMEMBERED = 1000  # files whose marks are kept, to notice changes by others
PDF_SECONDS = 8.0  # to read the text of a PDF
TIMEOUT = 10.0  # seconds of a reading tool; each ends by itself long before

HALF = "a lone surrogate (half a character), which cannot be stored in a file"

Function = Callable[..., Any]


class QuotedEdit(TypedDict):
    """One of several replacements in a call of edit_file."""

    old: str
    new: str


class _Permit:
    """A record of the files that permission questions have shown to the user.

    A file that was shown is written only if it has not changed since then.
    """

    def __init__(self, root: Root, blocklist_guard: Guard | None = None) -> None:
        self.root, self.blocklist_guard = root, blocklist_guard
        # By the path as the model gave it: the resolved path and the digest of the file.
        self.shown: dict[str, list[tuple[str, str]]] = {}

    def target(self, given: Mapping[str, Any]) -> PermissionTarget:
        """Record the state of the file to write, and return the permission target of the write.

        The target contains a diff for the user, unless the edit is not possible.
        """
        path = given["path"]
        with _tool_errors(path):
            found = path_target(self.root, path)
        content, mark = _read_existing(self.root, path, self.blocklist_guard)
        found = replace(found, mark=_digest(content, mark))
        shown = self.shown.setdefault(path, [])
        shown.append((found.paths[-1], found.mark))
        del shown[:-MAX_SHOWN]
        try:
            if "content" in given:
                new = given["content"]
            else:
                new = decode(edit_all(content, read_edits(given)).content)[0]
            return replace(found, preview=compare(decode(content)[0], new))
        except ToolError:
            return found

    def guard(self, path: str, content: bytes, mark: Mark | None) -> Guard:
        """Return a function that checks a resolved path; raise ToolError if the file changed.

        A file changed if its content is not the content that a permission question showed to the
        user. The function gets the resolved path, which may lead to another file because a folder
        became a link. It raises UnsafePath if the block list blocks the path, or if the path is not
        that of the file shown to the user. If no question was asked, it checks only the block list.
        The record of the file is removed.
        """
        shown = self.shown.pop(path, [])
        digest = _digest(content, mark)
        if shown and digest not in (state for _, state in shown):
            raise ToolError(
                f"{shorten(path)} changed while permission was asked; nothing was written; "
                "read it again"
            )

        def guard(names: tuple[str, ...]) -> None:
            if self.blocklist_guard is not None:
                self.blocklist_guard(names)
            if shown and ("/".join(names), digest) not in shown:
                raise UnsafePath(
                    f"{shorten(path)} no longer leads to the permitted file; nothing was written"
                )

        return guard


def _digest(content: bytes, mark: Mark | None) -> str:
    """Return a short hash of a file's content, or of its `Mark` if the content is empty."""
    return hashlib.sha256(content or repr(mark).encode()).hexdigest()[:16]


def functions(
    root: Root,
    blocklist: Blocklist | None = None,
    permit: _Permit | None = None,
    pictures: bool = True,
) -> dict[str, Function]:
    """Return the functions behind the file tools, by name."""

    blocklist_guard = None if blocklist is None else blocklist.guard
    permit = permit or _Permit(root, blocklist_guard)
    seen: dict[str, Mark] = {}  # marks of files when a tool last read or wrote them
    pdf: dict[Mark, str] = {}  # the text of the PDF that was read last, for its further pages

    def note(path: str, mark: Mark) -> None:
        if len(seen) > REMEMBERED:
            seen.clear()
        seen[normpath(path)] = mark

    async def read_pdf_page(data: bytes, mark: Mark, show: Callable[[BufferedReader], str]) -> str:
        if mark not in pdf:
            text = await in_stoppable_thread(lambda stop: read_pdf(data, stop, PDF_SECONDS))
            pdf.clear()
            pdf[mark] = text
        raw = cast(RawIOBase, BytesIO(pdf[mark].encode("utf-8", "replace")))
        return show(BufferedReader(raw))

    def read_file(
        path: str, offset: int = 1, limit: int = LINES, start: int = 0, numbers: bool = False
    ) -> str | list[Part] | Awaitable[str]:
        """Read lines of a text file or PDF, or a picture; a page ends with the next offset.
        Read a file before you change it; in large files grep first.

        Args:
            path: relative to the root
            offset: first line, from 1
            limit: number of lines, at most 2000
            start: bytes to skip in the first line; only for a line longer than a page
            numbers: add line numbers
        """
        with (
            _tool_errors(path, root),
            _spooled(path) or root.open(path, guard=blocklist_guard) as file,
        ):
            mark = mark_of(os.fstat(file.fileno()))
            note(path, mark)
            head = file.peek(16)[:16]
            if pictures and (kind := picture_type(head)):
                return _show_picture(file, kind, path)

            def show(text: BufferedReader) -> str:
                return files.read_page(text, offset, limit, start, numbers)

            if head.startswith(PDF):
                return read_pdf_page(file.read(MAX_PDF + 1), mark, show)
            return show(file)

    def list_dir(path: str = ".", offset: int = 1) -> str:
        """List a directory: folders end in `/`, links in `@`, files are followed by their size.

        Args:
            path: relative to the root
            offset: first entry, from 1
        """
        offset, budget = max(offset, 1), walk.Budget()
        with _tool_errors(path, root), root.directory(path, guard=blocklist_guard) as place:
            entries = sorted(walk.scan(place.fd, budget))
            shown = entries[offset - 1 : offset - 1 + LISTED]
            lines = [_entry_line(place.fd, *entry) for entry in shown]
            text = files.lines_that_fit(lines, RESULT)
            last = offset - 1 + len(text)
        if not entries:
            return "[the directory is empty]"
        if last < len(entries):
            text.append(
                f"[entries {offset}-{last} of {len(entries)}; continue with offset {last + 1}]"
            )
        if budget.stopped:
            text.append(
                f"[only the first {len(entries)} entries were read; use find_files with a pattern]"
            )
        return "\n".join(text)

    def find_files(pattern: str, path: str = ".", ignored: bool = False, limit: int = 200) -> str:
        """Find files by a glob such as `*.py`, `src/**/*.ts` or `*.{yml,yaml}`;
        files that .gitignore excludes are left out.

        Args:
            pattern: matches the file name, or, if it contains `/`, the path below `path`
            path: folder to search, relative to the root
            ignored: include ignored files
            limit: maximum number of paths, up to 1000
        """
        budget = walk.Budget(deadline=time.monotonic() + SECONDS)
        wanted = parse_globs(pattern, root.spellings)
        found: list[str] = []
        limit = max(1, min(limit, 1000))
        with _tool_errors(path, root), root.directory(path, guard=blocklist_guard) as place:
            above = len(place.names)
            for entry in walk.walk(root, place, budget, everything=ignored):
                if entry.kind == "folder":
                    continue
                if any(glob.matches(entry.names[above:]) for glob in wanted):
                    found.append(show_name(entry.path))
                    if len(found) > limit:
                        break
        text = _fit_result(found[:limit]) or ["no file matches"]
        if len(found) > limit:
            text.append(f"[only the first {limit} files are shown; narrow the pattern or the path]")
        if budget.stopped:
            text.append(f"[the search stopped early ({budget.stopped}): narrow the path]")
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
        """Search files for a regular expression (Python syntax), line by line;
        returns `path:line: text`.

        Args:
            pattern: the regular expression
            path: file or folder, relative to the root
            glob: only files that match, such as `*.py`
            context: lines around each hit, at most 10
            ignore_case: ignore upper and lower case
            fixed: the pattern is plain text
            ignored: include ignored files
            limit: maximum number of hits, up to 1000
        """
        if not pattern:
            raise ToolError(
                "the pattern is empty; give a regular expression, or a text and fixed=true"
            )
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
        with _tool_errors(path, root):
            return await in_stoppable_thread(lambda stop: run_grep(root, query, stop))

    def write_file(path: str, content: str) -> str:
        """Write a whole file and create its folders; an existing file is replaced.
        To change a part of a file, use edit_file.

        Args:
            path: relative to the root
            content: the whole new text
        """
        with _tool_errors(path):
            content.encode("utf-8")  # raises for a lone surrogate, whatever the file's encoding
            old, mark = _read_existing(root, path, blocklist_guard)
            if mark is not None and seen.get(normpath(path), mark) != mark:
                raise ToolError(
                    f"{show_name(path)} changed since it was read; read it again, then write"
                )
            try:
                text, encode = decode(old)
            except ToolError:  # the old file is binary
                text, encode = "", str.encode
            refuse_placeholder(content, text)
            data = encode(content)
            guard = permit.guard(path, old, mark)
            new, made = files.write(root, path, data, guard=guard, mark=mark, is_new=mark is None)
            note(path, made)
        size = f"{count(len(data), 'byte')}, {count(files.count_lines(data), 'line')}"
        return f"{'created' if new else 'replaced'} {show_name(path)}: {size}"

    def edit_file(
        path: str,
        old: str = "",
        new: str = "",
        replace_all: bool = False,
        edits: Sequence[QuotedEdit] = (),
    ) -> str:
        """Replace exactly the quoted text in a file, and return the removed and added lines.

        Args:
            path: relative to the root
            old: text quoted from the file, with enough lines to match only one place
            new: the text to put in its place, in full
            replace_all: replace every place that matches
            edits: several replacements instead of old and new; all are made, or none
        """
        several = read_edits({"old": old, "new": new, "replace_all": replace_all, "edits": edits})
        with _tool_errors(path, root):
            with root.open(path, guard=blocklist_guard) as file:
                found = os.fstat(file.fileno())
                if found.st_size > files.MAX_WRITE:
                    size = f"{shorten(path)} has {found.st_size} bytes"
                    raise ToolError(f"{size}; edit_file takes at most {files.MAX_WRITE}")
                content = file.read(files.MAX_WRITE)
            mark = mark_of(found)
            stale = seen.get(normpath(path), mark) != mark
            guard = permit.guard(path, content, mark)
            done = edit_all(content, several)
            _, made = files.write(root, path, done.content, guard=guard, mark=mark)
            note(path, made)
        times = "1 replacement" if done.count == 1 else f"{done.count} replacements"
        loose = "" if done.rung == "exact" else f", quoted exactly except for {done.rung}"
        changed = "; the file had changed since it was read" if stale else ""
        diff = done.diff
        if found.st_nlink > 1:
            # The file has another name, perhaps outside the root, so its other lines stay hidden.
            diff = "[the file has other names (hard links), so its lines are not shown]"
        text = f"edited {show_name(path)}: {times}{loose}{changed}\n{diff}"
        return text.encode("utf-8", "replace").decode()

    made: tuple[Function, ...] = (read_file, list_dir, find_files, grep, write_file, edit_file)
    return {function.__name__: function for function in made}


def tools(
    root: Root | str | os.PathLike[str],
    write: bool = False,
    *,
    blocklist: Blocklist | None = None,
    pictures: bool = True,
) -> list[Tool[..., Any]]:
    """Return the tools that read the files of a directory; with `write`, add the writing tools.

    >>> [tool.name for tool in tools(".")]
    ['read_file', 'list_dir', 'find_files', 'grep']

    Args:
        root: the directory, which is opened once. No path leads outside it.
        write: add write_file and edit_file; each call asks for permission.
        blocklist: files that must not be read or written. Without a block list every file may be
            read, dotfiles included.
        pictures: read_file shows PNG, JPEG, GIF and WebP files. If False, it only names them, for
            a server that fails on pictures because its model cannot see.
    """
    opened = root if isinstance(root, Root) else Root(root)
    permit = _Permit(opened, None if blocklist is None else blocklist.guard)
    # The functions limit their results themselves, with a hint how to continue: no max_output.
    reading = tool(timeout=TIMEOUT, max_output=None, read_only=True, kind="read")
    searching = tool(timeout=TIMEOUT, max_output=None, read_only=True, kind="search")
    writing = tool(
        alone=True,
        needs_permission=True,
        target=permit.target,
        max_output=None,
        read_only=False,
        kind="edit",
    )
    made: list[Tool[..., Any]] = []
    for name, function in functions(opened, blocklist, permit, pictures).items():
        if name not in ("write_file", "edit_file"):
            made.append((searching if name in ("find_files", "grep") else reading)(function))
        elif write:
            made.append(writing(function))
    for each in made:
        each.root = opened.spellings[-1] if opened.spellings else ""
    return made


def _show_picture(file: BufferedReader, kind: str, path: str) -> list[Part]:
    """Return message parts: a line about a picture and, unless it is too large, the image."""
    data = file.read(MAX_PICTURE + 1)
    size = file.seek(0, SEEK_END)
    pixels = picture_size(data)
    title = f"{show_name(path)}: {kind}, {size} bytes" + (f", {pixels} pixels" if pixels else "")
    if size > MAX_PICTURE:
        return [Text(text=f"[{title}; too large to show: the limit is {MAX_PICTURE} bytes]")]
    return [Text(text=f"[{title}]"), Image(media_type=kind, data=data)]


def _spooled(path: str) -> BufferedReader | None:
    """Open the stored result of another tool by its name `path`, or return None if none exists.

    The loop shortens long results and tells the model to read the rest with read_file.
    """
    try:
        return cast(BufferedReader, current_spool.get().open(path))
    except FileNotFoundError:
        return None


@contextmanager
def _tool_errors(path: str, root: Root | None = None) -> Iterator[None]:
    """Raise ToolError in place of an OSError in a `with` block; name the path as the model gave it.

    A UnicodeEncodeError becomes a ToolError too. If the file does not exist and a root is given,
    the error suggests files with similar names.
    """
    try:
        yield
    except OSError as error:
        near: list[str] = []
        if root is not None and error.errno == errno.ENOENT:
            near = _similar_paths(root, path)
        raise ToolError(
            f"{shorten(path)}: {(error.strerror or 'cannot be used').lower()}{files.suggest(near)}"
        ) from None
    except UnicodeEncodeError:
        raise ToolError(f"the text contains {HALF}") from None


def _similar_paths(root: Root, path: str) -> list[str]:
    """Return up to three paths below the root whose last part is similar to that of `path`."""
    wanted = path.rstrip("/").rpartition("/")[2]
    budget = walk.Budget(entries=20_000, deadline=time.monotonic() + 0.5)
    found: dict[str, list[str]] = {}
    with root.directory(".") as place:
        for entry in walk.walk(root, place, budget):
            found.setdefault(entry.names[-1], []).append(entry.path)
    names = [name for name in found if name.casefold() == wanted.casefold()]
    names = names or difflib.get_close_matches(wanted, found, n=3, cutoff=0.75)
    paths = [each for name in names for each in found[name] if each != path]
    paths.sort(key=lambda each: -difflib.SequenceMatcher(None, each, path).quick_ratio())
    return paths[:3]


def _read_existing(
    root: Root, path: str, blocklist_guard: Guard | None
) -> tuple[bytes, Mark | None]:
    """Return the content and the Mark of a file to replace, or b"" and None if it is missing.

    A Mark has, for example, the size and the time. The content is b"" also if the file is too large
    or cannot be read. The mark is None also if the path may not be resolved.
    """
    found: os.stat_result | None = None
    try:
        with root.place(path, guard=blocklist_guard) as place:
            if place.name is not None and not place.missing:
                found = stat_or_none(place.name, place.fd)
            with place.open(path) as file:
                found = os.fstat(file.fileno())
                content = file.read(files.MAX_WRITE) if found.st_size <= files.MAX_WRITE else b""
                return content, mark_of(found)
    except (OSError, GlueError):
        return b"", mark_of(found) if found is not None else None


def _entry_line(fd: int, name: str, what: str) -> str:
    if what in ("link", "folder"):
        return show_name(name) + ("@" if what == "link" else "/")
    found = stat_or_none(name, fd)
    if found is None:
        return f"{show_name(name)}  (unreadable)"
    if stat.S_ISREG(found.st_mode):
        return f"{show_name(name)}  {found.st_size} bytes"
    return f"{show_name(name)}  ({file_kind(found.st_mode)})"


def _fit_result(lines: list[str]) -> list[str]:
    kept = files.lines_that_fit(lines, RESULT)
    return (
        kept
        if len(kept) == len(lines)
        else [*kept, "[more files match, but the list is too long; narrow the pattern or the path]"]
    )
