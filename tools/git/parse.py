"""Read what git prints with -z. Paths that are not UTF-8 keep their bytes and can be handed back to git."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LOG = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
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
class TreeEntry:
    """One name in a tree; mode 120000 is a link, 160000 another repository."""

    mode: str
    kind: str  # blob, tree or commit
    sha: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    sha: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    path: str
    line: int
    text: str


def name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def changes(out: bytes) -> list[Change]:
    """Read `--raw --numstat -z`: first every file's modes and hashes, then every file's counts."""
    fields = iter(out.split(b"\0"))
    found: list[Change] = []
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
    return [_counted(change, counts) for change in found]


def _raw(field: bytes, fields: Iterator[bytes]) -> Change:
    old_mode, new_mode, old_sha, new_sha, status = field[1:].decode("ascii").split()
    old_path = name(next(fields))
    path = name(next(fields)) if status[0] in "RC" else old_path
    return Change(
        path=path,
        old_path=old_path,
        status=status[0],
        old_mode=old_mode,
        new_mode=new_mode,
        old_sha=old_sha,
        new_sha=new_sha,
    )


def _counted(change: Change, counts: dict[str, tuple[int | None, int | None]]) -> Change:
    from dataclasses import replace

    added, deleted = counts.get(change.path, (0, 0))
    return replace(change, added=added, deleted=deleted)


def stanza(change: Change) -> bytes:
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


def log(out: bytes) -> list[Commit]:
    fields = [field.decode("utf-8", "replace") for field in out.split(b"\0")[:-1]]
    commits = []
    for at in range(0, len(fields) - 5, 6):
        sha, parents, author, email, date, message = fields[at : at + 6]
        commits.append(
            Commit(
                sha=sha, parents=tuple(parents.split()), author=author, email=email, date=date, message=message.strip()
            )
        )
    return commits


def hits(out: bytes) -> list[Hit]:
    found = []
    for line in out.split(b"\n")[:-1]:
        match = re.match(rb"[0-9a-f]{40,64}:([^\0]*)\0(\d+)[\0:](.*)", line, re.DOTALL)
        if match:
            text = match[3].decode("utf-8", "replace").removesuffix("\r")
            found.append(Hit(path=name(match[1]), line=int(match[2]), text=text))
    return found
