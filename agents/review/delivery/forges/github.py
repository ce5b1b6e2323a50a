"""GitHub: one batched review that only ever comments, one sticky comment on the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glue.agents.review.delivery.forges.client import Client, ForgeError, escaped
from glue.agents.review.delivery.forges.forge import Comment, Post, Remark, known_rows, mine, sticky_rows
from glue.agents.review.findings.dedupe import Known

ACTIONS_BOT = 41_898_282  # github-actions[bot] on github.com; its token may not ask who it is


class GitHub:
    """A pull request on GitHub."""

    name = style = "github"
    file_level = True

    def __init__(self, client: Client, repo: str, number: int, head: str, *, me: int | None = None) -> None:
        owner, _, name = repo.partition("/")
        self.client = client
        self.root = f"/repos/{escaped(owner)}/{escaped(name)}"
        self.number = number
        self.pinned = head
        self._me = me

    def me(self) -> int:
        """The id of the account behind the token."""
        if self._me is None:
            self._me = self._ask()
        return self._me

    def head(self) -> str:
        pull = self.client.get(f"{self.root}/pulls/{self.number}")
        return self.pinned if pull is None else str(pull["head"]["sha"])

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.root}/collaborators/{escaped(user)}/permission")
        return str((found or {}).get("role_name") or (found or {}).get("permission", "none"))

    def stickies(self) -> list[Comment]:
        return sticky_rows(mine(list(self.client.pages(f"{self.root}/issues/{self.number}/comments")), self.me()))

    def add_sticky(self, body: str) -> None:
        self.client.change("POST", f"{self.root}/issues/{self.number}/comments", {"body": body})

    def edit_sticky(self, comment: Comment, body: str) -> None:
        self.client.change("PATCH", f"{self.root}/issues/comments/{comment.id}", {"body": body})

    def delete_sticky(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.root}/issues/comments/{comment.id}")

    def known(self) -> list[Known]:
        rows = mine(list(self.client.pages(f"{self.root}/pulls/{self.number}/comments")), self.me())
        return known_rows(rows, lambda row: str(row.get("path", "")))

    def remarks(self) -> list[Remark]:
        talk = self.client.pages(f"{self.root}/issues/{self.number}/comments")
        inline = self.client.pages(f"{self.root}/pulls/{self.number}/comments")
        return [_remark(row) for rows in (talk, inline) for row in rows]

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        comments = [_comment(post) for post in posts]
        review = {"commit_id": self.pinned, "event": "COMMENT", "body": body, "comments": comments}
        self.client.change("POST", f"{self.root}/pulls/{self.number}/reviews", review)

    def add_single(self, post: Post) -> None:
        body: dict[str, Any] = {"commit_id": self.pinned, **_comment(post)}
        if post.line is None:
            body = {"commit_id": self.pinned, "path": post.path, "body": post.body, "subject_type": "file"}
        self.client.change("POST", f"{self.root}/pulls/{self.number}/comments", body)

    def delete_inline(self, known: Known) -> None:
        self.client.change("DELETE", f"{self.root}/pulls/comments/{known.comment}")

    def _ask(self) -> int:
        if self.client.blind:
            return 0
        try:
            return int(self.client.get("/user")["id"])
        except ForgeError as error:
            if error.status not in (401, 403, 404):
                raise
        try:  # a token of an app may not GET /user
            found = self.client.ask("/graphql", {"query": "query { viewer { login databaseId } }"})
            return int(found["data"]["viewer"]["databaseId"])
        except (ForgeError, KeyError, TypeError, ValueError):
            if self.client.base == "https://api.github.com" and self.client.environ.get("GITHUB_ACTIONS") == "true":
                return ACTIONS_BOT
            raise ForgeError("cannot find out whose token this is; give --bot-id") from None


def _remark(row: dict[str, Any]) -> Remark:
    by = str((row.get("user") or {}).get("login", ""))
    return Remark(by=by, body=str(row.get("body") or ""), answers=int(row.get("in_reply_to_id") or 0))


def _comment(post: Post) -> dict[str, Any]:
    comment: dict[str, Any] = {"path": post.path, "body": post.body, "line": post.line, "side": "RIGHT"}
    if post.start_line is not None and post.line is not None and post.start_line < post.line:
        comment |= {"start_line": post.start_line, "start_side": "RIGHT"}
    return comment
