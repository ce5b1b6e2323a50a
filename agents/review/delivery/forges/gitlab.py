"""GitLab: a discussion for each inline comment, one sticky note. The rules are those of its documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glue.agents.review.delivery.forges.client import Client, escaped
from glue.agents.review.delivery.forges.forge import (
    Comment,
    Post,
    Remark,
    Where,
    comment_rows,
    known_row,
    mine,
    valid_sha,
)
from glue.agents.review.findings.dedupe import Known
from glue.agents.review.records import Change

_LEVELS = {60: "admin", 50: "owner", 40: "maintain", 30: "write"}


class GitLab:
    """A merge request on GitLab."""

    api = ""
    suggestion = "suggestion:-{above}+0"
    file_level = batch = False

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None:
        self.client = client
        self.project = f"/projects/{escaped(repo)}"
        self.root = f"{self.project}/merge_requests/{number}"
        self.pinned = head, base
        self._me: int | None = None
        self._refs: dict[str, str] = {}

    @staticmethod
    def find(environ: Mapping[str, str]) -> Where | None:
        if environ.get("GITLAB_CI") != "true":
            return None
        number = environ.get("CI_MERGE_REQUEST_IID", "")
        return Where(
            forge="gitlab",
            api=environ.get("CI_API_V4_URL", ""),
            repo=environ.get("CI_PROJECT_ID") or environ.get("CI_PROJECT_PATH", ""),
            number=int(number) if number.isdigit() else None,
        )

    @staticmethod
    def change(place: Where, environ: Mapping[str, str]) -> Change | None:
        if place.number is None:
            return None
        source, target = environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID"), environ.get("CI_MERGE_REQUEST_PROJECT_ID")
        return Change(
            mode="pull_request",
            forge="gitlab",
            repo=place.repo,
            number=place.number,
            title=environ.get("CI_MERGE_REQUEST_TITLE", ""),
            body=environ.get("CI_MERGE_REQUEST_DESCRIPTION", ""),
            author=environ.get("GITLAB_USER_LOGIN", ""),
            labels=tuple(label for label in environ.get("CI_MERGE_REQUEST_LABELS", "").split(",") if label),
            draft=environ.get("CI_MERGE_REQUEST_DRAFT") == "true",
            fork=source != target,
            head_ref=environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", ""),
            base_ref=environ.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", ""),
            head_sha=valid_sha(environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environ.get("CI_COMMIT_SHA", "")),
            base_sha=valid_sha(environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")),
        )

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        return {"private-token": key}

    def me(self) -> int:
        """The id of the account behind the token."""
        if self._me is None:
            self._me = 0 if self.client.blind else int(self.client.get("/user")["id"])
        return self._me

    def tips(self) -> tuple[str, str]:
        request = self.client.get(self.root)
        if request is None:
            return self.pinned
        refs = request.get("diff_refs") or {}
        self._refs = {name: str(refs.get(name, "")) for name in ("base_sha", "start_sha", "head_sha")}
        return str(request["sha"]), self._refs["base_sha"]

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.project}/members/all", query=user) or []
        level = next((int(row.get("access_level", 0)) for row in found if row.get("username") == user), 0)
        return _LEVELS.get(level, "none")

    def remarks(self) -> list[Remark]:
        found: list[Remark] = []
        for discussion in self.client.pages(f"{self.root}/discussions"):
            notes = discussion.get("notes") or []
            for row in notes:
                by = str((row.get("author") or {}).get("username", ""))
                found.append(Remark(by=by, body=str(row["body"]), answers=int(notes[0]["id"])))
        return found

    def comments(self) -> list[Comment]:
        return comment_rows(mine(list(self.client.pages(f"{self.root}/notes")), self.me(), "author"))

    def add_comment(self, body: str) -> None:
        self.client.change("POST", f"{self.root}/notes", {"body": body})

    def edit_comment(self, comment: Comment, body: str) -> None:
        self.client.change("PUT", f"{self.root}/notes/{comment.id}", {"body": body})

    def delete_comment(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.root}/notes/{comment.id}")

    def known(self) -> list[Known]:
        found: list[Known] = []
        for discussion in self.client.pages(f"{self.root}/discussions"):
            thread = str(discussion.get("id", ""))
            for row in mine(discussion.get("notes") or [], self.me(), "author"):
                place, done = row.get("position") or {}, bool(row.get("resolved"))
                known = known_row(
                    row, str(place.get("new_path", "")), place.get("new_line"), thread=thread, resolved=done
                )
                found += [known] if known else []
        return found

    def resolve(self, known: Known) -> bool:
        if known.thread:
            self.client.change("PUT", f"{self.root}/discussions/{escaped(known.thread)}", {"resolved": True})
        return bool(known.thread)

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        """GitLab has no batch that is all or nothing."""
        for post in posts:
            self.add_single(post)

    def add_single(self, post: Post) -> None:
        head, base = self.pinned
        refs = self._refs or {"base_sha": base, "start_sha": base, "head_sha": head}
        position: dict[str, Any] = {"position_type": "text", **refs}
        position |= {"old_path": post.old_path or post.path, "new_path": post.path, "new_line": post.line}
        if post.old_line is not None:
            position["old_line"] = post.old_line
        self.client.change("POST", f"{self.root}/discussions", {"body": post.body, "position": position})

    def delete_inline(self, known: Known) -> None:
        self.client.change("DELETE", f"{self.root}/notes/{known.comment}")
