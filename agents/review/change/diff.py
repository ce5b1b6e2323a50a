"""Read a unified diff. Lines of a hunk are taken by its counters, so content that looks like a header stays content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from glue.agents.review.records import DiffLine, FileDiff, Hunk, Status

_HUNK = re.compile(rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@ ?(.*)", re.DOTALL)
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_NO_NEWLINE = b"\\ "
_PREFIXES = (b"a/", b"b/", b"i/", b"w/", b"c/", b"o/", b"1/", b"2/")  # the later ones: diff.mnemonicPrefix


def parse(diff: bytes | str) -> tuple[FileDiff, ...]:
    """Read every file of a diff; what cannot be read is said in the file's `odd`, never guessed."""
    raw = diff.encode("utf-8", "surrogateescape") if isinstance(diff, str) else diff
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    parser = _Parser(lines)
    return _join_type_changes(parser.files())


@dataclass(slots=True)
class _Draft:
    """A file while its headers are being read."""

    left: bytes = b""  # names as the first line gives them, prefixes included
    right: bytes = b""
    prefixed: bool = True
    old_name: bytes = b""  # from ---, +++, rename and copy lines, without prefix
    new_name: bytes = b""
    status: Status = "modified"
    old_mode: str = ""
    new_mode: str = ""
    old_sha: str = ""
    new_sha: str = ""
    similarity: int | None = None
    binary: bool = False
    odd: str = ""
    hunks: list[Hunk] = field(default_factory=list)

    def record(self) -> FileDiff:
        old, new = self.old_name or self._bare(self.left), self.new_name or self._bare(self.right)
        status = self.status
        if status == "modified" and self.old_mode and self.new_mode and self.old_mode != self.new_mode:
            if self.old_mode[:3] != self.new_mode[:3]:
                status = "type"
            elif not self.hunks and not self.binary:
                status = "mode"
        path = old if status == "deleted" else new
        return FileDiff(
            path=_name(path),
            old_path=_name(old) if old != path and status != "added" else "",
            status=status,
            old_mode=self.old_mode,
            new_mode=self.new_mode,
            old_sha=self.old_sha,
            new_sha=self.new_sha,
            similarity=self.similarity,
            binary=self.binary,
            odd=self.odd,
            hunks=tuple(self.hunks),
        )

    def _bare(self, name: bytes) -> bytes:
        return name[2:] if self.prefixed and name[:2] in _PREFIXES else name


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.at = 0

    def files(self) -> list[FileDiff]:
        files: list[FileDiff] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(b"diff --git "):
                files.append(self._git(line.removeprefix(b"diff --git ").rstrip(b"\r")))
            elif line.startswith((b"diff --cc ", b"diff --combined ")):
                files.append(self._combined(line))
            elif line.startswith(b"--- ") and self._peek(1).startswith(b"+++ ") and _HUNK.match(self._peek(2)):
                draft = _Draft(prefixed=line[4:6] in (b"a/", b"") or line.startswith(b"--- /dev/null"))
                files.append(self._body(draft))
            else:
                self.at += 1  # mail headers, a commit message, a signature
        return files

    def _peek(self, ahead: int) -> bytes:
        return self.lines[self.at + ahead] if self.at + ahead < len(self.lines) else b""

    def _git(self, names: bytes) -> FileDiff:
        draft = _Draft()
        draft.left, draft.right, draft.prefixed = _split_names(names)
        self.at += 1
        while self.at < len(self.lines) and not self.lines[self.at].startswith((b"diff --", b"--- ", b"@@ ")):
            if not self._header(draft, self.lines[self.at].rstrip(b"\r")):
                break
            self.at += 1
        return self._body(draft)

    def _header(self, draft: _Draft, line: bytes) -> bool:
        """Take one extended header; False where the line is none."""
        word, _, value = line.partition(b" ")
        if line.startswith((b"old mode ", b"new mode ")):
            setattr(draft, f"{word.decode()}_mode", _mode(line))
        elif line.startswith(b"new file mode "):
            draft.status, draft.new_mode = "added", _mode(line)
        elif line.startswith(b"deleted file mode "):
            draft.status, draft.old_mode = "deleted", _mode(line)
        elif line.startswith((b"rename from ", b"copy from ")):
            draft.status = "renamed" if word == b"rename" else "copied"
            draft.old_name = _unquote(value.removeprefix(b"from "))
        elif line.startswith((b"rename to ", b"copy to ")):
            draft.new_name = _unquote(value.removeprefix(b"to "))
        elif line.startswith((b"similarity index ", b"dissimilarity index ")):
            number = line.rsplit(b" ", 1)[1].rstrip(b"%")
            draft.similarity = int(number) if number.isdigit() and word == b"similarity" else None
        elif line.startswith(b"index "):
            shas, _, mode = value.partition(b" ")
            old, _, new = shas.partition(b"..")
            draft.old_sha, draft.new_sha = old.decode("ascii", "replace"), new.decode("ascii", "replace")
            if mode:
                draft.old_mode = draft.new_mode = mode.decode("ascii", "replace")
        elif line.startswith(b"Binary files ") or line == b"GIT binary patch":
            draft.binary = True
            self._skip_to_next()
            return False
        else:
            return False
        return True

    def _body(self, draft: _Draft) -> FileDiff:
        """Read the two name lines and the hunks."""
        if self._peek(0).startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
            old, new = _side(self._peek(0)), _side(self._peek(1))
            if old != b"/dev/null" and draft.status not in ("renamed", "copied"):
                draft.old_name = draft._bare(old)
            if new != b"/dev/null" and draft.status not in ("renamed", "copied"):
                draft.new_name = draft._bare(new)
            if not draft.left and b"/dev/null" in (old, new):  # no git header said so
                draft.status = "added" if old == b"/dev/null" else "deleted"
            self.at += 2
        while (match := _HUNK.match(self._peek(0))) is not None:
            self._hunk(draft, match)
        return draft.record()

    def _hunk(self, draft: _Draft, match: re.Match[bytes]) -> None:
        old, old_left, new, new_left = (int(part) if part is not None else 1 for part in match.groups()[:4])
        hunk = Hunk(
            index=len(draft.hunks) + 1,
            old_start=old,
            old_count=old_left,
            new_start=new,
            new_count=new_left,
            section=_text(match[5].rstrip(b"\r")),
        )
        self.at += 1
        lines: list[DiffLine] = []
        while self.at < len(self.lines) and (old_left > 0 or new_left > 0):
            line = self.lines[self.at]
            kind, content = line[:1], line[1:]
            if kind in (b" ", b"", b"\r") and old_left and new_left:  # mailers strip the blank of an empty line
                lines.append(_line(" ", old, new, content if kind == b" " else line))
                old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
            elif kind == b"-" and old_left:
                lines.append(_line("-", old, None, content))
                old, old_left = old + 1, old_left - 1
            elif kind == b"+" and new_left:
                lines.append(_line("+", None, new, content))
                new, new_left = new + 1, new_left - 1
            elif line.startswith(_NO_NEWLINE) and lines:
                lines[-1] = _without_end(lines[-1])
            else:
                break
            self.at += 1
        if self._peek(0).startswith(_NO_NEWLINE) and lines:
            lines[-1] = _without_end(lines[-1])
            self.at += 1
        if old_left or new_left:
            draft.odd = f"hunk {hunk.index} is cut short"
        draft.hunks.append(replace(hunk, lines=tuple(lines)))

    def _combined(self, line: bytes) -> FileDiff:
        name = _unquote(line.split(b" ", 2)[2].rstrip(b"\r"))
        self._skip_to_next()
        return FileDiff(path=_name(name), odd="combined diff")

    def _skip_to_next(self) -> None:
        # Neither a combined hunk nor a binary patch has a content line that starts with "diff ".
        self.at += 1
        while self.at < len(self.lines) and not self.lines[self.at].startswith(b"diff --"):
            self.at += 1


