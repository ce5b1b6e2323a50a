"""The file tools, as functions over one root."""

from __future__ import annotations

import difflib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from posixpath import normpath
from typing import Any, TypedDict, cast

from glue import PermissionTarget, Tool, tool
from glue.errors import GlueError, ToolError, UnsafePath
from glue.function.call import current_spool
from glue.tools.fs import files, path_target, walk
from glue.tools.fs.files import LINES, Mark, decode, mark_of, show
from glue.tools.fs.patterns import Blocklist, globs
from glue.tools.fs.root import Guard, Root, kind, look, shorten

LISTED = 1000
RESULT = 200 * 1024
SECONDS = 3.0  # for a walk
REMEMBERED = 1000  # files, as they were when they were read
SECONDS_TOLD = 10.0  # when the model is told that a tool timed out; each ends by itself long before

Function = Callable[..., Any]


class QuotedEdit(TypedDict):
    """One replacement of several."""

    old: str
    new: str


class _Permit:
    """Binds a write to the place for which permission was given."""

    def __init__(self, root: Root, watch: Guard | None = None) -> None:
        self.root, self.watch = root, watch
        self.judged: dict[str, str] = {}

    def target(self, given: Mapping[str, Any]) -> PermissionTarget:
        """Say where a call would write, and what it would change; nothing of that where it could not be made."""
        from glue.tools.fs.edit import compare, edit_all, read_edits

        found = path_target(self.root, given["path"])
        self.judged[given["path"]] = found.paths[0]
        content, _ = _present(self.root, given["path"], self.watch)
        try:
            new = given["content"] if "content" in given else decode(edit_all(content, read_edits(given)).content)[0]
            return replace(found, preview=compare(decode(content)[0], new))
        except ToolError:
            return found

    def guard(self, path: str) -> Guard:
        """Refuse to write where the path led elsewhere when permission was given: a folder may have become a link."""
        own = self.judged.pop(path, None)

        def guard(names: tuple[str, ...]) -> None:
            if self.watch is not None:
                self.watch(names)
            if own is not None and "/".join(names) != own:
                raise UnsafePath(f"{shorten(path)} led elsewhere when permission was given; nothing was written")

        return guard


