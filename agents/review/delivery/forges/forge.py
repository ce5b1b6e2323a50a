"""What every forge offers, and how a comment is posted at most once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.agents.review.delivery.render import FINDING, fields
from glue.agents.review.delivery.report import Report, ReviewVerdict
from glue.agents.review.findings.dedupe import Known
from glue.agents.review.records import Change

TRIES = 3
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A pull request's place; empty fields are not known."""

    forge: str = ""
    api: str = ""
    repo: str = ""
    number: int | None = None
    head: str = ""  # the commit the event speaks of, where it speaks of one
    event: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of ours on the conversation."""

    id: int
    body: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Somebody's comment on a pull request; `answers` is the comment it replies to."""

    by: str
    body: str
    answers: int = 0


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

    @property
    def key(self) -> tuple[str, str]:
        return self.fingerprint, self.path


class Forge(Protocol):
    """A pull request on a forge, as the account behind the token sees it."""

    api: str  # where the API is, unless the environment says otherwise
    suggestion: str  # what stands behind the fence of a suggestion; {above} counts the lines above its last
    file_level: bool  # whether a comment may stand on a whole file
    batch: bool  # whether a review takes many comments at once, all or none
    client: Client

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None: ...
    @staticmethod
    def find(environ: Mapping[str, str]) -> Where | None: ...
    @staticmethod
    def change(place: Where, environ: Mapping[str, str]) -> Change | None: ...
    @staticmethod
    def headers(key: str) -> dict[str, str]: ...
    def tips(self) -> tuple[str, str]: ...  # head and base as they are now
    def permission(self, user: str) -> str: ...
    def remarks(self) -> list[Remark]: ...
    def comments(self) -> list[Comment]: ...
    def add_comment(self, body: str) -> None: ...
    def edit_comment(self, comment: Comment, body: str) -> None: ...
    def delete_comment(self, comment: Comment) -> None: ...
    def known(self) -> list[Known]: ...
    def add_review(self, posts: Sequence[Post], body: str) -> None: ...
    def add_single(self, post: Post) -> None: ...
    def delete_inline(self, known: Known) -> None: ...
    def resolve(self, known: Known) -> bool: ...  # False where the forge has no way to


@runtime_checkable
class CheckRuns(Protocol):
    """A forge that shows the outcome of a review beside its CI jobs."""

    def post_check(self, report: Report, verdict: ReviewVerdict) -> None: ...


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


def comment_rows(rows: Sequence[dict[str, Any]]) -> list[Comment]:
    """Read comments, the oldest first."""
    found = [
        Comment(id=int(row["id"]), body=str(row.get("body") or ""), url=str(row.get("html_url") or "")) for row in rows
    ]
    return sorted(found, key=lambda comment: comment.id)


def known_row(row: Mapping[str, Any], path: str, line: Any, **more: Any) -> Known | None:
    """Read which finding an inline comment of ours is about, from its marker and its words; None where it has none."""
    body = str(row.get("body", ""))
    found = fields(body, FINDING)
    if not found or not found.get("fp"):
        return None
    text = body.split("-->", 1)[-1].strip()
    title = re.sub(r"^\W*\*\*\w+ \w+: |\*\*.*$", "", text.split("\n", 1)[0])
    return Known(
        fingerprint=found["fp"],
        quote=found.get("q", ""),
        path=path,
        comment=int(row["id"]),
        line=line if isinstance(line, int) and line > 0 else None,
        title=title,
        text=text[len(text.split("\n", 1)[0]) - len(title) :],
        by_model=found.get("by", "model") == "model",
        head=found.get("h", ""),
        **more,
    )


def valid_sha(text: str) -> str:
    """A commit's full id, or nothing."""
    return text if _SHA.fullmatch(text) else ""
