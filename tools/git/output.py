"""Parse what git prints with -z, page it, and write pathspecs. Paths that are not UTF-8 keep their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from glue.errors import ToolError
from glue.tools.git.objects import TreeEntry

LOG = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%B"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file that differs between two trees."""

    path: str
    old_path: str  # the same, but for renames and copies
    status: str  # A, D, M, R, C or T
    old_mode: str
    new_mode: str
    old_sha: str
    new_sha: str
    added: int | None = None  # lines; None for a binary file
    deleted: int | None = None

    @property
    def binary(self) -> bool:
        return self.added is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommit:
    sha: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepHit:
    path: str
    line: int
    text: str


def name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def changes(out: bytes) -> list[FileChange]:
    """Read `--raw --numstat -z`: first every file's modes and hashes, then every file's counts."""
    fields = iter(out.split(b"\0"))
    found: list[FileChange] = []
    counts: dict[str, tuple[int | None, int | None]] = {}
    for field in fields:
        if field.startswith(b":"):
            found.append(_raw(field, fields))
        elif field:
            added, deleted, path = field.split(b"\t", 2)
            if not path:  # a rename: both names follow
                next(fields)
                path = next(fields)
            counts[name(path)] = (_count(added), _count(deleted))
    lines = [counts.get(change.path, (0, 0)) for change in found]
    return [
        replace(change, added=added, deleted=deleted) for change, (added, deleted) in zip(found, lines, strict=True)
    ]


def _raw(field: bytes, fields: Iterator[bytes]) -> FileChange:
    old_mode, new_mode, old_sha, new_sha, status = field[1:].decode("ascii").split()
    old_path = name(next(fields))
    path = name(next(fields)) if status[0] in "RC" else old_path
    return FileChange(
        path=path,
        old_path=old_path,
        status=status[0],
        old_mode=old_mode,
        new_mode=new_mode,
        old_sha=old_sha,
        new_sha=new_sha,
    )


def stanza(change: FileChange) -> bytes:
    """Write what git writes of a binary file, for one that git was not asked about."""
    old, new = (each.encode("utf-8", "surrogateescape") for each in (change.old_path, change.path))
    before = b"/dev/null" if change.status == "A" else b"a/" + old
    after = b"/dev/null" if change.status == "D" else b"b/" + new
    return b"diff --git a/%s b/%s\nBinary files %s and %s differ\n" % (old, new, before, after)


def _count(raw: bytes) -> int | None:
    return None if raw == b"-" else int(raw)


def tree(out: bytes) -> list[TreeEntry]:
    entries = []
    for record in out.split(b"\0")[:-1]:
        head, _, path = record.partition(b"\t")
        mode, kind, sha = head.decode("ascii").split()
        entries.append(TreeEntry(mode=mode, kind=kind, sha=sha, path=name(path)))
    return entries


def log(out: bytes) -> list[GitCommit]:
    fields = [field.decode("utf-8", "replace") for field in out.split(b"\0")[:-1]]
    commits = []
    for at in range(0, len(fields) - 5, 6):
        sha, parents, author, email, date, message = fields[at : at + 6]
        commits.append(
            GitCommit(
                sha=sha, parents=tuple(parents.split()), author=author, email=email, date=date, message=message.strip()
            )
        )
    return commits


def hits(out: bytes) -> list[GrepHit]:
    found = []
    for line in out.split(b"\n")[:-1]:
        match = re.match(rb"[0-9a-f]{40,64}:([^\0]*)\0(\d+)[\0:](.*)", line, re.DOTALL)
        if match:
            text = match[3].decode("utf-8", "replace").removesuffix("\r")
            found.append(GrepHit(path=name(match[1]), line=int(match[2]), text=text))
    return found


class Pager:
    """Takes blocks of output, keeps the lines from `offset` on that fit, and says when it has enough."""

    def __init__(self, offset: int, cap: int) -> None:
        self.skip = max(offset, 1) - 1
        self.first = self.skip + 1
        self.cap = max(cap, 4096)
        self.kept = bytearray()
        self.more = False

    def feed(self, block: bytes) -> bool:
        if self.skip:
            count = block.count(b"\n")
            if count < self.skip:
                self.skip -= count
                return True
            cut = -1
            for _ in range(self.skip):
                cut = block.index(b"\n", cut + 1)
            block, self.skip = block[cut + 1 :], 0
        self.kept += block
        self.more = len(self.kept) > self.cap
        return not self.more

    def text(self) -> str:
        """Give the page, with whole lines only where there are any, and how to go on."""
        if self.skip or not self.kept:
            raise ToolError(f"offset {self.first} is past the end")
        if not self.more:
            return self.kept.decode("utf-8", "replace")
        cut = self.kept.rfind(b"\n", 0, self.cap) + 1
        if not cut:
            # One line that fills more than a page: it is cut, and the next page goes on after it.
            text = self.kept[: self.cap].decode("utf-8", "ignore")
            return f"{text}\n[line {self.first} is cut; continue with offset {self.first + 1}]"
        text = self.kept[:cut].decode("utf-8", "replace")
        return f"{text}[continue with offset {self.first + text.count(chr(10))}]"


def build_pathspec(includes: Iterable[str] = (), excludes: Iterable[str] = ()) -> list[str]:
    """Turn patterns into pathspecs for git, to stand behind `--`.

    A pattern without `/` fits at any depth, `**` spans folders, and a folder stands for all that is in it.
    Excludes alone get a catch-all include before them; nothing gives nothing, and so do empty patterns.
    """
    wanted = [spec for pattern in includes if pattern.strip() for spec in _specs(pattern, "glob")]
    unwanted = [spec for pattern in excludes if pattern.strip() for spec in _specs(pattern, "exclude,glob")]
    if unwanted and not wanted:
        wanted = [":(glob)**"]
    return wanted + unwanted


def literal_pathspec(path: str, exclude: bool = False) -> str:
    """Name one path and nothing else, whatever characters it holds."""
    return f":({'exclude,' if exclude else ''}top,literal){path}"


def _specs(pattern: str, magic: str) -> list[str]:
    pattern = pattern.removeprefix("./").lstrip("/") if "/" in pattern.rstrip("/") else f"**/{pattern}"
    pattern = pattern.rstrip("/")
    if not pattern.strip("*/"):
        return [f":({magic})**"]
    if pattern.endswith("/**"):
        return [f":({magic}){pattern}"]
    return [f":({magic}){pattern}", f":({magic}){pattern}/**"]