def functions(root: Root, blocklist: Blocklist | None = None, permit: _Permit | None = None) -> dict[str, Function]:
    """Make the functions behind the tools, by name."""

    watch = None if blocklist is None else blocklist.guard
    permit = permit or _Permit(root, watch)
    seen: dict[str, Mark] = {}  # what files were when they were last read or written here

    def note(path: str, mark: Mark) -> None:
        if len(seen) > REMEMBERED:
            seen.clear()
        seen[normpath(path)] = mark

    def read_file(path: str, offset: int = 1, limit: int = LINES, start: int = 0, numbers: bool = False) -> str:
        """Read lines of a text file; a page says how to go on. Read before you change; in large files grep first.

        Args:
            path: relative to the root
            offset: first line, from 1
            limit: lines, at most 2000
            start: bytes to skip in that line; only for a line longer than a page
            numbers: number the lines
        """
        with _told(path, root), _spooled(path) or root.open(path, guard=watch) as file:
            note(path, mark_of(os.fstat(file.fileno())))
            return files.page(file, offset, limit, start, numbers)

    def list_dir(path: str = ".", offset: int = 1) -> str:
        """List a directory: folders end in `/`, links in `@`, files are followed by their size.

        Args:
            path: relative to the root
            offset: first entry, from 1
        """
        offset, budget = max(offset, 1), walk.Budget()
        with _told(path, root), root.directory(path, guard=watch) as place:
            entries = sorted(walk.scan(place.fd, budget))
            last = min(offset - 1 + LISTED, len(entries))
            text = _bounded([_described(place.fd, *entry) for entry in entries[offset - 1 : last]])
        if not entries:
            return "[the directory is empty]"
        if last < len(entries):
            text.append(f"[entries {offset}-{last} of {len(entries)}; continue with offset {last + 1}]")
        elif budget.stopped:
            text.append(f"[only the first {len(entries)} entries were looked at; use find_files with a pattern]")
        return "\n".join(text)

    def find_files(pattern: str, path: str = ".", ignored: bool = False, limit: int = 200) -> str:
        """Find files by a glob such as `*.py`, `src/**/*.ts` or `*.{yml,yaml}`; what .gitignore excludes is left out.

        Args:
            pattern: for the name, or, if it has a `/`, for the path below `path`
            path: folder to look in, relative to the root
            ignored: also ignored files
            limit: most paths, up to 1000
        """
        budget = walk.Budget(deadline=time.monotonic() + SECONDS)
        wanted = globs(pattern, root.spellings)
        found: list[str] = []
        limit = max(1, min(limit, 1000))
        with _told(path, root), root.directory(path, guard=watch) as place:
            above = len(place.names)
            for entry in walk.walk(root, place, budget, everything=ignored):
                if entry.kind != "folder" and any(glob.matches(entry.names[above:]) for glob in wanted):
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

        Args:
            pattern: the expression
            path: file or folder, relative to the root
            glob: only files that match, such as `*.py`
            context: lines around each hit, at most 10
            ignore_case: ignore upper and lower case
            fixed: the pattern is plain text
            ignored: also ignored files
            limit: most hits, up to 1000
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

        with _told(path, root):
            return await in_thread(lambda stop: search(root, query, stop))

    def write_file(path: str, content: str) -> str:
        """Write a whole file, and make the folders it needs; what was there is replaced. To change a part: edit_file.

        Args:
            path: relative to the root
            content: the whole new text
        """
        from glue.tools.fs.edit import refuse_placeholder

        with _told(path):
            content.encode("utf-8")  # half a character is refused, whatever the file's encoding makes of it
            old, mark = _present(root, path, watch)
            if mark is not None and seen.get(normpath(path), mark) != mark:
                raise ToolError(f"{show(path)} changed since it was read; read it again, then write")
            try:
                text, encode = decode(old)
            except ToolError:  # it was no text
                text, encode = "", str.encode
            refuse_placeholder(content, text)
            data = encode(content)
            new, made = files.write(root, path, data, guard=permit.guard(path), mark=mark)
            note(path, made)
        return f"{'created' if new else 'replaced'} {show(path)}: {len(data)} bytes, {files.count_lines(data)} lines"

    def edit_file(
        path: str, old: str = "", new: str = "", replace_all: bool = False, edits: Sequence[QuotedEdit] = ()
    ) -> str:
        """Replace text in a file, exactly what is quoted and nothing else; shows the lines removed and added.

        Args:
            path: relative to the root
            old: quoted from the file, with enough lines to fit one place only
            new: what goes in its place, in full
            replace_all: every place that fits
            edits: several replacements instead of old and new; all are made, or none
        """
        from glue.tools.fs.edit import edit_all, read_edits

        several = read_edits({"old": old, "new": new, "replace_all": replace_all, "edits": edits})
        with _told(path, root):
            with root.open(path, guard=watch) as file:
                found = os.fstat(file.fileno())
                if found.st_size > files.MAX_WRITE:
                    size = f"{shorten(path)} has {found.st_size} bytes"
                    raise ToolError(f"{size}; files of more than {files.MAX_WRITE} are not edited")
                content = file.read(files.MAX_WRITE)
            mark = mark_of(found)
            stale = seen.get(normpath(path), mark) != mark
            done = edit_all(content, several)
            _, made = files.write(root, path, done.content, guard=permit.guard(path), mark=mark)
            note(path, made)
        times = "1 replacement" if done.count == 1 else f"{done.count} replacements"
        loose = "" if done.rung == "exact" else f", found but for {done.rung}"
        changed = "; it had changed since it was read" if stale else ""
        # Another name of the file may lie outside the root, and its lines are not ours to show.
        diff = done.diff if found.st_nlink == 1 else "[it has other names (hard links): lines are not shown]"
        text = f"edited {show(path)}: {times}{loose}{changed}\n{diff}"
        return text.encode("utf-8", "replace").decode()

    made: tuple[Function, ...] = (read_file, list_dir, find_files, grep, write_file, edit_file)
    return {function.__name__: function for function in made}


