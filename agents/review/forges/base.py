"""What every forge offers, and how a comment is posted at most once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from glue.agents.review.commands import Remark
from glue.agents.review.dedupe import Known
from glue.agents.review.forges.client import Client, ForgeError
from glue.agents.review.render import FINDING, STICKY, fields

ResultT = TypeVar("ResultT")
TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment on the conversation that carries our marker and was written by us."""

    id: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """An inline comment to be posted: on a line, on a range, or on a whole file where `line` is None."""

    path: str
    body: str
    fingerprint: str
    line: int | None = None
    start_line: int | None = None
    old_line: int | None = None  # of an unchanged line, for forges that ask for both numbers
    old_path: str = ""


class Forge(Protocol):
    """A pull request on a forge, as the account behind the token sees it."""

    name: str
    style: str
    client: Client
    file_level: bool

    def head(self) -> str: ...
    def permission(self, user: str) -> str: ...
    def remarks(self) -> list[Remark]: ...
    def stickies(self) -> list[Comment]: ...
    def add_sticky(self, body: str) -> None: ...
    def edit_sticky(self, comment: Comment, body: str) -> None: ...
    def delete_sticky(self, comment: Comment) -> None: ...
    def known(self) -> list[Known]: ...
    def add_review(self, posts: Sequence[Post], body: str) -> None: ...
    def add_single(self, post: Post) -> None: ...
    def delete_inline(self, known: Known) -> None: ...


def post_once(send: Callable[[], None], arrived: Callable[[], bool], pause: Callable[[float], None]) -> int:
    """Post; where it is unclear whether it arrived, look before trying again. Returns how often it was sent."""
    for sent in range(1, TRIES + 1):
        try:
            send()
            return sent
        except ForgeError as error:
            if not error.ambiguous and error.status != 0:
                raise
            pause(2.0**sent)  # a forge may still be busy with the request that seemed lost
            if error.ambiguous and arrived():
                return sent
            if sent == TRIES:
                raise
    raise AssertionError("unreachable")


def mine(rows: Sequence[Any], me: int, author: str = "user") -> list[dict[str, Any]]:
    """Keep the rows this account wrote: a marker alone proves nothing."""
    return [row for row in rows if isinstance(row, dict) and (row.get(author) or {}).get("id") == me]


def sticky_rows(rows: Sequence[dict[str, Any]]) -> list[Comment]:
    found = [row for row in rows if fields(str(row.get("body", "")), STICKY) is not None]
    return [Comment(id=int(row["id"]), body=str(row["body"])) for row in sorted(found, key=lambda row: int(row["id"]))]


def known_rows(rows: Sequence[dict[str, Any]], path: Callable[[dict[str, Any]], str]) -> list[Known]:
    out: list[Known] = []
    for row in rows:
        found = fields(str(row.get("body", "")), FINDING)
        if found and found.get("fp"):
            mark, quote = found["fp"], found.get("q", "")
            out.append(Known(fingerprint=mark, quote=quote, path=path(row), comment=int(row["id"])))
    return out