def _line(kind: str, old: int | None, new: int | None, content: bytes) -> DiffLine:
    if content.endswith(b"\r"):
        return DiffLine(kind, old, new, _text(content[:-1]), "\r\n")  # type: ignore[arg-type]
    return DiffLine(kind, old, new, _text(content))  # type: ignore[arg-type]


def _without_end(line: DiffLine) -> DiffLine:
    return replace(line, text=line.text + line.end[:-1], end="")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _name(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _mode(line: bytes) -> str:
    return line.rsplit(b" ", 1)[1].decode("ascii", "replace")


def _side(line: bytes) -> bytes:
    """The name of a --- or +++ line; git ends a name that holds blanks with a tab, others add a date behind one."""
    value = line[4:].rstrip(b"\r")
    if value.startswith(b'"'):
        return _unquote(value)
    return value.split(b"\t", 1)[0]


def _split_names(names: bytes) -> tuple[bytes, bytes, bool]:
    """Part `a/x b/x`, where x may hold blanks: a pure rename says its names elsewhere, so both are the same here."""
    if names.startswith(b'"'):
        end = _quoted_end(names)
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


def _quoted_end(value: bytes) -> int:
    at = 1
    while at < len(value) and value[at : at + 1] != b'"':
        at += 2 if value[at : at + 1] == b"\\" else 1
    return min(at + 1, len(value))


def _unquote(value: bytes) -> bytes:
    """Undo git's C-style quoting."""
    if len(value) < 2 or not (value.startswith(b'"') and value.endswith(b'"')):
        return value
    value, out, at = value[1:-1], bytearray(), 0
    while at < len(value):
        byte = value[at : at + 1]
        if byte != b"\\":
            out += byte
            at += 1
        elif re.match(rb"[0-3][0-7]{2}", value[at + 1 : at + 4]):
            out.append(int(value[at + 1 : at + 4], 8))
            at += 4
        else:
            out.append(_ESCAPES.get(value[at + 1 : at + 2], 92))
            at += 2
    return bytes(out)


def _join_type_changes(files: list[FileDiff]) -> tuple[FileDiff, ...]:
    """Git prints a file that became a symlink as a deletion and an addition of one name: make them one."""
    joined: list[FileDiff] = []
    for file in files:
        last = joined[-1] if joined else None
        if last is not None and last.path == file.path and (last.status, file.status) == ("deleted", "added"):
            hunks = (*last.hunks, *file.hunks)
            joined[-1] = replace(
                file,
                status="type",
                old_mode=last.old_mode,
                old_sha=last.old_sha,
                binary=last.binary or file.binary,
                odd=last.odd or file.odd,
                hunks=tuple(replace(hunk, index=index) for index, hunk in enumerate(hunks, 1)),
            )
        else:
            joined.append(file)
    return tuple(joined)


def numbered(file: FileDiff, hunk: Hunk) -> str:
    """Write a hunk for a reader: old number, new number, sign and text."""
    width = len(str(max(hunk.old_start + hunk.old_count, hunk.new_start + hunk.new_count)))
    head = f"@@ hunk {hunk.index} of {file.path}: old {_span(hunk.old_start, hunk.old_count)}"
    rows = [f"{head}, new {_span(hunk.new_start, hunk.new_count)} @@ {hunk.section}".rstrip()]
    for line in hunk.lines:
        old, new = ("" if number is None else str(number) for number in (line.old, line.new))
        rows.append(f"{old:>{width}} {new:>{width}} {line.kind}{line.text}")
        if not line.end:
            rows.append(f"{'':>{width}} {'':>{width}} \\ no newline at the end")
    return "\n".join(rows)


def _span(start: int, count: int) -> str:
    return f"{start}-{start + count - 1}" if count else f"{start} (none)"


def before(head: str, file: FileDiff) -> str:
    """Undo a file's hunks: the text as it was."""
    lines = _lines(head)
    out: list[str] = []
    at = 0  # lines of the head that are done
    for hunk in file.hunks:
        first = max(at, hunk.new_start - 1 if hunk.new_count else hunk.new_start)
        out += lines[at:first]
        out += [line.text + line.end for line in hunk.lines if line.kind != "+"]
        at = first + sum(line.kind != "-" for line in hunk.lines)
    return "".join([*out, *lines[at:]])


def after_of_new(file: FileDiff) -> str:
    """The text of an added file, which its hunks hold whole."""
    return "".join(line.text + line.end for hunk in file.hunks for line in hunk.lines if line.kind != "-")


def before_of_deleted(file: FileDiff) -> str:
    return "".join(line.text + line.end for hunk in file.hunks for line in hunk.lines if line.kind != "+")


def added_file(path: str, text: str) -> str:
    """Write the diff of a file that git does not know yet."""
    return between(path, None, text)


def between(path: str, old: str | None, new: str | None, context: int = 3) -> str:
    """Write the diff of one file from both of its texts, as git would; None stands for no file."""
    from difflib import unified_diff

    left, right = _patch_name("a", path), _patch_name("b", path)
    head = f"diff --git {left} {right}\n"
    head += "new file mode 100644\n" if old is None else "deleted file mode 100644\n" if new is None else ""
    names = ("/dev/null" if old is None else left, "/dev/null" if new is None else right)
    rows = list(unified_diff(_lines(old), _lines(new), *names, n=context))
    return head + "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _lines(text: str | None) -> list[str]:
    """Lines with their ends; only a newline ends one, whatever else a text holds."""
    parts = (text or "").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _patch_name(prefix: str, path: str) -> str:
    plain = path.isprintable() and '"' not in path and "\\" not in path
    return f"{prefix}/{path}" if plain else _quoted(prefix, path)


def _quoted(prefix: str, path: str) -> str:
    raw = path.encode("utf-8", "surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:03o}" for byte in raw)
    return f'"{prefix}/{"".join(plain)}"'
