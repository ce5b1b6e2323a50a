"""The base class of all forges: read a pull request, and post comments to it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from glue.agents.review.delivery.forges.client import Client, ForgeError, Method
from glue.agents.review.delivery.outputs import FINDING, fields
from glue.agents.review.delivery.report import Report, ReviewVerdict
from glue.agents.review.findings.dedupe import PostedFinding
from glue.agents.review.records import ReviewedChange
from glue.backoff import Backoff

MAX_SENT = 3  # requests for one post
SETTLE = Backoff(first=2.0, cap=8.0)  # before checking whether a post arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestRef:
    """The address of a pull request, and the event of the CI job. Unknown fields are empty."""

    forge: str = ""
    api: str = ""
    repo: str = ""
    number: int | None = None
    head: str = ""  # the head commit, if the event names one
    event: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment on a pull request.

    `answers` is the id of the comment that it replies to, `at` the time at which it was written,
    and `path` the file of an inline comment.
    """

    body: str
    by: str = ""
    id: int = 0
    url: str = ""
    answers: int = 0
    at: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """An inline comment to post, on lines or, if `line` is None, on a whole file."""

    path: str
    body: str
    fingerprint: str
    line: int | None = None
    start_line: int | None = None
    old_line: int | None = None  # of an unchanged line, for forges that need both numbers
    old_path: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.fingerprint, self.path


