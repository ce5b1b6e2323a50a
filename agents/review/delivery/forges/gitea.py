"""Gitea and Forgejo: a batched review, one sticky comment. The rules are those of its documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glue.agents.review.delivery.forges.forge import Post, Where, known_row, mine
from glue.agents.review.delivery.forges.github import PullRequest, place_in
from glue.agents.review.findings.dedupe import Known


class Gitea(PullRequest):
    """A pull request on Gitea or Forgejo, whose API copies GitHub's."""

    api = ""
    suggestion = ""
    file_level = False
    batch = True

    @staticmethod
    def find(environ: Mapping[str, str]) -> Where | None:
        if "true" not in (environ.get("GITEA_ACTIONS"), environ.get("FORGEJO_ACTIONS")):
            return None
        server = environ.get("GITHUB_SERVER_URL", "").rstrip("/")
        return place_in("gitea", environ.get("GITHUB_API_URL", "") or f"{server}/api/v1", environ)

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        return {"authorization": f"token {key}"}

    def talk(self) -> list[dict[str, Any]]:
        """Every comment on the conversation; this list has no pages."""
        return self.client.get(f"{self.root}/issues/{self.number}/comments") or []

    def known(self) -> list[Known]:
        found: list[Known] = []
        for review in mine(list(self.client.pages(f"{self.root}/pulls/{self.number}/reviews", "limit", 50)), self.me()):
            path = f"{self.root}/pulls/{self.number}/reviews/{int(review['id'])}/comments"
            rows = self.client.get(path) or []
            ours = (known_row(row, str(row.get("path", "")), row.get("position")) for row in mine(rows, self.me()))
            found += [known for known in ours if known]
        return found

    def resolve(self, known: Known) -> bool:
        """Gitea has no way to resolve a conversation by its API: the sticky comment says it."""
        return False

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        comments = [
            {"path": post.path, "body": post.body, "new_position": post.line, "old_position": 0} for post in posts
        ]
        self.send_review(comments, body)

    def add_single(self, post: Post) -> None:
        self.add_review([post], "")

    def delete_inline(self, known: Known) -> None:
        """Gitea deletes whole reviews only: leave it."""
