"""Responses and rules of Gitea and Forgejo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakes.forge.server import page
from fakes.forge.state import Asked, Pull, Refused, Reply

if TYPE_CHECKING:
    from fakes.forge.server import FakeForge

BODY = 65_535
_ROUTES = (
    ("GET", r"/user", "who"),
    ("GET", r"/repos/{repo}/pulls/(\d+)", "show"),
    ("GET", r"/repos/{repo}/collaborators/([^/]+)/permission", "permission"),
    ("GET", r"/repos/{repo}/issues/(\d+)", "show_issue"),
    ("GET", r"/repos/{repo}/issues/(\d+)/comments", "list_comments"),
    ("POST", r"/repos/{repo}/issues/(\d+)/comments", "add_comment"),
    ("PATCH", r"/repos/{repo}/issues/comments/(\d+)", "edit_comment"),
    ("DELETE", r"/repos/{repo}/issues/comments/(\d+)", "delete_comment"),
    ("GET", r"/repos/{repo}/pulls/(\d+)/reviews", "list_reviews"),
    ("POST", r"/repos/{repo}/pulls/(\d+)/reviews", "add_review"),
    ("GET", r"/repos/{repo}/pulls/(\d+)/reviews/(\d+)/comments", "list_inline"),
)


def answer(forge: FakeForge, asked: Asked) -> Reply:
    """Return the response of the route for a request."""
    for method, pattern, name in _ROUTES:
        match = re.fullmatch(pattern.replace("{repo}", re.escape(forge.repo)), asked.path)
        if match and method == asked.method:
            reply: Reply = getattr(_Gitea(forge, asked), name)(*match.groups())
            return reply
    raise Refused(404, "Not Found")


class _Gitea:
    def __init__(self, forge: FakeForge, asked: Asked) -> None:
        self.forge, self.asked = forge, asked

    def who(self) -> Reply:
        return Reply(body=self._user())

    def show(self, number: str) -> Reply:
        pull = self._pull(number)
        head, base = {"sha": pull.head, "ref": "topic"}, {"sha": pull.base, "ref": "main"}
        return Reply(
            body={
                "number": pull.number,
                "state": pull.state,
                "title": pull.title,
                "head": head,
                "base": base,
            }
        )

    def permission(self, name: str) -> Reply:
        return Reply(body={"permission": self.forge.permissions.get(name, "none")})

    def show_issue(self, number: str) -> Reply:
        if int(number) not in self.forge.issues:
            raise Refused(404, "Not Found")
        return Reply(body=self.forge.issues[int(number)])

    def list_comments(self, number: str) -> Reply:
        return Reply(body=self._pull(number).comments)  # this list is not split into pages

    def add_comment(self, number: str) -> Reply:
        row = self._row(self._text("body"))
        self._pull(number).comments.append(row)
        return Reply(status=201, body=row)

    def edit_comment(self, id: str) -> Reply:
        row, _ = self._comment(int(id))
        row["body"] = self._text("body")
        return Reply(body=row)

    def delete_comment(self, id: str) -> Reply:
        row, rows = self._comment(int(id))
        rows.remove(row)
        return Reply(status=204)

    def list_reviews(self, number: str) -> Reply:
        return page(self.forge, self.asked, self._pull(number).reviews, size="limit", most=50)

    def list_inline(self, number: str, review: str) -> Reply:
        return Reply(
            body=[row for row in self._pull(number).inline if row["review"] == int(review)]
        )

    def add_review(self, number: str) -> Reply:
        pull, body = self._pull(number), self.asked.body
        event = body.get("event", "PENDING")
        if event not in ("APPROVED", "REQUEST_CHANGES", "COMMENT", "PENDING"):
            raise Refused(422, f"event {event!r} is not known")
        comments = body.get("comments", [])
        if event == "COMMENT" and not body.get("body") and not comments:
            raise Refused(422, "body is required")
        review = self._row(
            body.get("body", ""), state=event, commit_id=body.get("commit_id", pull.head)
        )
        rows = [self._checked(pull, comment, review["id"]) for comment in comments]
        review["comments_count"] = len(rows)
        pull.reviews.append(review)
        pull.inline += rows
        return Reply(body=review)

    def _checked(self, pull: Pull, comment: dict[str, Any], review: int) -> dict[str, Any]:
        path, new, old = (
            comment.get("path"),
            comment.get("new_position", 0),
            comment.get("old_position", 0),
        )
        spans = pull.files.get(str(path))
        if spans is None or not (
            any(new in s.new for s in spans) if new else any(old in s.old for s in spans)
        ):
            raise Refused(422, "line is not part of the diff")
        text = comment.get("body")
        if not isinstance(text, str) or not text.strip() or len(text) > BODY:
            raise Refused(422, "body is required")
        return self._row(text, path=path, position=new, original_position=old, review=review)

    def _pull(self, number: str) -> Pull:
        pull = self.forge.pulls.get(int(number))
        if pull is None:
            raise Refused(404, "Not Found")
        return pull

    def _comment(self, id: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        for pull in self.forge.pulls.values():
            for row in pull.comments:
                if row["id"] == id:
                    if row["user"]["id"] != self.asked.user.id:
                        raise Refused(403, "not the author")
                    return row, pull.comments
        raise Refused(404, "Not Found")

    def _row(self, body: str, **more: Any) -> dict[str, Any]:
        return {"id": next(self.forge.ids), "body": body, "user": self._user(), **more}

    def _user(self) -> dict[str, Any]:
        return {"id": self.asked.user.id, "login": self.asked.user.login}

    def _text(self, name: str) -> str:
        text = self.asked.body.get(name) if isinstance(self.asked.body, dict) else None
        if not isinstance(text, str) or not text.strip() or len(text) > BODY:
            raise Refused(422, f"{name} is required, and at most {BODY} characters long")
        return text
