"""Gitea and Forgejo: a batched review, one sticky comment. The rules are those of its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glue.agents.review.delivery.forges.client import Client, escaped
from glue.agents.review.delivery.forges.forge import Comment, Post, Remark, known_rows, mine, sticky_rows
from glue.agents.review.findings.dedupe import Known


class Gitea:
    """A pull request on Gitea or Forgejo."""

    name = "gitea"
    style = "plain"
    file_level = False

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
            self._me = 0 if self.client.blind else int(self.client.get("/user")["id"])
        return self._me

    def head(self) -> str:
        pull = self.client.get(f"{self.root}/pulls/{self.number}")
        return self.pinned if pull is None else str(pull["head"]["sha"])

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.root}/collaborators/{escaped(user)}/permission")
        return str((found or {}).get("permission", "none"))

    def stickies(self) -> list[Comment]:
        rows = self.client.get(f"{self.root}/issues/{self.number}/comments") or []
        return sticky_rows(mine(rows, self.me()))

    def add_sticky(self, body: str) -> None:
        self.client.change("POST", f"{self.root}/issues/{self.number}/comments", {"body": body})

    def edit_sticky(self, comment: Comment, body: str) -> None:
        self.client.change("PATCH", f"{self.root}/issues/comments/{comment.id}", {"body": body})

    def delete_sticky(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.root}/issues/comments/{comment.id}")

    def known(self) -> list[Known]:
        found: list[Known] = []
        for review in mine(list(self.client.pages(f"{self.root}/pulls/{self.number}/reviews", "limit", 50)), self.me()):
            path = f"{self.root}/pulls/{self.number}/reviews/{int(review['id'])}/comments"
            rows = self.client.get(path) or []
            found += known_rows(mine(rows, self.me()), lambda row: str(row.get("path", "")))
        return found

    def remarks(self) -> list[Remark]:
        rows = self.client.get(f"{self.root}/issues/{self.number}/comments") or []
        return [
            Remark(by=str((row.get("user") or {}).get("login", "")), body=str(row.get("body") or "")) for row in rows
        ]

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        comments: list[dict[str, Any]] = [
            {"path": post.path, "body": post.body, "new_position": post.line, "old_position": 0} for post in posts
        ]
        review = {"commit_id": self.pinned, "event": "COMMENT", "body": body, "comments": comments}
        self.client.change("POST", f"{self.root}/pulls/{self.number}/reviews", review)

    def add_single(self, post: Post) -> None:
        self.add_review([post], "")

    def delete_inline(self, known: Known) -> None:
        """Gitea deletes whole reviews only: leave it."""