def tools(
    root: Root | str | os.PathLike[str], write: bool = False, *, blocklist: Blocklist | None = None
) -> list[Tool[..., Any]]:
    """Make the file tools of a directory: reading ones, and with `write` those that ask for permission and write.

    The root is opened once. Every file in it may be read, dotfiles included, unless a block list is given.
    """
    opened = root if isinstance(root, Root) else Root(root)
    permit = _Permit(opened, None if blocklist is None else blocklist.guard)
    # The functions bound what they say by themselves, and say how to go on.
    reading = tool(timeout=SECONDS_TOLD, max_output=None)
    writing = tool(alone=True, needs_permission=True, target=permit.target, max_output=None)
    made: list[Tool[..., Any]] = []
    for name, function in functions(opened, blocklist, permit).items():
        if name not in ("write_file", "edit_file"):
            made.append(reading(function))
        elif write:
            made.append(writing(function))
    for each in made:
        each.root = opened.spellings[-1] if opened.spellings else ""
    return made


def _spooled(path: str) -> BufferedReader | None:
    """Open the whole of what another tool said, which it may have been told to read here."""
    try:
        return cast(BufferedReader, current_spool.get().open(path))
    except FileNotFoundError:
        return None  # a file, whatever it is called


@contextmanager
def _told(path: str, root: Root | None = None) -> Iterator[None]:
    """Say what went wrong in one line that names the path as it was given; for a missing file also what is near it."""
    try:
        yield
    except OSError as error:
        near = _near(root, path) if root is not None and error.errno == errno.ENOENT else []
        raise ToolError(
            f"{shorten(path)}: {(error.strerror or 'cannot be used').lower()}{files.suggest(near)}"
        ) from None
    except UnicodeEncodeError:
        raise ToolError("the text holds half a character, which no file can hold") from None


def _near(root: Root, path: str) -> list[str]:
    """Find files that may have been meant: of the same name elsewhere, or of nearly the same."""
    wanted = path.rstrip("/").rpartition("/")[2]
    budget = walk.Budget(entries=20_000, deadline=time.monotonic() + 0.5)
    found: dict[str, list[str]] = {}
    with root.directory(".") as place:
        for entry in walk.walk(root, place, budget):
            found.setdefault(entry.names[-1], []).append(entry.path)
    names = [name for name in found if name.casefold() == wanted.casefold()]
    names = names or difflib.get_close_matches(wanted, found, n=3, cutoff=0.75)
    paths = [each for name in names for each in found[name] if each != path]
    return sorted(paths, key=lambda each: -difflib.SequenceMatcher(None, each, path).quick_ratio())[:3]


def _present(root: Root, path: str, watch: Guard | None) -> tuple[bytes, Mark | None]:
    """Read the file that is about to be replaced, for its encoding; nothing where it cannot be read."""
    try:
        with root.open(path, guard=watch) as file:
            found = os.fstat(file.fileno())
            return (file.read(files.MAX_WRITE) if found.st_size <= files.MAX_WRITE else b""), mark_of(found)
    except (OSError, GlueError):
        return b"", None


def _described(fd: int, name: str, what: str) -> str:
    if what in ("link", "folder"):
        return show(name) + ("@" if what == "link" else "/")
    found = look(name, fd)
    if found is None:
        return f"{show(name)}  (unreadable)"
    if stat.S_ISREG(found.st_mode):
        return f"{show(name)}  {found.st_size} bytes"
    return f"{show(name)}  ({kind(found.st_mode)})"


def _bounded(lines: list[str]) -> list[str]:
    kept = files.fitting(lines, RESULT)
    return kept if len(kept) == len(lines) else [*kept, "[too many to show]"]
