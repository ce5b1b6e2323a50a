"""A client for merge requests on GitLab: it posts findings as discussions, and a sticky note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from glue.agents.review.delivery.forges.client import Client, Method, escaped
from glue.agents.review.delivery.forges.forge import (
    Comment,
    Forge,
    Post,
    PullRequestRef,
    parse_posted,
)
from glue.agents.review.delivery.report import valid_sha
from glue.agents.review.findings.dedupe import PostedFinding
from glue.agents.review.records import ReviewedChange

_LEVELS = {60: "admin", 50: "owner", 40: "maintain", 30: "write"}


class GitLab(Forge):
    """A client for one merge request on GitLab. The requests follow its documentation."""

    suggestion = "suggestion:-{above}+0"
    headers: Mapping[str, str] = {"private-token": "{key}"}
    author = "author", "username"
    edit_method: Method = "PUT"

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None:
        super().__init__(client, repo, number, head, base)
        self.project = f"/projects/{escaped(repo)}"
        self.root = f"{self.project}/merge_requests/{number}"
        self.comments_path = self.comment_path = f"{self.root}/notes"
        self._refs = {"base_sha": base, "start_sha": base, "head_sha": head}

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> PullRequestRef | None:
        if environ.get("GITLAB_CI") != "true":
            return None
        number = environ.get("CI_MERGE_REQUEST_IID", "")
        return PullRequestRef(
            forge="gitlab",
            api=environ.get("CI_API_V4_URL", ""),
            repo=environ.get("CI_PROJECT_ID") or environ.get("CI_PROJECT_PATH", ""),
            number=int(number) if number.isdigit() else None,
        )

    @staticmethod
    def change(place: PullRequestRef, environ: Mapping[str, str]) -> ReviewedChange | None:
        if place.number is None:
            return None

        def variable(name: str) -> str:
            return environ.get(f"CI_MERGE_REQUEST_{name}", "")

        source = variable("SOURCE_PROJECT_ID")
        return ReviewedChange(
            title=variable("TITLE"),
            body=variable("DESCRIPTION"),
            author=environ.get("GITLAB_USER_LOGIN", ""),
            labels=tuple(label for label in variable("LABELS").split(",") if label),
            draft=variable("DRAFT") == "true",
            # Without these variables the source is unknown, so it counts as a fork.
            fork=not source or source != variable("PROJECT_ID"),
            head_ref=variable("SOURCE_BRANCH_NAME"),
            base_ref=variable("TARGET_BRANCH_NAME"),
            head_sha=valid_sha(variable("SOURCE_BRANCH_SHA") or environ.get("CI_COMMIT_SHA", "")),
            base_sha=valid_sha(variable("DIFF_BASE_SHA")),
        )

    def tips(self) -> tuple[str, str]:
        request = self.client.get(self.root)
        if request is None:
            return self.pinned
        refs = request.get("diff_refs") or {}
        self._refs = {name: str(refs.get(name, "")) for name in self._refs}
        return str(request["sha"]), self._refs["base_sha"]

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.project}/members/all", query=user) or []
        level = next(
            (int(row.get("access_level", 0)) for row in found if row.get("username") == user), 0
        )
        return _LEVELS.get(level, "none")

    def remarks(self) -> list[Comment]:
        """Return the comments of all users, without notes of GitLab itself ("added 1 commit")."""
        talks = [row.get("notes") or [] for row in self.client.pages(f"{self.root}/discussions")]
        return [
            self.comment(note, notes[0]["id"])
            for notes in talks
            for note in notes
            if not note.get("system")
        ]

    def issue(self, number: int) -> str:
        row = self.read_optional(f"{self.project}/issues/{number}")
        if row.get("confidential"):
            return ""  # its text could be repeated in a comment that everyone can read
        return f"{row.get('title') or ''}\n\n{row.get('description') or ''}".strip()

    def posted(self) -> Iterator[PostedFinding | None]:
        for discussion in self.client.pages(f"{self.root}/discussions"):
            thread = str(discussion.get("id", ""))
            for row in self.own_rows(discussion.get("notes") or []):
                place, done = row.get("position") or {}, bool(row.get("resolved"))
                yield parse_posted(
                    row, place.get("new_path"), place.get("new_line"), thread=thread, resolved=done
                )

    def resolve(self, known: PostedFinding) -> bool:
        if known.thread:
            self.client.change(
                "PUT", f"{self.root}/discussions/{escaped(known.thread)}", {"resolved": True}
            )
        return bool(known.thread)

    def add_single(self, post: Post) -> None:
        position: dict[str, Any] = {"position_type": "text", **self._refs}
        position |= {
            "old_path": post.old_path or post.path,
            "new_path": post.path,
            "new_line": post.line,
        }
        if post.old_line is not None:
            position["old_line"] = post.old_line
        self.client.change(
            "POST", f"{self.root}/discussions", {"body": post.body, "position": position}
        )

    def delete_inline(self, known: PostedFinding) -> None:
        self.client.change("DELETE", f"{self.comment_path}/{known.comment}")
