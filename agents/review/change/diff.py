"""Parse and write unified diffs.

The parser counts the lines of each hunk, so a content line that looks like a header stays content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import unified_diff
from typing import Any, Literal

from glue.agents.review.records import DiffLine, FileDiff, Hunk, Status

_HUNK = re.compile(
    rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@ ?(.*)", re.DOTALL
)
_HEADER = re.compile(
    rb"((?:old|new|new file|deleted file) mode |(?:rename|copy) (?:from|to) "
    rb"|(?:dis)?similarity index |index |Binary files |GIT binary patch$)(.*)",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(?:([0-3][0-7]{2})|(.?))", re.DOTALL)
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_QUOTED = re.compile(rb'\A"(?:\\.|[^"\\])*\\?"?', re.DOTALL)
_NO_NEWLINE = b"\\ "
NO_FILE = b"/dev/null"
_STATUSES: dict[bytes, Status] = {
    b"new file mode ": "added",
    b"deleted file mode ": "deleted",
    b"rename from ": "renamed",
    b"copy from ": "copied",
}
_MODES = {
    b"old mode ": "old_mode",
    b"new mode ": "new_mode",
    b"deleted file mode ": "old_mode",
    b"new file mode ": "new_mode",
}
# Prefixes before the names: the usual two, then those that git writes with diff.mnemonicPrefix.
_PREFIXES = (b"a/", b"b/", b"i/", b"w/", b"c/", b"o/", b"1/", b"2/")


def parse(diff: bytes | str) -> tuple[FileDiff, ...]:
    """Parse a diff, and return a FileDiff for each file in the diff.

    If a file cannot be parsed completely, the `odd` of its FileDiff is the reason.
    """
    raw = diff.encode("utf-8", "surrogateescape") if isinstance(diff, str) else diff
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    joined: list[FileDiff] = []
    for file in _Parser(lines).files():
        last = joined[-1] if joined else None
        if (
            last is None
            or last.path != file.path
            or (last.status, file.status) != ("deleted", "added")
        ):
            joined.append(file)
            continue
        # Git prints a file that became a symlink as a deletion and an addition with the same name.
        hunks = tuple(
            replace(hunk, index=index) for index, hunk in enumerate((*last.hunks, *file.hunks), 1)
        )
        joined[-1] = replace(
            file,
            status="type",
            old_mode=last.old_mode,
            binary=last.binary or file.binary,
            odd=last.odd or file.odd,
            hunks=hunks,
        )
    return tuple(joined)


def sections(diff: str) -> Iterator[tuple[FileDiff, str]]:
    """Yield the FileDiff of each file of a diff, and the part of the diff about this file.

    Text between two files belongs to the second file.
    """
    parser = _Parser(diff.encode("utf-8", "surrogateescape").split(b"\n"))
    start = 0
    for file in parser.files():
        yield file, _name(b"".join(line + b"\n" for line in parser.lines[start : parser.at]))
        start = parser.at


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.at = 0

    def files(self) -> Iterator[FileDiff]:
        while self.at < len(self.lines):
            line = self._peek()
            if line.startswith(b"diff --git "):
                self.at += 1
                yield self._file(*_split_names(line.removeprefix(b"diff --git ").rstrip(b"\r")))
            elif line.startswith((b"diff --cc ", b"diff --combined ")):
                self._skip_to_next()
                yield FileDiff(
                    path=_name(_unquote(line.split(b" ", 2)[2].rstrip(b"\r"))), odd="combined diff"
                )
            elif (
                line.startswith(b"--- ")
                and self._peek(1).startswith(b"+++ ")
                and _HUNK.match(self._peek(2))
            ):
                yield self._file(
                    b"", b"", line[4:6] in (b"a/", b"") or line.startswith(b"--- /dev/null")
                )
            else:
                self.at += 1  # mail headers, a commit message, a signature

    def _peek(self, ahead: int = 0) -> bytes:
        return self.lines[self.at + ahead] if self.at + ahead < len(self.lines) else b""

    def _file(self, left: bytes, right: bytes, prefixed: bool) -> FileDiff:
        """Parse a file's headers, its two name lines and its hunks, and return its FileDiff.

        `left` and `right` are the names in the line `diff --git`; names in other headers take
        precedence. `prefixed` is whether names start with a prefix such as `a/`.
        """

        def bare(name: bytes) -> bytes:
            return name[2:] if prefixed and name[:2] in _PREFIXES else name

        status: Status = "modified"
        old = new = b""
        fields: dict[str, Any] = {}
        while match := _HEADER.match(self._peek().rstrip(b"\r")):
            header, value = match[1], match[2]
            status = _STATUSES.get(header, status)
            if header in (b"Binary files ", b"GIT binary patch"):
                fields["binary"] = True
                self._skip_to_next()
                break
            if header in _MODES:
                fields[_MODES[header]] = _ascii(value)
            elif header.endswith(b" from "):
                old = _unquote(value)
            elif header.endswith(b" to "):
                new = _unquote(value)
            elif header == b"index ":
                shas, _, mode = value.partition(b" ")
                fields["new_sha"] = _ascii(shas.partition(b"..")[2])
                fields |= dict.fromkeys(("old_mode", "new_mode"), _ascii(mode)) if mode else {}
            self.at += 1
        if self._peek().startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
            names = _side(self._peek()), _side(self._peek(1))
            if status not in ("renamed", "copied"):
                old, new = (
                    bare(name) if name != NO_FILE else known
                    for name, known in zip(names, (old, new), strict=True)
                )
            # Without git's headers, /dev/null is the only sign of an added or deleted file.
            if not left and NO_FILE in names:
                status = "added" if names[0] == NO_FILE else "deleted"
            self.at += 2
        hunks: list[Hunk] = []
        while (match := _HUNK.match(self._peek())) is not None:
            hunk, is_whole = self._hunk(match, len(hunks) + 1)
            hunks.append(hunk)
            if not is_whole:
                fields["odd"] = f"hunk {hunk.index} is cut short"
        old, new = old or bare(left), new or bare(right)
        modes = fields.get("old_mode", ""), fields.get("new_mode", "")
        if status == "modified" and all(modes) and modes[0] != modes[1]:
            if modes[0][:3] != modes[1][:3]:
                status = "type"
            elif not hunks and not fields.get("binary"):
                status = "mode"
        path = old if status == "deleted" else new
        old_path = _name(old) if old != path and status != "added" else ""
        return FileDiff(
            path=_name(path), old_path=old_path, status=status, hunks=tuple(hunks), **fields
        )

    def _hunk(self, match: re.Match[bytes], index: int) -> tuple[Hunk, bool]:
        """Parse the next hunk of a file; return the hunk, and whether the hunk is complete.

        A hunk is complete if it has as many lines as its header announces. `match` is the header.
        """
        old, old_left, new, new_left = (
            int(part) if part is not None else 1 for part in match.groups()[:4]
        )
        section = match[5].rstrip(b"\r").decode("utf-8", "replace")
        counts = {"old_start": old, "old_count": old_left, "new_start": new, "new_count": new_left}
        self.at += 1
        lines: list[DiffLine] = []
        while self.at < len(self.lines):
            line = self._peek()
            # Mail programs strip the space of an empty context line.
            kind, content = (b" ", line) if line[:1] in (b"", b"\r") else (line[:1], line[1:])
            is_old, is_new = kind in (b" ", b"-"), kind in (b" ", b"+")
            if line.startswith(_NO_NEWLINE) and lines:
                lines[-1] = replace(lines[-1], text=lines[-1].text + lines[-1].end[:-1], end="")
            elif not (is_old or is_new) or is_old > old_left or is_new > new_left:
                break
            else:
                text, end = (content[:-1], "\r\n") if content.endswith(b"\r") else (content, "\n")
                numbers = old if is_old else None, new if is_new else None
                shown = text.decode("utf-8", "replace")
                sign: Any = kind.decode()
                lines.append(DiffLine(sign, *numbers, shown, end))
                old, old_left = old + is_old, old_left - is_old
                new, new_left = new + is_new, new_left - is_new
            self.at += 1
        return Hunk(index=index, section=section, lines=tuple(lines), **counts), not (
            old_left or new_left
        )

    def _skip_to_next(self) -> None:
        # No content line of a combined hunk or of a binary patch starts with "diff ".
        self.at += 1
        while self.at < len(self.lines) and not self.lines[self.at].startswith(b"diff --"):
            self.at += 1


def _name(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _ascii(value: bytes) -> str:
    return value.strip().decode("ascii", "replace")


def _side(line: bytes) -> bytes:
    """Return the file name in a --- or +++ line of a diff, or NO_FILE if the line names no file.

    A tab ends the name: git writes one after a name with spaces, other programs before a date.
    """
    return _unquote(line[4:].rstrip(b"\r").split(b"\t", 1)[0])


def _split_names(names: bytes) -> tuple[bytes, bytes, bool]:
    """Return both names of a `diff --git a/x b/x` line, and whether the names have prefixes.

    The prefixes, such as `a/`, are not removed. Names may contain spaces. The two names are equal
    except for the prefixes, because a renamed file has other headers with its names.
    """
    if names.startswith(b'"'):
        end = len(names) - len(_QUOTED.sub(b"", names, count=1))
        left, right = _unquote(names[:end]), _unquote(names[end + 1 :])
        return left, right, left != right
    if names.endswith(b'"') and b' "' in names:
        at = names.index(b' "')
        return names[:at], _unquote(names[at + 1 :]), True
    middle = len(names) // 2
    left, right = names[:middle], names[middle + 1 :]
    if names[middle : middle + 1] == b" " and left == right:
        return left, right, False
    if names[middle : middle + 1] == b" " and left[2:] == right[2:]:
        return left, right, True
    left, _, right = names.partition(b" ")
    return left, right, left[:2] in _PREFIXES and right[:2] in _PREFIXES


def _unquote(value: bytes) -> bytes:
    """Return a name without the C-style quoting of git; a name without quotes is unchanged."""
    if len(value) < 2 or not (value.startswith(b'"') and value.endswith(b'"')):
        return value
    return _ESCAPE.sub(
        lambda match: bytes([int(match[1], 8) if match[1] else _ESCAPES.get(match[2], 92)]),
        value[1:-1],
    )


def before(head: str, file: FileDiff) -> str:
    """Undo the hunks of `file` in `head`, its text after a change, and return the text before."""
    lines = _lines(head)
    out: list[str] = []
    at = 0  # number of processed lines of `head`
    for hunk in file.hunks:
        first = max(at, hunk.new_start - 1 if hunk.new_count else hunk.new_start)
        out += lines[at:first]
        out += [line.text + line.end for line in hunk.lines if line.kind != "+"]
        at = first + sum(line.kind != "-" for line in hunk.lines)
    return "".join([*out, *lines[at:]])


def side(file: FileDiff, kind: Literal["+", "-"]) -> str:
    """Return the whole text of an added or deleted file, put together from its hunks.

    `kind` is "+" for the text of an added file, "-" for the text of a deleted one.
    """
    return "".join(
        line.text + line.end
        for hunk in file.hunks
        for line in hunk.lines
        if line.kind in (" ", kind)
    )


def between(
    path: str, old: str | None, new: str | None, context: int = 3, *, mode: str = "100644"
) -> str:
    """Return the diff between two texts of a file, as git prints it.

    `old` is None if the file is added, `new` is None if it is deleted. `mode` is the mode of the
    added or deleted file, such as "120000" for a link.
    """
    left, right = _patch_name("a", path), _patch_name("b", path)
    head = f"diff --git {left} {right}\n"
    if old is None:
        head += f"new file mode {mode}\n"
    elif new is None:
        head += f"deleted file mode {mode}\n"
    names = ("/dev/null" if old is None else left, "/dev/null" if new is None else right)
    rows = unified_diff(_lines(old), _lines(new), *names, n=context)
    return head + "".join(
        row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows
    )


def _lines(text: str | None) -> list[str]:
    """Return the lines of a text, each with its "\\n"; no other character ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text or "")


def _patch_name(prefix: str, path: str) -> str:
    if path.isprintable() and '"' not in path and "\\" not in path:
        return f"{prefix}/{path}"
    raw = path.encode("utf-8", "surrogateescape")
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:03o}" for byte in raw
    )
    return f'"{prefix}/{"".join(plain)}"'