class Forge(ABC):
    """A client for one pull request on a forge. It acts with the rights of the token's account."""

    api = ""  # the address of the API, unless the environment names another
    headers: Mapping[str, str] = {}  # of every request; {key} is the token
    # Info string of a fenced suggestion. {above} is the number of lines above the last one.
    suggestion = ""
    file_level = False  # whether the forge has comments on whole files
    batch = False  # whether the forge posts several comments in one review, all or none
    author = "user", "login"  # fields of a comment that contain the author and the name
    edit_method: Method = "PATCH"
    comments_path: str  # lists the comments of the conversation
    comment_path: str  # followed by the id of a comment

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None:
        self.client, self.repo, self.number, self.pinned = client, repo, number, (head, base)

    @classmethod
    @abstractmethod
    def find(cls, environ: Mapping[str, str]) -> PullRequestRef | None:
        """Return the address of the CI job's pull request, or None if the job is not of this forge.

        `number` is None if the job has no pull request.
        """

    @staticmethod
    @abstractmethod
    def change(place: PullRequestRef, environ: Mapping[str, str]) -> ReviewedChange | None:
        """Return the metadata of the change under review, or None if the job has no pull request.

        The metadata are read from the event and the environment of the CI job.
        """

    @abstractmethod
    def tips(self) -> tuple[str, str]:
        """Return the hashes of the pull request's current head and base.

        If the client is blind, return those that the Forge was created with.
        """

    @abstractmethod
    def permission(self, user: str) -> str:
        """Return the role of a user in the repository, such as "write", or "none"."""

    @abstractmethod
    def remarks(self) -> list[Comment]:
        """Return all comments of all users, including inline comments."""

    @abstractmethod
    def issue(self, number: int) -> str:
        """Return title and text of an issue, or "" if it is missing, forbidden or confidential."""

    @abstractmethod
    def posted(self) -> Iterable[PostedFinding | None]:
        """Return the finding of each inline comment of this account, or None without a marker."""

    @abstractmethod
    def add_single(self, post: Post) -> None:
        """Post one comment on a line or a whole file; raise ForgeError if the forge refuses it.

        Only forges with `file_level` have comments on whole files.
        """

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        """Post several inline comments in one review, so that the forge posts all or none.

        Only forges with `batch` implement this method.
        """
        raise NotImplementedError

    def delete_inline(self, known: PostedFinding) -> None:
        """Delete an inline comment. Do nothing if the forge cannot delete inline comments."""
        return

    def resolve(self, known: PostedFinding) -> bool:
        """Resolve the discussion of a finding; return False if it cannot be resolved.

        The sticky comment lists the finding as fixed in either case.
        """
        return False

    def post_check(self, report: Report, verdict: ReviewVerdict) -> None:
        """Add a check run with the verdict. Do nothing if the forge has no check runs."""
        return

    @cached_property
    def account_id(self) -> int:
        """Return the id of the token's account, or 0 if the client is `blind` and sends nothing."""
        return 0 if self.client.blind else self.read_account_id()

    def read_account_id(self) -> int:
        """Request the id of the token's account from the forge, and return it."""
        return int(self.client.get("/user")["id"])

    def known(self) -> list[PostedFinding]:
        """Return the findings that this account has posted as inline comments."""
        return [known for known in self.posted() if known]

    def read_optional(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path of the API, or {} if it is missing or forbidden."""
        try:
            found = self.client.get(path)
        except ForgeError as error:
            if error.status not in (403, 404, 410):
                raise
            return {}
        return found if isinstance(found, dict) else {}

    def own_rows(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the `rows`, JSON objects of comments or reviews, that this account wrote.

        A marker alone does not prove who wrote a comment, because anyone can copy it.
        """
        return [row for row in rows if isinstance(row, dict) and self._is_own(row)]

    def _is_own(self, row: Mapping[str, Any]) -> bool:
        author = row.get(self.author[0]) or {}
        return bool(author.get("id") == self.account_id)

    def comment(self, row: Mapping[str, Any], answers: Any = 0) -> Comment:
        """Convert `row`, the JSON of a comment, to a Comment.

        `answers` is the id of the comment that this comment replies to. It is 0 or None if this
        comment is not a reply.
        """
        field, name = self.author
        position = row.get("position")  # of GitLab; a number on other forges
        path = position.get("new_path") if isinstance(position, dict) else row.get("path")
        return Comment(
            body=str(row.get("body") or ""),
            by=str((row.get(field) or {}).get(name, "")),
            id=int(row["id"]),
            url=str(row.get("html_url") or ""),
            answers=int(answers or 0),
            at=str(row.get("created_at") or row.get("submitted_at") or ""),
            path=str(path or ""),
        )

    def conversation(self) -> Iterable[Any]:
        """Return the comments of all users in the conversation of the pull request, as JSON."""
        return self.client.pages(self.comments_path)

    def comments(self) -> list[Comment]:
        """Return the comments that this account wrote in the conversation, the oldest first."""
        own = [self.comment(row) for row in self.own_rows(self.conversation())]
        return sorted(own, key=lambda comment: comment.id)

    def add_comment(self, body: str) -> None:
        self.client.change("POST", self.comments_path, {"body": body})

    def edit_comment(self, comment: Comment, body: str) -> None:
        self.client.change(self.edit_method, f"{self.comment_path}/{comment.id}", {"body": body})

    def delete_comment(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.comment_path}/{comment.id}")

    def post_once(self, send: Callable[[], Any], arrived: Callable[[], bool]) -> int:
        """Call `send` up to MAX_SENT times, until success or `arrived()`; return the call count.

        If `send` cannot connect, wait, and call `send` again. If it is unclear whether a call
        succeeded, wait, and call `send` again only if `arrived` returns False. Raise the error of
        `send` if the forge refuses the post, or after MAX_SENT calls.
        """
        sent = 0
        while True:
            sent += 1
            try:
                send()
                return sent
            except ForgeError as error:
                if not error.ambiguous and error.status != 0:
                    raise
                # The forge may still be busy with the request that seemed lost.
                self.client.sleep(SETTLE.delay(sent) or 0.0)
                if error.ambiguous and arrived():
                    return sent
                if sent == MAX_SENT:
                    raise


def parse_posted(
    row: Mapping[str, Any], path: Any, line: Any, *, thread: str = "", resolved: bool = False
) -> PostedFinding | None:
    """Return the finding of an inline comment, or None if the comment has no marker of a finding.

    `row` is the comment as JSON, `path` and `line` are its place, and `thread` is the id of its
    discussion.
    """
    body = str(row.get("body", ""))
    found = fields(body, FINDING)
    if not found or not found.get("fp"):
        return None
    text = body.split("-->", 1)[-1].strip()
    first = text.split("\n", 1)[0]
    title = re.sub(r"^\W*\*\*\w+ \w+: |\*\*.*$", "", first)
    return PostedFinding(
        fingerprint=found["fp"],
        quote=found.get("q", ""),
        path=str(path or ""),
        comment=int(row["id"]),
        line=line if isinstance(line, int) and line > 0 else None,
        title=title,
        text=title + text[len(first) :],
        by_model=found.get("by", "model") == "model",
        head=found.get("h", ""),
        thread=thread,
        resolved=resolved,
    )
