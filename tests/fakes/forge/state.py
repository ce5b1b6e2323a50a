"""The state of a fake forge, and the lines of a diff that accept comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2}|.)")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An account; a bot belongs to an app, which may not use GET /user."""

    id: int
    login: str
    bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request and the status of its response; 0 if the connection was dropped."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None  # sent instead of JSON

    @property
    def data(self) -> bytes:
        if self.status == 204:
            return b""
        return json.dumps(self.body).encode() if self.text is None else self.text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A parsed request."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    body: Any
    user: User


class Refused(Exception):
    """A request that the forge refuses."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        self.reply = Reply(status=status, body={"message": message, **more}, headers=headers or {})


@dataclass(slots=True, kw_only=True)
class Pull:
    """A pull request and its comments."""

    number: int
    diff: str
    head: str
    base: str
    title: str = ""
    body: str = ""
    author: str = "author"
    state: str = "open"
    comments: list[dict[str, Any]] = field(default_factory=list)  # on the conversation
    inline: list[dict[str, Any]] = field(default_factory=list)  # on lines
    reviews: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def files(self) -> dict[str, list[Span]]:
        return spans(self.diff)


@dataclass(slots=True, kw_only=True)
class Span:
    """The lines of a hunk that accept comments, on each side.

    `pairs` has the unchanged lines as (old number, new number).
    """

    old: set[int] = field(default_factory=set)  # deleted
    new: set[int] = field(default_factory=set)  # added and unchanged
    added: set[int] = field(default_factory=set)
    pairs: set[tuple[int, int]] = field(default_factory=set)


def spans(diff: str) -> dict[str, list[Span]]:
    """Parse the hunks of a diff, by path. This parser is independent of the tested parser."""
    files: dict[str, list[Span]] = {}
    path, old_path = "", ""
    rows = diff.split("\n")
    at = 0
    while at < len(rows):
        row = rows[at].rstrip("\r")
        if row.startswith("diff --git "):
            path = old_path = ""
        elif row.startswith("--- ") and at + 1 < len(rows) and rows[at + 1].startswith("+++ "):
            old_path, path = _name(row[4:]), _name(rows[at + 1].rstrip("\r")[4:])
            path = old_path if path == "/dev/null" else path
            at += 1
        elif row.startswith("rename to "):
            files.setdefault(_bare(row[10:]), [])
        elif (match := _HUNK.match(row)) and path:
            at = _hunk(rows, at + 1, match, files.setdefault(path, []))
            continue
        at += 1
    return files


def _hunk(rows: list[str], at: int, match: re.Match[str], into: list[Span]) -> int:
    old, old_left, new, new_left = (int(part) if part else 1 for part in match.groups())
    span = Span()
    while at < len(rows) and (old_left > 0 or new_left > 0):
        sign = rows[at][:1]
        if sign == "-":
            span.old.add(old)
            old, old_left = old + 1, old_left - 1
        elif sign == "+":
            span.new.add(new)
            span.added.add(new)
            new, new_left = new + 1, new_left - 1
        elif sign != "\\":
            span.new.add(new)
            span.pairs.add((old, new))
            old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
        at += 1
    into.append(span)
    return at


def _name(text: str) -> str:
    name = _bare(text.split("\t", 1)[0] if not text.startswith('"') else text)
    return name if name == "/dev/null" else re.sub(r"^[abciow12]/", "", name)


def _bare(text: str) -> str:
    if not text.startswith('"'):
        return text

    def letter(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return (
            bytes([int(code, 8)])
            if code.isdigit()
            else bytes([_LETTERS[code]])
            if code in _LETTERS
            else code
        )

    raw = text[1 : text.rindex('"')].encode("utf-8", "surrogateescape")
    return _ESCAPED.sub(letter, raw).decode("utf-8", "surrogateescape")
