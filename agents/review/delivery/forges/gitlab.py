"""GitLab: a discussion for each inline comment, one sticky note. The rules are those of its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glue.agents.review.delivery.forges.client import Client, ForgeError, escaped
from glue.agents.review.delivery.forges.forge import Comment, Post, Remark, known_rows, mine, sticky_rows
from glue.agents.review.findings.dedupe import Known

_LEVELS = {60: "admin", 50: "owner", 40: "maintain", 30: "write"}


class GitLab:
    """A merge request on GitLab."""

    name = style = "gitlab"
    file_level = False

    def __init__(
        self, client: Client, repo: str, number: int, head: str, *, base: str = "", me: int | None = None
    ) -> None:
        self.client = client
        self.project = f"/projects/{escaped(repo)}"
        self.root = f"{self.project}/merge_requests/{number}"
        self.pinned = head
        self.base = base
        self._me = me
        self._refs: dict[str, str] = {}

    def me(self) -> int:
        """The id of the account behind the token."""
        if self._me is None:
            self._me = 0 if self.client.blind else int(self.client.get("/user")["id"])
        return self._me

    def head(self) -> str:
        request = self.client.get(self.root)
        if request is None:
            return self.pinned
        refs = request.get("diff_refs") or {}
        self._refs = {name: str(refs.get(name, "")) for name in ("base_sha", "start_sha", "head_sha")}
        return str(request["sha"])

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.project}/members/all", query=user) or []
        level = next((int(row.get("access_level", 0)) for row in found if row.get("username") == user), 0)
        return _LEVELS.get(level, "none")

    def remarks(self) -> list[Remark]:
        rows = self.client.pages(f"{self.root}/notes")
        return [Remark(by=str((row.get("author") or {}).get("username", "")), body=str(row["body"])) for row in rows]

    def stickies(self) -> list[Comment]:
        return sticky_rows(self._notes())

    def add_sticky(self, body: str) -> None:
        self.client.change("POST", f"{self.root}/notes", {"body": body})

    def edit_sticky(self, comment: Comment, body: str) -> None:
        self.client.change("PUT", f"{self.root}/notes/{comment.id}", {"body": body})

    def delete_sticky(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.root}/notes/{comment.id}")

    def known(self) -> list[Known]:
        return known_rows(self._notes(), lambda row: str((row.get("position") or {}).get("new_path", "")))

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        """Post one by one: GitLab has no batch that is all or nothing."""
        raise ForgeError("GitLab takes inline comments one by one", status=422)

    def add_single(self, post: Post) -> None:
        refs = self._refs or {"base_sha": self.base, "start_sha": self.base, "head_sha": self.pinned}
        position: dict[str, Any] = {"position_type": "text", **refs}
        position |= {"old_path": post.old_path or post.path, "new_path": post.path, "new_line": post.line}
        if post.old_line is not None:
            position["old_line"] = post.old_line
        self.client.change("POST", f"{self.root}/discussions", {"body": post.body, "position": position})

    def delete_inline(self, known: Known) -> None:
        self.client.change("DELETE", f"{self.root}/notes/{known.comment}")

    def _notes(self) -> list[dict[str, Any]]:
        return mine(list(self.client.pages(f"{self.root}/notes")), self.me(), "author")
